"""Variant names, their labels, and the studies made of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.editing.app import App
from helpers.editing.contexts import ContextTemplates
from helpers.editing.editors import (
    OBJECTIVES,
    SYMBOLS,
    EditorError,
    Variant,
    method_label,
    objectives,
)
from helpers.editing.methods import _changed
from helpers.editing.presets import preset_values
from helpers.editing.rect import Rect, RectHyperparameters
from helpers.editing.rome import Rome
from helpers.params import read_params
from helpers.paths import NOTEBOOKS
from helpers.paths import PARAMS as FOLDER
from helpers.peak.ablations import studies
from helpers.results.text import published_table

NAME = "04_app_ablations"
# A draft awaits its published run; its params files are checked all the same.
NOTEBOOK = next(NOTEBOOKS.glob(f"**/{NAME}.ipynb"))
FILES = sorted((FOLDER / "paper" / NAME).glob("*.yaml"))
PARAMS = {
    "editors": ["ft-m"],
    "fairer": ["rome"],
    "others": ["rect"],
    "neighbours": [0, 3],
    "factors": [0.5],
    "margins": [4.0],
}


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("rome", "ROME"),
        ("rome+app", "ROME+APP"),
        ("rome+all", "ROME+ (mean)"),
        ("rome+all-sum", "ROME+ (sum)"),
        ("rome+app@alpha=0x", "ROME+APP, without L1"),
        ("ft-m+app@gamma=0.5x", "FT-M+APP, 0.5 γ"),
        ("memit+app@neighbours=3", "MEMIT+APP, k = 3"),
        ("rome+app@margin=4", "ROME+APP, M = 4"),
    ],
)
def test_names_and_labels(name, label):
    assert str(Variant.parse(name)) == name
    assert Variant.parse(name).label == label


@given(st.sampled_from(list(SYMBOLS)), st.integers(0, 40), st.booleans())
def test_every_variant_is_read_back_from_its_name(field, quarters, times):
    variant = Variant("rome+app", field, quarters / 4, times)
    assert Variant.parse(str(variant)) == variant


@pytest.mark.parametrize("bad", ["rom", "rome@alpha=0x", "rome+app@delta=1", "rome+app@alpha=", ""])
def test_names_that_mean_nothing_are_refused(bad):
    with pytest.raises(EditorError):
        Variant.parse(bad)


def test_studies_hold_what_the_parameters_ask_for():
    found = {name: [str(v) for v in variants] for name, variants in studies(PARAMS).items()}
    assert found["objectives"] == ["ft-m", "ft-m+app", *(f"ft-m+app@{f}=0x" for f in OBJECTIVES)]
    assert found["fairer"] == ["rome", "rome+all", "rome+all-sum", "rome+app"]
    assert found["neighbours"] == ["ft-m+app@neighbours=0", "ft-m+app@neighbours=3"]
    assert found["others"] == ["rect", "rect+app"]
    assert found["sensitivity"][-1] == "ft-m+app@margin=4"
    assert len(found["sensitivity"]) == 4


def test_a_variant_changes_one_field_of_app(tiny, rome_settings):
    app = App(alpha=0.2, beta=0.4, gamma=0.1)
    editor = Rome(tiny("llama"), rome_settings, ContextTemplates((("{}",),)), app=app)
    changed = {
        name: _changed(editor, Variant.parse(f"rome+app@{name}")).app
        for name in ("beta=0.5x", "neighbours=3", "margin=4")
    }
    assert changed["beta=0.5x"] == App(0.2, 0.2, 0.1)
    assert changed["neighbours=3"] == App(0.2, 0.4, 0.1, neighbours=3)
    assert changed["margin=4"] == App(0.2, 0.4, 0.1, margin=4)
    assert editor.app == app
    upon = _changed(Rect(editor, RectHyperparameters()), Variant.parse("rect+app@beta=0.5x"))
    assert upon.app == App(0.2, 0.2, 0.1)
    without = [_changed(editor, variant).app for variant in objectives("rome")[2:]]
    assert without == [App(0, 0.4, 0.1), App(0.2, 0, 0.1), App(0.2, 0.4, 0)]


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_published_variants_have_hyperparameters_for_their_model(file):
    params = read_params(file, NOTEBOOK)
    variants = [variant for study in studies(params).values() for variant in study]
    variants += [Variant(method) for method in (*params["said"], *params["sequences"])]
    for variant in variants:
        values = preset_values(variant.editor, params["model"], params["preset"])
        if base := values.get("base"):
            values = preset_values(base, params["model"], params["preset"])
        if variant.method.endswith("+app"):
            assert {"alpha", "beta", "gamma"} <= set(values["app"])


def test_the_papers_ablations_have_the_papers_four_editors():
    """Figure 4 and Table 5: FT, MEND, MEMIT and ROME on LLaMA-2 (7B)."""
    params = read_params(FOLDER / "paper" / NAME / "llama2-7b_peak-cf.yaml", NOTEBOOK)
    rows = published_table("peak_table_5").query("model == 'llama2-7b'")["method"].unique()
    for key in ("editors", "fairer"):
        labels = [method_label(editor).removesuffix("-L") for editor in params[key]]
        assert sorted(f"{label}+" for label in labels) == sorted(rows)
