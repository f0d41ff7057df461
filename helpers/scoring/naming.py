"""The probability that a model's next words name an entity, by any of its accepted names.

Each name's tokens are one way to go on after a prompt. Two names exclude each other unless the tokens of
one begin those of the other, in which case the shorter one covers both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from helpers.models.language_model import LanguageModel
from helpers.models.tokens import answer_ids


def exclusive(language_model: LanguageModel, names: Sequence[str]) -> list[int]:
    """Places of the names that no other name begins, token by token; of equal names the first.

    The names are given without a leading blank.

    Raises:
        TokenError: a blank name.
    """
    ids = [answer_ids(language_model, name) for name in names]
    kept = []
    for place, own in enumerate(ids):
        others = [other for i, other in enumerate(ids) if i != place and own[: len(other)] == other]
        first = own not in ids[:place]
        if first and all(other == own for other in others):
            kept.append(place)
    return kept


def log_naming(sums: ArrayLike) -> float:
    """Log-probability of naming, from those of names that exclude each other (natural logarithm).

    At most 0, although rounding may carry a sum of probabilities above 1; NaN where one is NaN.
    """
    given = np.asarray(sums, dtype=float)
    return float("nan") if np.isnan(given).any() else float(min(np.logaddexp.reduce(given), 0.0))
