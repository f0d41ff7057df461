"""KLoB's tables as rounded text, ours beside the paper's where the paper has numbers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from helpers.klob.construction.sentence_templates import load_templates
from helpers.klob.criteria import Baseline, baseline_gap, criteria_table, rsd_table
from helpers.klob.figures import LABELS, TITLES
from helpers.klob.metrics import headline
from helpers.klob.unit_sets import DEFAULT_SHARE
from helpers.records import skipped_words
from helpers.results.archive import Run
from helpers.results.text import model_words, published_table


def size_table(ours: Mapping[str, Mapping[str, float]], name: str) -> pd.DataFrame:
    """Relations, mean length and examples per subtask beside Table 1."""
    paper = published_table("klob_table_1").pivot(index="subtask", columns="metric", values="value")
    columns = ["relations", "average length", "examples"]
    both = {"paper": paper[columns], name: pd.DataFrame(ours).T.reindex(columns=columns)}
    text = pd.concat(both, axis=1).map(_number)
    text.columns = pd.Index([f"{column[1]}, {column[0]}" for column in text.columns])
    return text


def relation_table(ours: Mapping[str, int], name: str) -> pd.DataFrame:
    """Examples per relation of c beside Table 2, the paper's order."""
    paper = published_table("klob_table_2")
    labels = paper["keyword"] + "_(" + paper["relation"] + ")"
    columns = {"paper": paper["value"].astype(int).tolist(), name: [ours.get(k, 0) for k in labels]}
    return pd.DataFrame(columns, index=pd.Index(labels, name="relation"))


def slip_table() -> pd.DataFrame:
    """Relations whose printed templates have a slip, one wording as printed and corrected."""
    printed, corrected = load_templates("paper"), load_templates("corrected")
    rows = []
    for relation, wordings in printed.items():
        if wordings.slip:
            pairs = zip(wordings.templates, corrected[relation].templates, strict=True)
            rows.append((relation, *next(pair for pair in pairs if pair[0] != pair[1])))
    return pd.DataFrame(rows, columns=["relation", "printed", "corrected"])


def criteria_text(
    similarities: pd.DataFrame,
    sentences: pd.DataFrame,
    *,
    granularity: str,
    share: float = DEFAULT_SHARE,
    baseline: Baseline = "pairwise",
) -> pd.DataFrame:
    """Locator by criterion: the headline (clipped at 0), the unclipped mean and its interval.

    The last column counts examples of each criterion. ``baseline`` is Sim_all's: exact, or the
    paper's shortcut ``"mean_scores"``.
    """
    table = criteria_table(
        similarities, sentences, granularity=granularity, share=share, baseline=baseline
    )
    cells = [
        "n/a"
        if np.isnan(row["mean"])
        else f"{headline(row['mean']):.2f}  ({signed(row['mean'])}, {_range(row)})"
        for row in table.to_dict("records")
    ]
    wide = table.assign(cell=cells).pivot(index="locator", columns="criterion", values="cell")
    wide = wide.reindex(columns=list(TITLES))
    return named_rows(wide.assign(n=_counts(similarities, sentences)))


def null_means(null: pd.DataFrame, *, granularity: str, share: float) -> pd.DataFrame:
    """Means of the null over all examples: columns locator, criterion, mean (for figures)."""
    rows = null.query("granularity == @granularity and share == @share and shuffled == 'all'")
    return rows.rename(columns={"subtask": "criterion"})[["locator", "criterion", "mean"]]


def null_text(null: pd.DataFrame, *, subtask: str, granularity: str, share: float) -> pd.DataFrame:
    """Observed RSim beside its null over all facts and inside a relation, exact baseline."""
    mask = (null["subtask"] == subtask) & (null["granularity"] == granularity)
    rows = null[mask & (null["share"] == share)]
    cells = [
        f"{signed(row['mean'])} ± {row['standard_deviation']:.2f} (p = {row['p_value']:.3f})"
        for row in rows.to_dict("records")
    ]
    table = rows.assign(cell=cells)
    wide = table.pivot(index="locator", columns="shuffled", values="cell")
    wide = wide.reindex(columns=["all", "relation"])  # a run may lack all that were asked for
    observed = table[table["shuffled"] == "all"].set_index("locator")["observed"]
    columns = {
        "observed": observed.map(signed),
        "dealt among all facts": wide["all"],
        "dealt inside a relation": wide["relation"],
    }
    return named_rows(pd.DataFrame(columns))


def gap_text(similarities: pd.DataFrame, *, granularity: str, share: float) -> pd.DataFrame:
    """Sim_all and RSim under the paper's shortcut and exactly, and the gap in RSim."""
    table = baseline_gap(similarities, share=share).query("granularity == @granularity")
    return named_rows(table.drop(columns="granularity").set_index("locator").round(3))


def spread_text(sentences: pd.DataFrame, *, granularity: str) -> pd.DataFrame:
    """RSD of the scores, and of the scores over their own mean magnitude (ours)."""
    rows = sentences.query("granularity == @granularity")
    columns = {}
    for name, relative in (("RSD", False), ("RSD of relative spread", True)):
        table = rsd_table(rows, relative=relative).set_index("locator")
        columns[name] = [
            "n/a" if np.isnan(row["mean"]) else f"{signed(row['mean'])} ({_range(row)})"
            for row in table.to_dict("records")
        ]
    return named_rows(pd.DataFrame(columns, index=table.index))


def cost_text(cost: pd.DataFrame) -> pd.DataFrame:
    """Measured CPU seconds per sentence."""
    return named_rows(cost.set_index("locator")[["cpu_seconds", "threads"]]).round(3)


def made_of(run: Run) -> str:
    """What a published run's tables are of: model, data, and examples per locator."""
    by_counts: dict[str, list[str]] = {}
    for name, settings in run.about.settings.items():
        if "counts" in settings:  # a locator's
            counts = ", ".join(f"{n or 'all'} {part}" for part, n in settings["counts"].items())
            counts += skipped_words(settings.get("skipped", 0))
            by_counts.setdefault(counts, []).append(name)
    most, *others = sorted(by_counts, key=lambda counts: -len(by_counts[counts]))
    fewer = "".join(f"; {', '.join(by_counts[counts])}: {counts}" for counts in others)
    return f"{_made_with(run)}, {most}{fewer}"


def edits_of(run: Run, *, facts: int) -> str:
    """What a published run's edits at every layer are of."""
    skipped = skipped_words(run.about.settings.get("edits", {}).get("skipped", 0))
    return f"{_made_with(run)}; ROME at every layer, {facts} facts{skipped}"


def _made_with(run: Run) -> str:
    source = run.about.source
    words = model_words(source["model"])
    return f"ours: {words}, {source['dtype']} on {source['device']}, {source['dataset']}"


def _counts(similarities: pd.DataFrame, sentences: pd.DataFrame) -> pd.Series:
    """Examples of c, r and u behind each locator's row, "200, 100, 200"."""
    compared = similarities[["locator", "subtask", "example"]]
    random = sentences[sentences["subtask"] == "unbiasedness"][["locator", "subtask", "example"]]
    counts = pd.concat([compared, random]).groupby(["locator", "subtask"])["example"].nunique()
    wide = counts.unstack().reindex(columns=list(TITLES)).fillna(0).astype(int)
    return wide.astype(str).agg(", ".join, axis=1)


def signed(value: float) -> str:
    """Two decimals with their sign; a rounded zero is always positive."""
    return f"{round(value, 2) + 0.0:+.2f}"


def _number(value: float) -> str:
    if pd.isna(value):
        return ""
    return f"{value:,.0f}" if value == round(value) else f"{value:.2f}"


def _range(row: Mapping[Hashable, Any]) -> str:
    return f"{signed(row['low'])} … {signed(row['high'])}"


def named_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Rows in the order of the locators, under their printed names."""
    known = [name for name in LABELS if name in table.index]
    ordered = table.loc[known]
    ordered.index = pd.Index([LABELS[name] for name in ordered.index], name="locator")
    ordered.columns.name = None
    return ordered
