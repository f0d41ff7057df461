"""How well keys tell paraphrases from locality prompts: areas under the curve, and shares that are let in."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from helpers.peak.gates import area_under_curve
from helpers.results.archive import Run
from helpers.results.notes import ShownTable, with_note
from helpers.results.statistics import LEVEL, Estimate, Numbers, share_interval
from helpers.results.text import caption, in_points, with_interval

KEY_LABELS = {
    "last": "last token (GRACE)",
    "subject": "subject's token",
    "mask": "mask overlap (MEMOIR)",
    "hidden": "hidden-state cosine",
    "bm25": "BM25",
    "bm25-subject": "BM25, subject named",
}
LET_IN = 0.05  # of the locality prompts, at the threshold that shares are compared at
_RESAMPLES = 2000


def clustered_area(paraphrases: pd.DataFrame, others: pd.DataFrame) -> Estimate:
    """The area under the curve with the 95 % bootstrap interval over facts (percentiles).

    A fact that is drawn brings all its prompts. Both tables have ``case_id`` and ``nearness``; which facts
    are stored stays the same.
    """
    first = paraphrases["nearness"].to_numpy(float)
    second = others["nearness"].to_numpy(float)
    case_ids = np.union1d(paraphrases["case_id"], others["case_id"])
    area = area_under_curve(first, second)
    if not (len(first) and len(second)) or len(case_ids) < 2:
        return Estimate(area, float("nan"), float("nan"), len(case_ids))
    wins = (first[:, None] > second) + 0.5 * (first[:, None] == second)  # [paraphrases, others]
    of_first = _membership(paraphrases, case_ids)
    of_second = _membership(others, case_ids)
    wins_of_facts = of_first.T @ wins @ of_second  # [facts, facts]
    generator = np.random.default_rng(0)
    fact_count = len(case_ids)
    weights = generator.multinomial(fact_count, np.full(fact_count, 1 / fact_count), _RESAMPLES)
    resampled_wins = ((weights @ wins_of_facts) * weights).sum(1)
    resampled_pairs = (weights @ of_first.sum(0)) * (weights @ of_second.sum(0))
    areas = resampled_wins[resampled_pairs > 0] / resampled_pairs[resampled_pairs > 0]
    low, high = np.quantile(areas, [LEVEL / 2, 1 - LEVEL / 2])
    return Estimate(area, float(low), float(high), fact_count)


def _membership(table: pd.DataFrame, case_ids: Numbers) -> Numbers:
    """1 where a row is a fact's [rows, facts]."""
    return (table["case_id"].to_numpy()[:, None] == case_ids).astype(np.float64)


def key_measures(table: pd.DataFrame) -> pd.DataFrame:
    """Measures of one key, a row a layer: estimates of the columns of ``gate_audit_table``."""
    rows: dict[int, dict[str, Estimate]] = {}
    for layer, of_layer in table.groupby("layer"):
        paraphrases = of_layer[of_layer["role"] == "paraphrase"]
        others = of_layer[of_layer["role"] == "locality"]
        is_own = paraphrases["entry"] == paraphrases["case_id"]
        threshold = np.quantile(others["nearness"], 1 - LET_IN) if len(others) else np.nan
        is_let_in = (paraphrases["nearness"] > threshold).astype(float)
        if others.empty:
            is_let_in[:] = np.nan  # nothing is to be left alone
        by_fact = paraphrases.assign(own=is_own, let_in=is_let_in, own_let_in=is_own * is_let_in)
        shares = by_fact.groupby("case_id")[["own", "let_in", "own_let_in"]].mean()
        rows[int(str(layer))] = {
            "AUC": clustered_area(paraphrases, others),
            "own first": share_interval(shares["own"]),
            "at 5 %": share_interval(shares["let_in"]),
            "own at 5 %": share_interval(shares["own_let_in"]),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def measures_of(run: Run) -> Iterator[tuple[str, int, pd.Series]]:
    """Key, layer and measures of every table of a run."""
    for key in KEY_LABELS:
        if key in run.tables:
            for layer, measures in key_measures(run.tables[key]).iterrows():
                yield key, int(str(layer)), measures


def gate_audit_table(*runs: Run) -> ShownTable:
    """Every key of every run: AUC, and shares of paraphrases in percent, with 95 % intervals."""
    rows = []
    for run in runs:
        for key, layer, measures in measures_of(run):
            row = {
                "model": run.about.source["model"],
                "data": run.about.source["dataset"],
                "key": KEY_LABELS[key],
                "layer": "–" if layer < 0 else str(layer),
                "AUC": with_interval(measures["AUC"]),
            }
            for name in ("own first", "at 5 %", "own at 5 %"):
                row[name] = in_points(measures[name])
            rows.append({**row, "n": measures["AUC"].n})
    note = (
        "n facts stored together. AUC: a paraphrase is nearer to a stored fact than a locality prompt"
        " (bootstrap over facts); own first: paraphrases whose own fact is the nearest; at 5 %: paraphrases"
        " that pass where 5 % of the locality prompts do; own at 5 %: those of them whose own fact is the"
        " nearest"
    )
    return with_note(pd.DataFrame(rows), note)


def audit_caption(run: Run) -> str:
    """What a run's tables are of."""
    return caption(run.about.source, str(run.about.source["dataset"]), sample_words(run))


def sample_words(run: Run) -> str:
    """How many facts of its data a run has, and how they were drawn."""
    return f"{run.about.caption['facts']} facts, drawn by seed {run.about.caption['seed']}"
