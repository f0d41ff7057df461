"""Packed scoring equals one-by-one scoring on every architecture, with and without updates."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.editing.in_context import ContextEdit
from helpers.editing.weight_edit import WeightEdit, apply
from helpers.models.tokens import TokenError, answer_ids, prompt_ids
from helpers.scoring import answers as module
from helpers.scoring.answers import (
    Question,
    _packed_rows,
    score_answers,
    score_continuations,
    with_prefixes,
)
from tests.conftest import FURTHER
from tests.scoring.random_edits import random_edits

ARCHITECTURES = ["gpt2", "gptj", "llama", "qwen2", "mistral", "gemma3"]
ARCHITECTURES += FURTHER
QUESTIONS = [
    Question("Turkey shares a border with", ("Greece", "Georgia", "Gambia", "Iran", "Iraq")),
    Question("Turkey shares", ("borders", "b")),
    Question("The capital of France is the city that people call", ("Paris", "Lyon, France")),
    Question("x", ("Georgia",)),
]


def one_by_one(model, question: Question) -> list[tuple[int, float, int]]:
    """The plain reference: one sequence, one forward pass, the model's own logits."""
    rows = []
    for answer in question.answers:
        prompt = prompt_ids(model, question.prompt)
        ids = answer_ids(model, answer)
        with torch.no_grad():
            logits = model.network(torch.tensor([[*prompt, *ids]])).logits[0]
        scores = logits.log_softmax(-1)
        own = scores[len(prompt) - 1 : -1]
        picked = own[range(len(ids)), ids]
        rows.append((len(ids), float(picked.sum()), int((picked == own.amax(-1)).sum())))
    return rows


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "windowed"])
@pytest.mark.parametrize(("budget", "row_tokens"), [(4096, 400), (64, 1)])
def test_packed_equals_one_by_one(tiny, monkeypatch, architecture, budget, row_tokens):
    model = tiny(architecture)
    monkeypatch.setattr(module, "tokens_at_once", lambda *_, **__: budget)
    monkeypatch.setattr(module, "ROW_TOKENS", row_tokens)
    monkeypatch.setattr(module, "LOGITS_AT_A_TIME", 3 * model.network.config.vocab_size)
    table = score_answers(model, QUESTIONS)
    expected = [row for question in QUESTIONS for row in one_by_one(model, question)]
    assert table["tokens"].tolist() == [count for count, *_ in expected]
    np.testing.assert_allclose(table["sum"], [total for _, total, _ in expected], atol=1e-4)
    np.testing.assert_allclose(table["mean"], table["sum"] / table["tokens"])
    assert table["top"].tolist() == [top for *_, top in expected]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_scores_under_updates_equal_applied_weights(tiny, architecture):
    model = tiny(architecture)
    updates = random_edits(model)
    owners = [*range(len(updates)), -1]
    questions = [QUESTIONS[0]] * len(owners) + [QUESTIONS[1]] * len(owners)
    table = score_answers(model, questions, updates, owners * 2)
    for index, owner in enumerate(owners * 2):
        update = updates[owner] if owner >= 0 else WeightEdit({})
        with apply(model, update):
            expected = one_by_one(model, questions[index])
        found = table.loc[table["question"] == index, "sum"]
        np.testing.assert_allclose(found, [total for _, total, _ in expected], atol=1e-4)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.text("abc de", min_size=1, max_size=12).filter(lambda t: t.strip() == t),
            st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=4),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_any_questions_in_any_packing(tiny, pairs):
    questions = [Question(prompt, tuple(answers)) for prompt, answers in pairs]
    together = score_answers(tiny("llama"), questions)
    alone = [score_answers(tiny("llama"), [q])["sum"] for q in questions]
    np.testing.assert_allclose(together["sum"], np.concatenate(alone), atol=1e-4)


def test_bad_input(tiny):
    with pytest.raises(TokenError, match="empty"):
        score_answers(tiny("llama"), [Question("x", (" ",))])
    with pytest.raises(TokenError, match="blank"):
        score_answers(tiny("llama"), [Question("x ", ("y",))])
    with pytest.raises(ValueError, match="owners"):
        score_answers(tiny("llama"), QUESTIONS, [WeightEdit({})], [0, 0, 0, 1])
    with pytest.raises(ValueError, match="edits without owners"):
        score_answers(tiny("llama"), QUESTIONS, [WeightEdit({})])
    with pytest.raises(TypeError, match="several texts"):
        Question("x", "yes")
    with pytest.raises(TokenError, match=r"'x{60}': 513 tokens exceed the context of"):
        score_answers(tiny("llama"), [Question("x" * 512, ("y",))])
    # The blank before the answer is read, its last token is not: these 512 tokens fit.
    assert np.isfinite(score_answers(tiny("llama"), [Question("x" * 511, ("y",))])["sum"]).all()
    table = score_answers(tiny("llama"), [Question("y", ()), *QUESTIONS])  # no answer, no row
    assert table["question"].unique().tolist() == [1, 2, 3, 4]


def ids_of(model, questions) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Pairs of token ids, an answer each."""
    return [
        (prompt_ids(model, question.prompt), answer_ids(model, answer))
        for question in questions
        for answer in question.answers
    ]


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "gemma3", "windowed"])
def test_continuations_of_ids_score_as_answers_do(tiny, architecture):
    """The same prompts and answers, in any order, unedited and under edits."""
    model = tiny(architecture)
    pairs = ids_of(model, QUESTIONS)
    table = score_answers(model, QUESTIONS)
    found = score_continuations(model, pairs)
    assert found.index.tolist() == list(range(len(pairs)))
    columns = ["tokens", "sum", "mean", "top"]
    assert found.columns.tolist() == columns
    assert (found[columns] == table[columns]).all(axis=None)  # to the bit: the same rows

    context = ContextEdit("Imagine that Turkey lies far away.\n")
    edits = [*random_edits(model), context]
    order = np.random.default_rng(0).permutation(len(pairs))
    owners = [int(index) % (len(edits) + 1) - 1 for index in order]
    mixed = score_continuations(model, [pairs[index] for index in order], edits, owners)
    flat = [Question(q.prompt, (answer,)) for q in QUESTIONS for answer in q.answers]
    expected = score_answers(model, [flat[index] for index in order], edits, owners)
    np.testing.assert_allclose(mixed["sum"], expected["sum"], atol=1e-4)
    assert mixed["top"].tolist() == expected["top"].tolist()


def test_continuations_of_one_context_share_its_tokens(tiny, monkeypatch):
    """Four answers after 150 tokens: one row that holds the context once, as of one question."""
    model = tiny("llama")
    rows = []

    def packed(asked):
        rows.extend(_packed_rows(asked))
        return rows

    monkeypatch.setattr(module, "_packed_rows", packed)
    context = prompt_ids(model, "x" * 150)
    pairs = [(context, answer_ids(model, answer)) for answer in ("ab", "ac", "b", "cd")]
    score_continuations(model, pairs)
    assert [len(row.forest) for row in rows] == [len(context) + 3]  # the blank, a and c


def test_an_edits_text_stands_after_the_first_special_tokens(tiny):
    model = tiny("llama")
    begin = model.tokenizer.eos_token_id
    assert begin in model.tokenizer.all_special_ids
    edit = ContextEdit("So it is.\n")
    ids = tuple(model.tokenizer("the sea")["input_ids"])
    prefix_ids = tuple(model.tokenizer(edit.text)["input_ids"])
    prefixed = with_prefixes(model, [(begin, *ids), ids, ids], [edit], [0, 0, -1])
    assert prefixed == [
        (edit.text, (begin, *prefix_ids, *ids)),
        (edit.text, (*prefix_ids, *ids)),
        ("", ids),
    ]


def test_continuations_that_cannot_be_scored(tiny):
    model = tiny("llama")
    for pair in ([(), (1,)], [(1,), ()]):
        with pytest.raises(TokenError, match="continuation 1: it and its context need a token"):
            score_continuations(model, [((1,), (1,)), pair])
    with pytest.raises(TokenError, match="513 tokens exceed the context of 512"):
        score_continuations(model, [([1] * 512, (2, 3))])
    assert np.isfinite(score_continuations(model, [([1] * 512, (2,))])["sum"]).all()
    assert score_continuations(model, []).empty
