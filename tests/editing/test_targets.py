"""How the answers of a request weigh in an edit's loss."""

from __future__ import annotations

import pytest

from helpers.editing.request import EditRequest
from helpers.editing.rows import TARGETS, weighted_targets


def test_weights_of_each_choice():
    request = EditRequest("Mars", "{} is near", "Venus", correct=("Earth", "Ceres", "Vesta"))
    found = {targets: dict(weighted_targets(request, targets)) for targets in TARGETS}
    assert found["new"] == {"Venus": 1}
    assert found["all"] == dict.fromkeys(("Venus", "Earth", "Ceres", "Vesta"), 1 / 4)
    assert found["all-sum"] == {"Venus": 1} | dict.fromkeys(("Earth", "Ceres", "Vesta"), 1 / 3)


@pytest.mark.parametrize("targets", TARGETS)
def test_without_further_answers_all_choices_are_one(targets):
    alone = EditRequest("Mars", "{} is near", "Venus")
    assert weighted_targets(alone, targets) == [("Venus", 1)]


def test_an_unknown_choice_is_refused():
    with pytest.raises(ValueError, match="targets must be one of new, all, all-sum, not 'both'"):
        weighted_targets(EditRequest("Mars", "{} is near", "Venus"), "both")
