"""Editors that would find the same vectors find them once; their updates stay what they were."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from helpers.editing import vector
from helpers.editing.memo import Memory
from helpers.results.store import settings_key


@pytest.fixture
def optimised(monkeypatch) -> Counter[str]:
    """How often each record's vector was optimised."""
    counted: Counter[str] = Counter()
    optimise = vector.optimise_vectors

    def counting(language_model, rows, *arguments, **options):
        counted.update(row.record for row in rows)
        return optimise(language_model, rows, *arguments, **options)

    monkeypatch.setattr(vector, "optimise_vectors", counting)
    return counted


@pytest.fixture
def pair(tiny, make_editor):
    """MEMIT and AlphaEdit with one setting of the optimisation, apart and sharing."""
    apart = {n: make_editor(n, tiny("llama"), v_num_grad_steps=3) for n in ("memit", "alphaedit")}
    memory = Memory()
    return apart, {name: replace(editor, memory=memory) for name, editor in apart.items()}


def test_memit_and_alphaedit_optimise_once_and_edit_as_they_would_alone(
    same, pair, requests, optimised
) -> None:
    apart, sharing = pair
    made = {name: editor.edit(requests) for name, editor in sharing.items()}
    assert set(optimised.values()) == {1}
    assert len(sharing["memit"].memory) == len(requests)
    for name, editor in apart.items():
        assert editor.settings() == sharing[name].settings()
        for mine, alone in zip(made[name], editor.edit(requests), strict=True):
            assert same(mine, alone)
            assert mine.diagnostics["losses"] == alone.diagnostics["losses"]


def test_only_missing_vectors_are_optimised(pair, requests, optimised) -> None:
    editor = pair[1]["memit"]
    editor.edit(requests[:1])
    editor.edit([*requests, requests[0]])
    assert set(optimised.values()) == {1}


@pytest.mark.parametrize(
    "change", [{"v_lr": 0.1}, {"v_num_grad_steps": 2}, {"kl_factor": 0.5}, {"stop_on": "nll"}]
)
def test_another_optimisation_is_another_vector(pair, requests, optimised, change) -> None:
    editor = pair[1]["memit"]
    editor.edit(requests)
    values = editor.hyperparameters.model_copy(update=change)
    replace(editor, hyperparameters=values).edit(requests)
    assert set(optimised.values()) == {2}


def test_another_model_is_another_vector(tiny, make_editor, requests, optimised) -> None:
    memory = Memory()
    for seed in (0, 1):
        editor = make_editor("memit", tiny("llama", seed), v_num_grad_steps=2)
        replace(editor, memory=memory).edit(requests[:1])
    assert set(optimised.values()) == {2}


def test_so_are_other_answers_targets_layers_and_contexts(
    pair, requests, optimised, protective
) -> None:
    editor = pair[1]["memit"]
    editor.edit(requests)
    layers = editor.hyperparameters.model_copy(update={"layers": (1,)})
    contexts = replace(editor.contexts, groups=editor.contexts.groups[:1])
    for count, change in enumerate(
        (
            {"app": protective},
            {"targets": "all"},
            {"hyperparameters": layers},
            {"contexts": contexts},
        ),
        start=2,
    ):
        replace(editor, **change).edit(requests)
        assert set(optimised.values()) == {count}


@pytest.mark.parametrize("name", ["memit", "alphaedit"])
def test_vectors_of_an_edited_model_are_never_kept(same, pair, requests, name) -> None:
    apart, sharing = pair
    sharing[name].edit(requests)  # fills the memory with the unedited model's
    for mine, alone in zip(
        sharing[name].edit_sequentially(requests),
        apart[name].edit_sequentially(requests),
        strict=True,
    ):
        assert same(mine, alone)
    assert len(sharing[name].memory) == len(requests)


def test_settings_tell_apart_whatever_an_update_depends_on(pair, protective) -> None:
    editor = pair[0]["memit"]
    moments = {k: replace(m, corpus="another") for k, m in editor.second_moments.items()}
    changes = (
        {},
        {"second_moments": moments},
        {"app": protective},
        {"app": replace(protective, margin=4.0)},
        {"targets": "all"},
        {"contexts": replace(editor.contexts, groups=editor.contexts.groups[:1])},
        {"hyperparameters": editor.hyperparameters.model_copy(update={"v_lr": 0.1})},
    )
    keys = [settings_key(replace(editor, **change).settings()) for change in changes]
    assert len(set(keys)) == len(changes)
    assert settings_key(pair[0]["alphaedit"].settings()) not in keys
