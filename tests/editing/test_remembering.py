"""Methods that share an editor get the same updates, made once, under the same settings."""

from __future__ import annotations

from collections import Counter

import pytest

from helpers.editing.remembering import Remembering, sharing


@pytest.fixture
def editors(tiny, make_editor):
    language_model = tiny("llama")
    options = {"v_num_grad_steps": 3}
    return {
        "memit": make_editor("memit", language_model, **options),
        "rect": make_editor("rect", language_model, base="memit", **options),
        "prune": make_editor("prune", language_model, base="memit", **options),
    }


@pytest.fixture
def calls(monkeypatch) -> Counter[int]:
    """How often vectors were optimised, by the number of edits."""
    from helpers.editing import vector

    counted: Counter[int] = Counter()
    optimise = vector.optimise_vectors

    def counting(language_model, rows, *arguments, **options):
        counted[len(rows)] += 1
        return optimise(language_model, rows, *arguments, **options)

    monkeypatch.setattr(vector, "optimise_vectors", counting)
    return counted


def test_updates_and_settings_are_unchanged(same, editors, requests) -> None:
    for name, shared in sharing(editors).items():
        plain = editors[name]
        assert shared.settings() == plain.settings()
        for _ in range(2):
            for mine, own in zip(shared.edit(requests), plain.edit(requests), strict=True):
                assert same(mine, own)
            assert same(shared.edit_jointly(requests), plain.edit_jointly(requests))
            mine, own = (list(e.edit_sequentially(requests[:2])) for e in (shared, plain))
            assert all(same(*pair) for pair in zip(mine, own, strict=True))


def test_a_shared_edit_is_made_once(editors, requests, calls) -> None:
    count = len(requests)
    shared = sharing(editors)
    for editor in shared.values():
        editor.edit(requests)
    assert calls == {count: 1}
    for editor in shared.values():
        editor.edit_jointly(requests)
    assert calls == {count: 2}
    list(shared["memit"].edit_sequentially(requests))
    list(shared["prune"].edit_sequentially(requests))
    assert calls == {count: 2, 1: count}
    list(shared["rect"].edit_sequentially(requests))  # upon masked updates: other edits
    assert calls == {count: 2, 1: 2 * count}


def test_a_sequence_given_up_is_not_remembered(editors, requests) -> None:
    editor = Remembering(editors["memit"])
    next(editor.edit_sequentially(requests))
    assert len(list(editor.edit_sequentially(requests))) == len(requests)


def test_other_settings_are_other_editors(tiny, make_editor) -> None:
    language_model = tiny("llama")
    first, second = (make_editor("memit", language_model, v_num_grad_steps=n) for n in (3, 4))
    shared = sharing({"first": first, "second": second, "third": first})
    assert shared["first"] is shared["third"] is not shared["second"]
