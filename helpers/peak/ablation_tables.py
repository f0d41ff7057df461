"""The ablations' tables, from whatever studies are finished; every row says its number of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from helpers.editing.editors import OBJECTIVES, SYMBOLS, Variant, method_label
from helpers.peak.metrics_table import metrics_table, summarise
from helpers.peak.said_metrics import MEASURES, rank_correlation, said_metrics
from helpers.peak.stored_scores import Studies
from helpers.peak.tables import paired_contrast, percent_cell
from helpers.results.statistics import LEVEL, holm
from helpers.results.text import published_table

HARD_METRICS = ("ES", "GS", "LS", "AFF_hard", "ANF_hard")
PAIRS = {
    "AFF_hard": ("list_forgetting", "share_forgetting"),
    "ANF_hard": ("list_noise", "share_noise"),
}
ByVariant = Mapping[Variant, pd.DataFrame]
"""For each variant one row of metrics per record."""


def variant_metrics(scores: Mapping[str, pd.DataFrame]) -> dict[Variant, pd.DataFrame]:
    """``metrics_table`` of every variant's stored scores."""
    return {Variant.parse(name): metrics_table(table) for name, table in scores.items()}


def finished(metrics: ByVariant, variants: Iterable[Variant]) -> dict[Variant, pd.DataFrame]:
    """Those of the variants that are at hand, in the order given, on the records all of them have."""
    chosen = {variant: metrics[variant] for variant in variants if variant in metrics}
    common = set.intersection(*(set(table.index) for table in chosen.values())) if chosen else set()
    return {variant: table[table.index.isin(common)] for variant, table in chosen.items()}


def by_label(metrics: ByVariant) -> dict[str, pd.DataFrame]:
    """The same under the labels tables and figures show."""
    return {variant.label: table for variant, table in metrics.items()}


def with_field(
    metrics: ByVariant, editor: str, field: str, *, margin: float | None = None
) -> dict[Variant, pd.DataFrame]:
    """The variants of an editor's APP in one field, by value, on the records all of them have.

    The unchanged method is among them: at factor 1; for the margin at ``margin``, the method's own
    (see ``Studies.margin``), and for the neighbours last (all of them).

    Raises:
        ValueError: ``margin`` is missing where the field is the margin.
    """
    whole = Variant(f"{editor}+app")
    places = {v: v.value for v in metrics if v.method == whole.method and v.field == field}
    if whole in metrics:
        if field == "margin" and margin is None:
            raise ValueError(f"give the margin of {whole} itself: stored.margin({editor!r})")
        places[whole] = {"margin": margin or 0.0, "neighbours": float("inf")}.get(field, 1.0)
    return finished(metrics, sorted(places, key=lambda v: places[v]))


def variants_table(
    metrics: ByVariant,
    *,
    reference: Variant | None = None,
    columns: Sequence[str] = HARD_METRICS,
    intervals: bool = True,
) -> pd.DataFrame:
    """Mean percentage ± half width of the 95 % interval of each metric, variants as rows, as text.

    Args:
        reference: mark with ``*`` what differs from this variant on the same records, by the test
            that fits the metric (``tables.paired_contrast``, p < 0.05, no correction for the number
            of comparisons).

    Returns:
        Index label; a column ``n`` (records) and one per metric, with the number of records in
        parentheses where a metric is undefined for some.
    """
    rows = {}
    for variant, table in metrics.items():
        other = None if reference in (None, variant) else metrics.get(reference)
        cells = _cells(table, columns, intervals=intervals)
        marks = [_differs(table, other, metric) for metric in columns]
        rows[variant.label] = [str(len(table)), *map(str.__add__, cells, marks)]
    return pd.DataFrame.from_dict(rows, orient="index", columns=["n", *columns])


def coefficients_table(settings: Mapping[str, Any], *, paper_model: str) -> pd.DataFrame:
    """APP's coefficients in force beside the paper's (PEAK, Table 8; the margin is Appendix B.2's).

    Args:
        settings: of the stored variants, by name.
        paper_model: the paper's model to stand beside.
    """
    published = published_table("peak_table_8")
    wide = published[published["model"] == paper_model].pivot(
        index="method", columns="metric", values="value"
    )
    names = list(OBJECTIVES)
    rows = []
    for name, values in settings.items():
        variant = Variant.parse(name)
        app = values.get("app")
        if variant.field or not app:
            continue
        rows.append((variant.label, "ours", *(f"{app[key]:g}" for key in (*names, "margin"))))
        paper = wide.reindex(["FT+APP" if variant.editor.startswith("ft") else variant.label])
        if paper.notna().to_numpy().any():
            numbers = (f"{value:g}" for value in paper.reindex(columns=names).iloc[0])
            rows.append((variant.label, f"paper ({paper_model})", *numbers, "2"))
    columns = ["method", "source", *(SYMBOLS[name] for name in (*names, "margin"))]
    return pd.DataFrame(rows, columns=columns).set_index(["method", "source"])


def sequence_metrics(stored: Studies) -> dict[tuple[str, int], pd.DataFrame]:
    """Metrics of all edited records after n edits, by method and n."""
    ordered = dict(sorted(stored.sequences.items(), key=lambda item: item[0][1]))
    return {place: metrics_table(table) for place, table in ordered.items()}


def sequence_table(
    metrics: Mapping[tuple[str, int], pd.DataFrame], *, columns: Sequence[str] = HARD_METRICS
) -> pd.DataFrame:
    """Mean percentage ± half width of the 95 % interval after n edits, as text; n is also the number
    of records behind it, unless another is said.
    """
    methods = list(dict.fromkeys(method for method, _ in metrics))
    rows = [
        (method_label(method), edits, *_cells(table, columns))
        for method in methods
        for (each, edits), table in metrics.items()
        if each == method
    ]
    names = ["method", "edits", *columns]
    return pd.DataFrame(rows, columns=names).set_index(["method", "edits"])


def said_by_state(stored: Studies) -> dict[str, pd.DataFrame]:
    """Measures of what the model says after each method's edits, against the unedited model.

    ``again`` is the unedited model with other random numbers: what these measures show where
    nothing was edited.
    """
    if "before" not in stored.said:
        return {}
    before = stored.said["before"]
    others = {state: table for state, table in stored.said.items() if state != "before"}
    return {state: said_metrics(before, table) for state, table in others.items()}


def said_table(measures: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Mean percentage ± half width of the 95 % interval of the measures of ``said_by_state``, states as
    rows, as text.
    """
    rows = {
        _state_label(state): [len(table), *_cells(table, MEASURES)]
        for state, table in measures.items()
    }
    columns = ["n", *(name.replace("_", " ") for name in MEASURES)]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


def said_beside_factors(stored: Studies) -> pd.DataFrame:
    """AFF and ANF (hard) of the edit prompt beside the measures of what is said, record by record.

    Returns:
        method and its label, case_id, AFF_hard, ANF_hard and ``MEASURES``; methods without stored
        scores are left out.
    """
    tables = []
    for method, said in said_by_state(stored).items():
        if method in stored.scores:
            scores = stored.scores[method]
            factors = metrics_table(scores[scores["role"] != "paraphrase"])[list(PAIRS)]
            joined = factors.join(said[list(MEASURES)], how="inner").reset_index()
            tables.append(joined.assign(method=method, label=method_label(method)))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def correlation_table(beside: pd.DataFrame) -> pd.DataFrame:
    """Spearman's rank correlation over records of each factor with its counterparts, as text.

    The p-values are corrected for all tests of the table (Holm 1979).
    """
    groups = dict(list(beside.groupby("label", sort=False)))
    found = {
        (method, f"{factor[:3]} ~ {measure.replace('_', ' ')}"): rank_correlation(
            table[factor], table[measure]
        )
        for method, table in groups.items()
        for factor, measures in PAIRS.items()
        for measure in measures
    }
    corrected = holm([each.p_value for each in found.values()])
    texts = [
        f"{each.rho:.2f} (p {p_value:.3f}, n {each.n})"
        for each, p_value in zip(found.values(), corrected, strict=True)
    ]
    names = pd.MultiIndex.from_tuples(found, names=["method", "pair"])
    return pd.Series(texts, index=names).unstack().loc[list(groups)]


def _cells(table: pd.DataFrame, columns: Sequence[str], *, intervals: bool = True) -> list[str]:
    summary = summarise(table[list(columns)])
    return [percent_cell(summary, name, len(table), intervals=intervals) for name in columns]


def _differs(table: pd.DataFrame, reference: pd.DataFrame | None, metric: str) -> str:
    if reference is None:
        return ""
    return "*" if paired_contrast(metric, reference, table).p_value < LEVEL else ""


def _state_label(state: str) -> str:
    return "unedited, again" if state == "again" else method_label(state)
