"""Bounds that constructors put on their values; every refusal names the value and what would do."""

from __future__ import annotations

from collections.abc import Iterable


def within(name: str, value: float, least: float, most: float | None = None) -> None:
    """Refuse a number outside ``least`` to ``most``, or above no bound.

    Raises:
        ValueError: it lies outside, or is no number.
    """
    if not value >= least or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name}: must be {bounds}, not {value}")


def one_of(name: str, value: object, known: Iterable[object]) -> None:
    """Refuse what is none of the known values.

    Raises:
        ValueError: the message names those that are known.
    """
    listed = tuple(known)
    if value not in listed:
        raise ValueError(f"{name}: {value!r} is none of {', '.join(map(str, listed))}")
