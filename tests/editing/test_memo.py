"""What several editors need is found once, vectors and updates; the updates stay what they were."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from helpers.editing import vector
from helpers.editing.memo import Memoised, with_memo
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
    memo: dict = {}
    return apart, {name: replace(editor, memo=memo) for name, editor in apart.items()}


def test_memit_and_alphaedit_optimise_once_and_edit_as_they_would_alone(
    same, pair, requests, optimised
) -> None:
    apart, sharing = pair
    made = {name: editor.edit(requests) for name, editor in sharing.items()}
    assert set(optimised.values()) == {1}
    assert len(sharing["memit"].memo) == len(requests)
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
    memo: dict = {}
    for seed in (0, 1):
        editor = make_editor("memit", tiny("llama", seed), v_num_grad_steps=2)
        replace(editor, memo=memo).edit(requests[:1])
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
    sharing[name].edit(requests)  # fills the memo with the unedited model's
    for mine, alone in zip(
        sharing[name].edit_sequentially(requests),
        apart[name].edit_sequentially(requests),
        strict=True,
    ):
        assert same(mine, alone)
    assert len(sharing[name].memo) == len(requests)


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


@pytest.fixture
def editors(tiny, make_editor):
    language_model = tiny("llama")
    options = {"v_num_grad_steps": 3}
    return {
        "memit": make_editor("memit", language_model, **options),
        "rect": make_editor("rect", language_model, base="memit", **options),
        "prune": make_editor("prune", language_model, base="memit", **options),
    }


def shared(editors):
    memo: dict = {}
    return {name: with_memo(editor, memo) for name, editor in editors.items()}


def test_kept_updates_and_settings_are_those_of_the_editor(same, editors, requests) -> None:
    for name, keeping in shared(editors).items():
        plain = editors[name]
        assert keeping.settings() == plain.settings()
        for _ in range(2):
            for mine, own in zip(keeping.edit(requests), plain.edit(requests), strict=True):
                assert same(mine, own)
            assert same(keeping.edit_jointly(requests), plain.edit_jointly(requests))
            mine, own = (list(e.edit_sequentially(requests[:2])) for e in (keeping, plain))
            assert all(same(*pair) for pair in zip(mine, own, strict=True))


def test_a_shared_edit_is_made_once(editors, requests, optimised) -> None:
    keeping, times = shared(editors), []
    for mode in ("edit", "edit_jointly"):
        for editor in keeping.values():
            getattr(editor, mode)(requests)
        times.append(set(optimised.values()))
    for name in ("memit", "prune", "rect"):  # RECT: upon masked updates, other edits
        list(keeping[name].edit_sequentially(requests))
        times.append(set(optimised.values()))
    assert times == [{1}, {2}, {3}, {3}, {4}]


def test_a_sequence_given_up_is_not_kept(editors, requests) -> None:
    editor = Memoised(editors["memit"], {})
    next(editor.edit_sequentially(requests))
    assert len(list(editor.edit_sequentially(requests))) == len(requests)


def test_other_settings_are_other_updates(tiny, make_editor, requests, optimised) -> None:
    memo: dict = {}
    for steps in (3, 4, 3):
        editor = make_editor("memit", tiny("llama"), v_num_grad_steps=steps)
        Memoised(editor, memo).edit(requests)
    assert set(optimised.values()) == {2}
