"""Packed scoring equals one-by-one scoring on every architecture, with and without updates."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.editing.weight_edit import WeightEdit, apply
from helpers.models.tokens import TokenError, answer_ids, prompt_ids
from helpers.scoring import answers as module
from helpers.scoring.answers import Question, score_answers
from tests.scoring.random_edits import random_edits

ARCHITECTURES = ["gpt2", "gptj", "llama", "qwen2", "mistral", "gemma3"]
ARCHITECTURES += ["qwen3", "olmo2", "gpt_neox", "falcon", "phi3"]
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
