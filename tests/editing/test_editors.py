"""The table of editors: it says what the classes say, and is read without torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from helpers.editing.editors import EDITORS
from helpers.editing.hyperparameters import Hyperparameters
from helpers.results.style import method_place


@pytest.mark.parametrize("editor", EDITORS.values(), ids=EDITORS)
def test_the_table_says_what_the_class_says(editor):
    assert editor.section == editor.kind.name
    assert issubclass(editor.hyperparameters, Hyperparameters)
    assert editor.values.keys() <= editor.hyperparameters.model_fields.keys()


def test_editors_come_in_the_order_of_their_colours():
    colours = [editor.colour for editor in EDITORS.values()]
    assert colours == sorted(colours)
    assert [method_place(name) for name in EDITORS] == list(range(len(EDITORS)))


def test_labels_and_looks_need_no_torch():
    code = (
        "import sys; from helpers.results.style import method_line, method_place\n"
        "method_line('rome+app'); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_an_editor_knows_the_name_it_was_built_by(tiny, make_editor):
    model = tiny("llama")
    assert make_editor("r-rome", model).method == "r-rome"
    assert make_editor("rome", model).method == "rome"
    assert make_editor("prune", model, prune_compat="added").method == "prune-added"
    assert make_editor("prune", model).method == "prune"
