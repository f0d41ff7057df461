"""KN: what it attributes, chooses and writes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from helpers.editing.contexts import ContextTemplates
from helpers.editing.kn import Kn, KnHyperparameters
from helpers.editing.request import EditRequest, RequestError
from helpers.locating.slots import greedy_tokens
from helpers.models.tokens import answer_ids, prompt_ids


def kn(model, contexts=("{}",), **more: Any) -> Kn:
    settings = KnHyperparameters(**{"steps": 4, **more})
    return Kn(model, settings, ContextTemplates((tuple(contexts),)))


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_the_update_is_one_vector_in_the_chosen_columns(tiny, requests, architecture) -> None:
    model = tiny(architecture)
    (update,) = kn(model, lambda_old=2.0, lambda_new=3.0).edit(requests[:1])
    new = list(answer_ids(model, requests[0].target))
    prompt = prompt_ids(model, requests[0].text)
    (old,) = greedy_tokens(model, [prompt], len(new))
    embeddings = model.network.get_input_embeddings().weight
    vector = 3 * embeddings[new].sum(0) - 2 * embeddings[list(old)].sum(0)
    chosen = update.diagnostics["neurons"]
    assert chosen
    for module, delta in update.items():
        layer = model.layout.layer_of(module)
        columns = [neuron for place, neuron in chosen if place == layer]
        expected = torch.zeros(delta.shape)
        expected[:, columns] = vector[:, None]
        torch.testing.assert_close(delta.dense(), expected)
    layers = {model.layout.layer_of(module) for module in update}
    assert layers == {layer for layer, _ in chosen}


def test_coarse_and_refined_sets(tiny) -> None:
    editor = kn(tiny("llama"), adaptive_threshold=0.5, p=0.4)
    one = torch.tensor([[10.0, 5.0, 5.1], [-20.0, 6.0, 0.0]])  # [layers, neurons]
    assert editor.neurons(one[None]).tolist() == [[True, False, True], [False, True, False]]
    two = torch.tensor([[10.0, 0.0, 0.0], [0.0, 0.0, 9.0]])
    three = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    # In more than 40 % of three prompts: in at least two.
    refined = editor.neurons(torch.stack([one, two, three]))
    assert refined.tolist() == [[True, False, False], [False, True, False]]
    assert not editor.neurons(-one.abs()[None]).any()
    # The threshold is one for all layers, and 40 % of five prompts are not more than 40 %.
    low = torch.tensor([[10.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    assert editor.neurons(low[None]).tolist() == [[True, False, False], [False, False, False]]
    refined = editor.neurons(torch.stack([low, low, three, three, three]))
    assert refined.tolist() == [[False, False, False], [False, True, False]]


def test_the_answer_known_so_far_is_asked_for(tiny, requests) -> None:
    unknown = EditRequest("Mars", "{} is near", "Venus", record="case 7")
    with pytest.raises(RequestError, match=r"record 'case 7': .* first of `correct`"):
        kn(tiny("llama")).edit([requests[0], unknown])
