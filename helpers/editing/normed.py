"""Residuals that pass a norm on their way into the residual stream (Gemma 3's MLPs).

MEMIT and AlphaEdit add their residuals to the MLP's output. Where a norm g * m / rms(m) follows, the
residual must be handed back through it. Otherwise it arrives at another length: with Gemma 3's gains
of up to 700, thousands of times off. The norm always gives g * u with rms(u) = 1. The nearest it can
come to a wanted t minimises |g * u - t| on that sphere: u = g t / (g^2 + mu), with the mu that gives u
its length.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

VERSION = 1  # raise it when other residuals are handed back
_HALVINGS = 100  # of the interval that mu is searched in


@torch.no_grad()
def before_norm(norm: nn.Module, outputs: Tensor, residuals: Tensor) -> Tensor:
    """What to add before ``norm`` so that what leaves it comes nearest to growing by ``residuals``.

    Args:
        norm: a root-mean-square norm with a gain per component, no offset.
        outputs: what enters the norm unedited, [d, n].
        residuals: wanted changes of what leaves it, [d, n].

    Returns:
        [d, n] in fp64. Of all outputs with the same image, the one with the old length is taken.
    """
    entering = outputs.double()
    weight = next(norm.parameters())
    gain = norm(torch.ones_like(weight)).double()[:, None]
    scale = entering.square().mean(0).sqrt()
    wanted = gain * entering / scale + residuals.double()
    return _nearest(gain, wanted) * scale - entering


def _nearest(gain: Tensor, wanted: Tensor) -> Tensor:
    """Columns u [d, n] of root mean square 1 that minimise |gain * u - wanted|."""
    aligned = gain * wanted
    low = torch.zeros_like(aligned[0])
    high = aligned.square().mean(0).sqrt()  # u is too short from here on
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        short = (aligned / (gain.square() + middle)).square().mean(0) < 1
        low, high = torch.where(short, low, middle), torch.where(short, middle, high)
    found = aligned / (gain.square() + high)
    # Short even at mu = 0: the direction is right, and the norm makes it longer.
    return found / found.square().mean(0).sqrt()
