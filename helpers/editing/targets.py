"""Which answers an edit makes likely, and how much each weighs in its loss.

PEAK's fairer baselines (Table 5, ``+``) give a plain editor all correct answers O beside the new one,
o*. The paper does not say how they are weighted; with N answers in O:

    new       NLL(o*)
    all       (NLL(o*) + sum of NLL over O) / (N + 1)       o* weighs 1 / (N + 1)
    all-sum   NLL(o*) + mean of NLL over O                  o* weighs as much as O together
"""

from __future__ import annotations

from helpers.editing.request import EditRequest

TARGETS = ("new", "all", "all-sum")


def check_targets(targets: str) -> None:
    """Refuse an unknown choice of targets.

    Raises:
        ValueError: not one of ``TARGETS``.
    """
    if targets not in TARGETS:
        names = ", ".join(map(repr, TARGETS[:-1]))
        raise ValueError(f"targets must be {names} or {TARGETS[-1]!r}, not {targets!r}")


def weighted_targets(request: EditRequest, targets: str = "new") -> list[tuple[str, float]]:
    """The answers whose negative log-likelihood an edit lowers, each with its weight in the sum.

    Raises:
        ValueError: unknown ``targets``.
    """
    check_targets(targets)
    others = request.correct if targets != "new" else ()
    own = 1.0 if targets == "all-sum" else 1 / (1 + len(others))
    share = 1 / len(others) if targets == "all-sum" and others else own
    return [(request.target, own), *((answer, share) for answer in others)]
