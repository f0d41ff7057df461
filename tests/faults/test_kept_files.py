"""Flipped bits and cuts in files that are kept and read again, and checkpoints that are cut off."""

from __future__ import annotations

import random

import pytest
import safetensors.torch
import torch

from helpers import UserError
from helpers import kept as keeping
from helpers.editing.corpus import TextCorpus
from helpers.editing.interventions import Dense
from helpers.editing.moments import second_moments
from helpers.editing.weight_edit import WeightEdit
from helpers.kept import DamagedError
from helpers.models.architectures import ModelError
from helpers.models.load import load as load_model


def damages(content: bytes) -> list[bytes]:
    """The content with a bit flipped here and there, cut in half, emptied, and replaced."""
    draw = random.Random(0)
    found = [content[: len(content) // 2], b"", b"\0" * len(content)]
    for position in draw.sample(range(len(content)), 4):
        changed = bytearray(content)
        changed[position] ^= 1 << draw.randrange(8)
        found.append(bytes(changed))
    return found


def test_damaged_second_moments_are_reported_and_made_again(tmp_path, tiny, monkeypatch):
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path / "files"))
    text = tmp_path / "text.txt"
    text.write_text("Knowledge is a list, not a slot. " * 20)

    def made() -> torch.Tensor:
        return second_moments(tiny("llama"), [1], TextCorpus(text, segment=50))[1].matrix

    expected = made().clone()
    (path,) = (tmp_path / "files").rglob("layer1-*.safetensors")
    for content in damages(path.read_bytes()):
        path.write_bytes(content)
        with pytest.warns(UserWarning, match=rf"{path.name} is damaged.*; it is made again"):
            assert torch.equal(made(), expected)


def test_a_file_of_the_users_name_is_read_as_it_is_or_named(tmp_path):
    """An update saved for others: nothing of ours guards it, and nothing of ours replaces it."""
    path = tmp_path / "mine.safetensors"
    WeightEdit({"mlp": Dense(torch.ones(6, 4))}, {"steps": 3}).save(path)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"mine\.safetensors is damaged"):
        WeightEdit.load(path)
    with pytest.raises(DamagedError, match=r"mine\.safetensors is damaged"):
        keeping.load_or_make(path, safetensors.torch.load_file, lambda _: None)
    assert path.exists()


def test_what_is_kept_has_the_mode_of_new_files(tmp_path):
    """safetensors writes 0600: other users of the cache could not read it."""
    (tmp_path / "plain").touch()
    with keeping.kept_whole(tmp_path / "sums.safetensors") as scratch:
        safetensors.torch.save_file({"a": torch.zeros(2)}, scratch)
    assert len({path.stat().st_mode for path in tmp_path.iterdir()}) == 1


@pytest.mark.parametrize("change", ["missing", "another shape"])
def test_a_checkpoint_that_lacks_weights_is_refused(tmp_path, tiny, change):
    from safetensors.torch import load_file, save_file

    model = tiny("llama")
    model.network.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = "model.layers.1.mlp.down_proj.weight"
    if change == "missing":
        del tensors[name]
    else:
        tensors[name] = tensors[name][:, :-1].contiguous()
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=rf"{name}(; fetch it again| has the shape)"):
        load_model(str(tmp_path))
