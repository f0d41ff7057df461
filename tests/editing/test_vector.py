"""The optimised vector against the plain path: one edit, whole sequences, the model's own forward."""

from __future__ import annotations

import pytest
import torch

from benchmarks.plain import plain_vector
from helpers.editing.app import App
from helpers.editing.contexts import ContextTemplates
from helpers.editing.presets import VectorHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.rows import edit_row, weighted_targets
from helpers.editing.vector import Vector, VectorEditor

CONTEXTS = ContextTemplates((("{}", "The sea. {}"),))
APP = App(0.3, 0.4, 0.5, margin=3.0)


class Optimising(VectorEditor):
    """Only the vector."""

    name = "vector"

    def __post_init__(self) -> None:
        """Without statistics."""

    def edit(self, requests):
        raise NotImplementedError


def found(model, requests, module, chosen, app=None) -> list[Vector]:
    return Optimising(model, chosen, CONTEXTS, {}, app).optimised(requests, module)


def settings(**more) -> VectorHyperparameters:
    """Every term weighs, and the clamp is narrow."""
    values = {
        "layers": (1,),
        "v_num_grad_steps": 7,
        "v_lr": 2.0,
        "v_weight_decay": 0.5,
        "clamp_norm_factor": 0.8,
        "kl_factor": 0.7,
        "context_template_length_params": (),
        "stop_threshold": 0.0,
    }
    return VectorHyperparameters(**{**values, **more})


@pytest.mark.parametrize("stop_on", ["nll", "total"])
@pytest.mark.parametrize("app", [None, APP], ids=["plain", "app"])
@pytest.mark.parametrize(("architecture", "place"), [("gptj", "block"), ("llama", "mlp")])
def test_a_batch_of_vectors_equals_a_plain_loop_for_each(
    tiny, requests, architecture, place, app, stop_on
) -> None:
    """The threshold lies so that edits leave the batch at different steps."""
    model = tiny(architecture)
    module = getattr(model.layout, place)(1)
    whole = [plain_vector(model, r, CONTEXTS, settings(), module, app).losses for r in requests]
    watched = [
        [terms["nll"] if stop_on == "nll" else sum(terms.values()) for terms in losses]
        for losses in whole
    ]
    falls = max(watched, key=lambda losses: losses[0] - min(losses))
    threshold = (falls[0] + min(falls)) / 2
    chosen = settings(stop_on=stop_on, stop_threshold=threshold)
    vectors = found(model, requests, module, chosen, app)
    bitten = []
    for request, vector in zip(requests, vectors, strict=True):
        delta, initial, _, losses = plain_vector(model, request, CONTEXTS, chosen, module, app)
        torch.testing.assert_close(vector.initial, initial, rtol=1e-4, atol=1e-4)
        assert vector.steps == len(losses) - 1
        for noted, expected in zip(vector.losses, losses, strict=True):
            assert noted == pytest.approx(expected, rel=1e-3, abs=1e-3)
        torch.testing.assert_close(vector.delta, delta, rtol=1e-2, atol=1e-2)
        bitten.append(delta.norm() > 0.99 * chosen.clamp_norm_factor * initial.norm())
    assert len({vector.steps for vector in vectors}) > 1
    assert any(bitten)


# A request with further prompts: one vector for all of them.
FRIEND, HOME = ("{}'s friend is", "Bo"), ("{} lives in", "Oslo")


def test_the_loss_is_the_mean_over_the_questions(tiny):
    model = tiny("llama")
    row = edit_row(model, EditRequest("Ada", *HOME, further=(FRIEND,)), contexts=CONTEXTS)
    assert sum(p.weight for p in row.target) == pytest.approx(1)
    alone = [
        edit_row(model, EditRequest("Ada", *question), contexts=CONTEXTS)
        for question in (HOME, FRIEND)
    ]
    assert len(row.target) == sum(len(each.target) for each in alone)
    halves = sorted(p.weight / 2 for each in alone for p in each.target)
    assert sorted(p.weight for p in row.target) == pytest.approx(halves)


def test_weights_of_each_choice_of_targets():
    request = EditRequest("Mars", "{} is near", "Venus", correct=("Earth", "Ceres", "Vesta"))
    found = {
        targets: dict(weighted_targets(request, targets)) for targets in ("new", "all", "all-sum")
    }
    assert found["new"] == {"Venus": 1}
    assert found["all"] == dict.fromkeys(("Venus", "Earth", "Ceres", "Vesta"), 1 / 4)
    assert found["all-sum"] == {"Venus": 1} | dict.fromkeys(("Earth", "Ceres", "Vesta"), 1 / 3)
    for targets in found:
        assert weighted_targets(EditRequest("Mars", "{} is", "Venus"), targets) == [("Venus", 1)]
