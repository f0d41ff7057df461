"""APP's objectives on numbers worked out by hand, and what they do not touch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.editing.app import AnswerScores, App, app_terms
from helpers.editing.request import EditRequest

REQUEST = EditRequest("s", "{} is", "t", ("a", "b", "c"), ("x", "y"))


def scores(*values: float) -> AnswerScores:
    return AnswerScores(torch.tensor([values]), torch.ones(1, len(values), dtype=torch.bool))


def test_terms_by_hand():
    # correct -1, -4 (before -2, -3); false -2, -6 (before -3, -5); margin 2
    terms = app_terms(
        scores(-1, -4),
        scores(-2, -6),
        torch.tensor([[-2.0, -3.0]]),
        torch.tensor([[-3.0, -5.0]]),
        2.0,
    )
    # pairs: 2+1-2=1, 2+1-6<0, 2+4-2=4, 2+4-6=0 -> mean 1.25; sunk: 0, 1; risen: 1, 0
    assert terms.tolist() == [[1.25, 0.5, 0.5]]
    assert App(0.2, 0.4, 0.6).total(terms).item() == pytest.approx(0.25 + 0.2 + 0.3)


def test_padding_and_empty_lists_count_for_nothing():
    padded = AnswerScores(torch.tensor([[-1.0, 99.0]]), torch.tensor([[True, False]]))
    none = AnswerScores(torch.zeros(1, 0), torch.zeros(1, 0, dtype=torch.bool))
    before = torch.tensor([[-1.0, 0.0]])
    assert app_terms(padded, none, before, torch.zeros(1, 0), 2.0).tolist() == [[0.0, 0.0, 0.0]]


@given(st.integers(0, 4))
def test_neighbours_keeps_the_first_answers(k):
    assert App(neighbours=k).answers(REQUEST) == (REQUEST.correct[:k], REQUEST.false[:k])
    assert App(neighbours=k).inert == (k == 0)


def test_all_answers_by_default_and_none_when_inert():
    assert App().answers(REQUEST) == (REQUEST.correct, REQUEST.false)
    assert App(0, 0, 0).answers(REQUEST) == ((), ())
    with pytest.raises(ValueError, match="negative"):
        App(alpha=-1)
    with pytest.raises(ValueError, match="neighbours"):
        App(neighbours=-1)
