"""The caller's random numbers after a seeded block."""

from __future__ import annotations

import torch

from helpers.models.shapes import seeded

CPU = torch.device("cpu")


def test_a_seed_holds_inside_and_the_caller_goes_on_after():
    torch.manual_seed(1)
    expected = torch.rand(4)
    torch.manual_seed(1)
    first = torch.rand(2)
    with seeded(7, CPU):
        drawn = torch.rand(3)
    with seeded(7, CPU):
        assert torch.equal(drawn, torch.rand(3))
    assert torch.equal(torch.cat([first, torch.rand(2)]), expected)


def test_making_a_model_or_templates_leaves_the_callers_stream_alone(tiny, tmp_path, monkeypatch):
    from helpers.editing.contexts import context_templates

    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path))
    context_templates(tiny("llama"), [(9, 5)], grouped=False)
    assert torch.equal(torch.rand(2), expected)
