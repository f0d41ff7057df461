"""Random updates of every kind of delta."""

from __future__ import annotations

import torch

from helpers.editing.interventions import Dense, LowRank, Masked
from helpers.editing.weight_edit import WeightEdit


def random_edits(model) -> list[WeightEdit]:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * 0.3

    layout = model.layout
    d, f = layout.hidden_size, layout.intermediate_size
    first = model.weight(layout.mlp_in(1)[0]).shape
    low = LowRank(normal(d, 1), normal(f, 1))
    return [
        WeightEdit(
            {layout.mlp_out(1): low, layout.mlp_out(2): LowRank(normal(d, 1), normal(f, 1))}
        ),
        WeightEdit({layout.mlp_out(1): LowRank(normal(d, 3), normal(f, 3))}),
        WeightEdit(
            {
                layout.mlp_out(0): LowRank(
                    normal(d, 1), torch.eye(f)[:, [1, 5, 7]].sum(1, keepdim=True)
                )
            }
        ),
        WeightEdit({layout.mlp_out(2): Masked.from_mask(low, normal(d, f) > 0)}),
        WeightEdit(
            {layout.mlp_out(1): Dense(normal(d, f)), layout.mlp_in(1)[0]: Dense(normal(*first))}
        ),
    ]
