"""A request with further prompts: one vector for all of them."""

import pytest
import torch

from helpers.editing.contexts import ContextTemplates, read_at_subjects
from helpers.editing.request import EditRequest, RequestError
from helpers.editing.rows import edit_row, subject_prompts

FRIEND, HOME = ("{}'s friend is", "Bo"), ("{} lives in", "Oslo")


@pytest.fixture
def contexts() -> ContextTemplates:
    return ContextTemplates((("{}",), ("So it is. {}", "Then {}")))


def test_the_loss_is_the_mean_over_the_questions(tiny, contexts):
    language_model = tiny("llama")
    together = EditRequest("Ada", *HOME, further=(FRIEND,))
    row = edit_row(language_model, together, contexts)
    assert sum(p.weight for p in row.target) == pytest.approx(1)
    alone = [
        edit_row(language_model, EditRequest("Ada", *question), contexts)
        for question in (HOME, FRIEND)
    ]
    assert len(row.target) == sum(len(each.target) for each in alone)
    halves = sorted(p.weight / 2 for each in alone for p in each.target)
    assert sorted(p.weight for p in row.target) == pytest.approx(halves)


def test_prompts_that_begin_alike_have_one_key(tiny, contexts):
    language_model = tiny("llama")
    requests = [EditRequest("Ada", *question) for question in (HOME, FRIEND)]
    prompts = [subject_prompts(language_model, request, contexts) for request in requests]
    module = language_model.layout.mlp_out(1)
    first, second = read_at_subjects(language_model, prompts, inputs=[module])[module]
    assert torch.allclose(first, second, atol=1e-5)


def test_prompts_that_begin_otherwise_are_refused():
    with pytest.raises(RequestError, match="differ before the subject"):
        EditRequest("Ada", *HOME, further=(("The friend of {} is", "Bo"),))
    with pytest.raises(RequestError, match="exactly one"):
        EditRequest("Ada", *HOME, further=(("friend", "Bo"),))
    with pytest.raises(RequestError, match="target is empty"):
        EditRequest("Ada", *HOME, further=(("{} has", " "),))


def test_editors_without_a_vector_refuse_further_prompts():
    request = EditRequest("Ada", *HOME, further=(FRIEND,))
    with pytest.raises(RequestError, match="KN takes one prompt"):
        request.refuse_further("KN")
