"""What AFF and ANF would be under other choices that the stored scores allow (PEAK, Section 5.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from helpers.peak.metrics_table import Normalise, metric_interval, metrics_table
from helpers.results.text import in_points

HARD_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5)
_WORDS: dict[Normalise, str] = {"mean": "geometric mean", "sum": "whole answer"}


def other_choices(
    scores: Mapping[str, pd.DataFrame],
    *,
    metrics: Sequence[str] = ("AFF_hard", "ANF_hard"),
    hard_shares: Sequence[float] = HARD_SHARES,
) -> pd.DataFrame:
    """Metrics under the filter's other thresholds, and with P = exp(sum), as text.

    Args:
        scores: score tables by method.
        metrics: columns of ``metrics_table``.
        hard_shares: thresholds of ``keep_answers``; 0.2 is the authors' and the default. Under
            P = exp(sum) the default alone is used.

    Returns:
        Index threshold and P; ``n``, the records that count, and one column per method and metric.
    """
    choices: list[tuple[float, Normalise]] = [
        *((share, "mean") for share in hard_shares),
        (0.2, "sum"),
    ]
    rows = {}
    for share, normalise in choices:
        cells, counts = {}, set()
        for method, table in scores.items():
            by_record = metrics_table(table, hard_share=share, normalise=normalise)
            for metric in metrics:
                estimate = metric_interval(metric, by_record[metric].to_numpy())
                counts.add(estimate.n)
                cells[f"{method} {metric}"] = in_points(estimate)
        rows[share, _WORDS[normalise]] = {"n": "–".join(map(str, sorted(counts))), **cells}
    table = pd.DataFrame.from_dict(rows, orient="index")
    return table.rename_axis(["threshold", "P"])
