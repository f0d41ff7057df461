"""Raising a version changes the keys of all results its code takes part in, and of no other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from helpers.editing import memit, rome
from helpers.editing.app import App
from helpers.editing.batch import EditBatch
from helpers.editing.contexts import ContextTemplates
from helpers.editing.editor import Editor
from helpers.editing.ft import Ft, FtHyperparameters
from helpers.editing.kn import Kn, KnHyperparameters
from helpers.editing.memit import AlphaEdit, Memit
from helpers.editing.mend import Hypernetwork, Mend, MendHyperparameters
from helpers.editing.moments import SecondMoment
from helpers.editing.rect_prune import Prune, Rect
from helpers.editing.rome import Rome
from helpers.editing.vector import Vector
from helpers.locating.locators import IntegratedGradients
from helpers.results.store import settings_key

MEMIT = {"memit", "memit+app", "memit on gemma", "rect", "prune"}
SPREADING = {*MEMIT, "alphaedit", "alphaedit on gemma"}
VECTOR = {*SPREADING, "rome", "rome+app", "r-rome", "rome, key as it is"}
LOSS = {"ft-l", "ft-l+app", "mend"}
EXPECTED: list[tuple[Any, str, set[str]]] = [
    (Rome, "version", {"rome", "rome+app", "r-rome", "rome, key as it is"}),
    (rome, "AVERAGED_VERSION", {"r-rome"}),
    (Memit, "version", MEMIT),
    (AlphaEdit, "version", {"alphaedit", "alphaedit on gemma"}),
    (memit, "SPREADING_VERSION", SPREADING),
    (memit, "NORM_VERSION", {"memit on gemma", "alphaedit on gemma"}),
    (Vector, "version", VECTOR),
    (SecondMoment, "version", VECTOR - {"rome, key as it is"}),
    (ContextTemplates, "version", {*VECTOR, "kn"}),
    (App, "version", {"rome+app", "memit+app", "ft-l+app"}),
    (EditBatch, "version", LOSS),
    (Ft, "version", {"ft-l", "ft-l+app"}),
    (Mend, "version", {"mend"}),
    (Kn, "version", {"kn"}),
    (IntegratedGradients, "version", {"kn"}),
    (Rect, "version", {"rect"}),
    (Prune, "version", {"prune"}),
]


@pytest.fixture(scope="module")
def editors(tiny, make_editor, protective) -> dict[str, Editor]:
    """One of every kind whose parts differ."""
    llama, gemma = tiny("llama"), tiny("gemma3")
    fine_tuning = Ft(llama, FtHyperparameters(layers=(1,), num_steps=1, lr=0.1))
    network = Hypernetwork.for_layers(llama, (1,), 2)
    names = ("rome", "r-rome", "memit", "alphaedit", "rect", "prune")
    return {
        **{name: make_editor(name, llama) for name in names},
        **{f"{name} on gemma": make_editor(name, gemma) for name in ("memit", "alphaedit")},
        **{f"{name}+app": make_editor(name, llama, app=protective) for name in ("rome", "memit")},
        "rome, key as it is": replace(
            make_editor("rome", llama, mom2_adjustment=False), second_moments={}
        ),
        "ft-l": fine_tuning,
        "ft-l+app": replace(fine_tuning, app=protective),
        "mend": Mend(llama, MendHyperparameters(layers=(1,), rank=2), network),
        "kn": Kn(llama, KnHyperparameters()),
    }


@pytest.mark.parametrize(
    ("place", "name", "expected"), EXPECTED, ids=lambda value: getattr(value, "__name__", None)
)
def test_a_raised_version_changes_the_keys_it_should(editors, monkeypatch, place, name, expected):
    before = {label: settings_key(editor.settings()) for label, editor in editors.items()}
    monkeypatch.setattr(place, name, getattr(place, name) + 1)
    changed = {
        label
        for label, editor in editors.items()
        if settings_key(editor.settings()) != before[label]
    }
    assert changed == expected


def test_no_version_is_left_out(editors):
    """Each part that any editor names is raised above."""
    named = {part for editor in editors.values() for part in editor.versions()}
    assert len(named) == len(EXPECTED)
