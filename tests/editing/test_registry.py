"""Editors declare themselves: what is read from a module's text is what its class says."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields

import pytest

from helpers.editing import registry
from helpers.editing.hyperparameters import HyperparameterError, Hyperparameters
from helpers.editing.registry import Variety, editors, entry
from helpers.editing.variants import method_label
from helpers.results import method_looks as looks

MODULE = """
class Direct(Editor):
    name = "direct"
    varieties = (
        Variety(name="direct", label="Direct", colour=6, marker="p", hatch="*", loss=False),
    )
"""


@pytest.mark.parametrize("name", editors())
def test_the_text_says_what_the_class_says(name):
    found = entry(name)
    told = {field.name: getattr(found, field.name) for field in fields(Variety)}
    assert Variety(**told) in found.kind.varieties
    assert found.section == found.kind.name
    assert issubclass(found.hyperparameters, Hyperparameters)
    assert found.values.keys() <= found.hyperparameters.model_fields.keys()


def test_editors_come_in_the_order_of_their_colours():
    assert list(editors()) == [
        *("alphaedit", "memit", "rect", "prune", "prune-added", "rome", "r-rome"),
        *("ft-m", "ft-l", "kn", "kn-tuned", "mend"),
    ]
    assert [looks.place(name) for name in editors()] == list(range(len(editors())))


@pytest.fixture
def added(tmp_path, monkeypatch):
    """One more module, in a folder of its own."""
    (tmp_path / "direct.py").write_text(MODULE)
    monkeypatch.setattr(registry, "_FOLDER", tmp_path)
    editors.cache_clear()
    yield
    editors.cache_clear()


def test_a_module_is_all_that_labels_and_looks_take(added):
    assert method_label("direct") == "Direct"
    assert looks.line("direct")["marker"] == "p"
    assert entry("direct").module == "helpers.editing.direct"
    with pytest.raises(ValueError, match="Direct optimises no loss"):
        method_label("direct+app")
    with pytest.raises(HyperparameterError, match="no editor 'rome'; known: direct"):
        entry("rome")


def test_labels_and_looks_need_no_torch():
    code = (
        "import sys; from helpers.results import method_looks as looks\n"
        "looks.line('rome+app'); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_an_editor_knows_the_name_it_was_built_by(tiny, make_editor):
    model = tiny("llama")
    assert make_editor("r-rome", model).method == "r-rome"
    assert make_editor("rome", model).method == "rome"
    assert make_editor("prune", model, prune_compat="added").method == "prune-added"
    assert make_editor("prune", model).method == "prune"
