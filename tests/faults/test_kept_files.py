"""Flipped bits and cuts in every kind of file that we write and read again."""

from __future__ import annotations

import json
import os
import random
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import safetensors.torch
import torch

from helpers import kept as keeping
from helpers.editing import moments as moments_module
from helpers.editing.contexts import context_templates
from helpers.editing.corpus import SelfCorpus, TextCorpus
from helpers.editing.deltas import Dense
from helpers.editing.moments import KeySums, SecondMoment, second_moment
from helpers.editing.update import Update, UpdateError
from helpers.kept import DamagedError
from helpers.klob.evaluation import evaluate
from helpers.klob.questions import load_examples
from helpers.locating.locators import RandomScores
from helpers.models import packaged_weights
from helpers.models.load import ModelError
from helpers.models.load import load as load_model
from helpers.models.packaged_weights import PACKAGED_WEIGHTS, PackagedWeights, WeightsError, prepare
from helpers.results.archive import About, Archive, ArchiveError
from helpers.thinkedit.journal import Journal, JournalError
from helpers.triples.endpoint import Endpoint


@dataclass(frozen=True)
class Kind:
    """A kind of file: what uses it, and whether a damaged one is made again or refused by name."""

    use: Callable[[Any, Path], Any]
    refused: tuple[type[Exception], ...] = ()
    files: str = f"*-{'[0-9a-f]' * 16}*"  # those with a digest in their name, or else these
    goes_on: bool = False  # what is cut off is asked again, without a word


def _sums(tiny: Any, folder: Path) -> Any:
    """A run that resumes, or begins anew, and ends at the same sums."""
    root = folder / "files"
    found = KeySums.resume(root, [1], 6, torch.device("cpu"))
    if not found.documents:
        found = KeySums({1: torch.randn(6, 6, generator=torch.Generator().manual_seed(0))}, 9, 2)
        found.save(root / "sums-1.partial.safetensors")
    return {"sums": found.matrices[1].clone()}


def _directions(tiny: Any, folder: Path) -> Any:
    source = folder / "files" / "layer1.safetensors"
    source.touch()
    matrix = torch.diag(torch.arange(1.0, 9.0))
    values, vectors = SecondMoment(matrix, 9, 1, "", "made up", file=source).directions
    return {"values": values.clone(), "vectors": vectors.clone()}


def _moments(tiny: Any, folder: Path) -> Any:
    text = folder / "text.txt"
    text.write_text("Knowledge is a list, not a slot. " * 20)
    corpus = TextCorpus(text, segment=50)
    return second_moment(tiny("llama"), [1], corpus, folder=folder / "files")[1].matrix.clone()


def _contexts(tiny: Any, folder: Path) -> Any:
    made = context_templates(tiny("llama"), [(6, 5)], grouped=False, folder=folder / "files")
    return made.templates


def _corpus(tiny: Any, folder: Path) -> Any:
    return list(SelfCorpus(count=2, segment=6).documents(tiny("llama")))


def _klob(tiny: Any, folder: Path) -> Any:
    examples = load_examples("unbiasedness", "klob-mini", count=2, seed=0)
    found = evaluate(tiny("llama"), RandomScores(), examples, checkpoints=folder / "files")
    return found.sentences.to_csv()


class Answering(Endpoint):
    """An endpoint at hand."""

    def _ask(self, query: str) -> bytes:
        row = {"n": {"type": "literal", "value": "9"}}
        return json.dumps({"results": {"bindings": [row] * 3}}).encode()


def _answers(tiny: Any, folder: Path) -> Any:
    return Answering("http://localhost", "tests", folder=folder / "files").select("SELECT ?n")


def _published(tiny: Any, folder: Path) -> Any:
    archive = Archive(folder / "files")
    if not archive.names():
        archive.put(
            "r", {"t": pd.DataFrame({"x": [0.5, 1.5]})}, About({"model": "m"}, {"t": {"n": 3}})
        )
    run = archive.get("r")
    return run.tables["t"].to_csv() + repr(run.about)


def _journal(tiny: Any, folder: Path) -> Any:
    path = folder / "files" / "mine.jsonl"
    journal = Journal(path, model="m", settings={"n": 1})
    for step in range(3):
        if journal.recall("decision", {"fact": step}) is None:
            journal.record("decision", {"fact": step}, f"answer {step}")
    return path.read_bytes()


def _weights(tiny: Any, folder: Path) -> Any:
    return {k: v.clone() for k, v in load_model("small").model.state_dict().items()}


KINDS = {
    "second moments": Kind(_moments),
    "unfinished second moments": Kind(_sums),
    "null spaces": Kind(_directions),
    "context templates": Kind(_contexts),
    "the model's own corpus": Kind(_corpus),
    "KLoB chunks": Kind(_klob),
    "packaged weights": Kind(_weights),
    "answers of endpoints": Kind(_answers),
    "published tables": Kind(_published, (ArchiveError,), "*.parquet"),
    "what published tables are of": Kind(_published, (ArchiveError,), "about.json"),
    "curation journals": Kind(_journal, (JournalError,), "*.jsonl", goes_on=True),
}


@pytest.fixture
def cache(tmp_path, monkeypatch, tiny):
    """A cache of its own, and a small packaged model that is "dequantised" from a tiny one."""
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path / "files"))
    (tmp_path / "files" / "models").mkdir(parents=True)

    def dequantise(gguf: Path, folder: Path) -> None:
        tiny("llama").model.save_pretrained(folder)
        tiny("llama").tokenizer.save_pretrained(folder)

    weights = PackagedWeights(requirements=(), members=(), sha256="0" * 64, licence="MIT")
    monkeypatch.setitem(PACKAGED_WEIGHTS, "small", weights)
    monkeypatch.setattr(packaged_weights, "_assemble", lambda *_: tmp_path)
    monkeypatch.setattr(packaged_weights, "_dequantise", dequantise)
    monkeypatch.setattr(moments_module, "LARGE", 4)
    keeping._known_digest.cache_clear()
    return tmp_path


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(v, other[k]) for k, v in one.items())
    return bool(one == other)


def damages(content: bytes, flips: int) -> list[bytes]:
    """The content with one bit flipped here and there, cut in half, emptied, and replaced."""
    draw = random.Random(0)
    found = [content[: len(content) // 2], b"", b"\0" * len(content)]
    for position in draw.sample(range(len(content)), min(flips, len(content))):
        changed = bytearray(content)
        changed[position] ^= 1 << draw.randrange(8)
        found.append(bytes(changed))
    return found


@pytest.mark.parametrize("name", KINDS)
def test_damage_is_said_and_made_again_or_refused_by_name(cache, tiny, tally, times, name):
    kind = KINDS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = kind.use(tiny, cache)
        kept = list((cache / "files").rglob(kind.files))
    assert kept, "nothing was kept"
    shutil.copytree(cache / "files", cache / "as written")
    for owner, path in [(each, file) for each in kept for file in keeping._files(each)]:
        for content in damages(path.read_bytes(), times(4, 60)):
            path.write_bytes(content)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                try:
                    survived = _same(kind.use(tiny, cache), expected)
                    survived &= kind.goes_on or any(
                        owner.name in str(w.message) and "damaged" in str(w.message) for w in said
                    )
                except kind.refused as error:
                    survived = str(path) in str(error)
            tally(f"{name}: flipped bits, cuts", survived)
            shutil.rmtree(cache / "files")
            shutil.copytree(cache / "as written", cache / "files")


def test_fetch_looks_at_what_is_cached(cache):
    (prepare("small") / "tokenizer.json").unlink()
    with pytest.warns(UserWarning, match=r"small-\w+ is damaged.*; it is made again"):
        assert (prepare("small") / "tokenizer.json").exists()


def test_weights_that_are_not_the_known_ones_are_refused(cache, monkeypatch):
    weights = PackagedWeights((), (), "0" * 64, "MIT", content="other")
    monkeypatch.setitem(PACKAGED_WEIGHTS, "small", weights)
    with pytest.raises(WeightsError, match=r"known tensors.*constraints\.txt"):
        prepare("small")
    assert not list((cache / "files" / "models").iterdir())


def test_a_file_of_the_users_name_is_read_as_it_is_or_named(tmp_path):
    """An update saved for others: nothing of ours guards it, and nothing of ours replaces it."""
    path = tmp_path / "mine.safetensors"
    Update({"mlp": Dense(torch.ones(6, 4))}, {"steps": 3}).save(path)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UpdateError, match=r"mine\.safetensors is damaged.*make the edit again"):
        Update.load(path)
    with pytest.raises(DamagedError, match=r"git checkout -- .*mine\.safetensors"):
        keeping.kept(path, safetensors.torch.load_file, lambda _: None)
    assert path.exists()


@pytest.mark.parametrize("mask", [0o022, 0o027])
def test_what_is_kept_has_the_mode_of_new_files(tmp_path, tiny, mask):
    """safetensors writes 0600: other users of the cache could not read it."""
    before = os.umask(mask)
    try:
        with keeping.kept_whole(tmp_path / "sums.safetensors") as scratch:
            safetensors.torch.save_file({"a": torch.zeros(2)}, scratch)
        with keeping.kept_whole(tmp_path / "model") as scratch:
            tiny("llama").model.save_pretrained(scratch)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*.*")}
    assert set(modes.values()) == {0o666 & ~mask}
    assert any(name.startswith("sums-") for name in modes)
    assert "model.safetensors" in modes


@pytest.mark.parametrize("left", [0, 0.5])
def test_a_checkpoint_that_was_cut_off_is_refused(tmp_path, tiny, left):
    tiny("llama").model.save_pretrained(tmp_path)
    tiny("llama").tokenizer.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: int(left * len(content))])
    with pytest.raises(ModelError, match=r"checkpoint of .* cannot be read .*fetch it again"):
        load_model(str(tmp_path))


@pytest.mark.parametrize("change", ["missing", "another shape"])
def test_a_checkpoint_that_lacks_weights_is_refused(tmp_path, tiny, change):
    from safetensors.torch import load_file, save_file

    language_model = tiny("llama")
    language_model.model.save_pretrained(tmp_path)
    language_model.tokenizer.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = "model.layers.1.mlp.down_proj.weight"
    if change == "missing":
        del tensors[name]
    else:
        tensors[name] = tensors[name][:, :-1].contiguous()
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=rf"checkpoint of .*{name}; fetch it again"):
        load_model(str(tmp_path))


def _keep(folder: Path, value: int) -> int:
    path = folder / "value.json"
    made = keeping.kept(path, Path.read_text, lambda file: file.write_text(str(value)))
    return int(made)


def test_a_file_has_one_version_and_is_hashed_once_a_process(tmp_path, monkeypatch):
    digests: list[Path] = []
    original = keeping.file_digest
    for value in (1, 2):
        with keeping.kept_whole(tmp_path / "value.json") as scratch:
            scratch.write_text(str(value))
    monkeypatch.setattr(keeping, "file_digest", lambda p: digests.append(p) or original(p))
    assert [_keep(tmp_path, 3) for _ in range(3)] == [2, 2, 2]
    assert digests == list(tmp_path.iterdir())


def test_damage_without_a_maker_is_an_error_that_names_the_file(tmp_path):
    _keep(tmp_path, 1)
    keeping.kept_at(tmp_path / "value.json").write_text("2")
    with pytest.raises(DamagedError, match=r"value-\w+\.json is damaged"):
        keeping.read_kept(tmp_path / "value.json", Path.read_text)
