"""What several editors need is found once, vectors and updates; the updates stay what they were."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch

from helpers.editing.editor import Memoised, with_memo
from helpers.editing.vector import VectorEditor
from tests.editing.conftest import assert_same


@pytest.fixture
def optimised(monkeypatch) -> Counter[str]:
    """How often each record's vector was optimised."""
    counted: Counter[str] = Counter()
    optimise = VectorEditor._optimise

    def counting(editor, rows, module):
        counted.update(row.record for row in rows)
        return optimise(editor, rows, module)

    monkeypatch.setattr(VectorEditor, "_optimise", counting)
    return counted


@pytest.fixture
def pair(tiny, make_editor):
    """MEMIT and AlphaEdit with one setting of the optimisation, apart and sharing."""
    apart = {n: make_editor(n, tiny("llama"), v_num_grad_steps=3) for n in ("memit", "alphaedit")}
    memo: dict = {}
    return apart, {name: replace(editor, memo=memo) for name, editor in apart.items()}


def test_memit_and_alphaedit_optimise_once_and_edit_as_they_would_alone(
    pair, requests, optimised
) -> None:
    apart, sharing = pair
    sharing["memit"].edit(requests[:1])
    made = {name: editor.edit(requests) for name, editor in sharing.items()}
    assert set(optimised.values()) == {1}
    assert len(sharing["memit"].memo) == len(requests)
    for name, editor in apart.items():
        assert editor.settings() == sharing[name].settings()
        for mine, alone in zip(made[name], editor.edit(requests), strict=True):
            assert_same(mine, alone)


def test_another_optimisation_is_another_vector(
    tiny, make_editor, pair, requests, optimised, protective
) -> None:
    editor = pair[1]["memit"]
    values, contexts = editor.hyperparameters, editor.contexts
    other = make_editor("memit", tiny("llama", 1), v_num_grad_steps=3)
    changes = (
        *(
            {"hyperparameters": values.model_copy(update=change)}
            for change in ({"v_lr": 0.1}, {"stop_on": "nll"}, {"layers": (1,)})
        ),
        {"app": protective},
        {"targets": "all"},
        {"contexts": replace(contexts, groups=contexts.groups[:1])},
        {"lm": other.lm, "second_moments": other.second_moments},
    )
    editor.edit(requests[:1])
    for count, change in enumerate(changes, start=2):
        replace(editor, **change).edit(requests[:1])
        assert set(optimised.values()) == {count}


def test_kept_updates_are_those_of_the_editor_and_made_once(
    tiny, make_editor, requests, optimised
) -> None:
    names = ("memit", "rect", "prune")
    plain = {name: make_editor(name, tiny("llama"), v_num_grad_steps=3) for name in names}
    memo: dict = {}
    keeping = {name: with_memo(editor, memo) for name, editor in plain.items()}
    times = []
    for mode in ("edit", "edit_jointly"):
        for editor in keeping.values():
            getattr(editor, mode)(requests)
        times.append(set(optimised.values()))
    for name in ("memit", "prune", "rect"):  # RECT: upon masked updates, other edits
        list(keeping[name].edit_sequentially(requests))
        times.append(set(optimised.values()))
    assert times == [{1}, {2}, {3}, {3}, {4}]
    for name, editor in plain.items():
        assert keeping[name].settings() == editor.settings()
        for mine, own in zip(keeping[name].edit(requests), editor.edit(requests), strict=True):
            assert_same(mine, own)
        assert_same(keeping[name].edit_jointly(requests), editor.edit_jointly(requests))
        *_, mine = keeping[name].edit_sequentially(requests)
        *_, own = editor.edit_sequentially(requests)
        assert_same(mine, own)


def test_two_models_share_nothing_in_one_memo(tiny, make_editor, requests) -> None:
    memo: dict = {}
    for name in ("memit", "memory-hidden"):
        for mode in ("edit", "edit_jointly", "edit_sequentially"):
            for seed in (0, 1):
                editor = make_editor(name, tiny("llama", seed=seed))
                through_memo = getattr(with_memo(editor, memo), mode)(requests[:2])
                by_itself = getattr(editor, mode)(requests[:2])
                if mode != "edit_jointly":
                    through_memo, by_itself = [*through_memo][-1], [*by_itself][-1]
                tensors, _ = through_memo.contents()
                expected, _ = by_itself.contents()
                for tensor_name, tensor in tensors.items():
                    torch.testing.assert_close(tensor, expected[tensor_name])


def test_what_shares_edits_is_named_as_its_editor(tiny, make_editor):
    editor = replace(make_editor("ft-m", tiny("llama")), targets="all")
    assert Memoised(editor, {}).method == editor.method == "ft-m+all"
