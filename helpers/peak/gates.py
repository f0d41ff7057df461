"""How often an edit that acts after some prompts only acts: where it should, and where it should not.

Such an edit (a memory, a codebook) recognises a prompt, or it leaves the model as it is. Whatever it does to
answers, its success at paraphrases is bounded by how many it recognises, and its locality by how many other
prompts it leaves alone.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from helpers.editing.editors import EDITORS
from helpers.peak.tables import scores_of
from helpers.results.archive import Run
from helpers.results.notes import ShownTable, with_note, with_relations
from helpers.results.statistics import share_interval
from helpers.results.text import in_points

# Labels of the editors of this kind that were run on PEAK's records.
WITHOUT_WEIGHTS = tuple(
    EDITORS[name].label for name in ("in-context", "ike", "memory-bm25", "memory-hidden", "grace")
)
ROLES = {"edit": "own prompt", "paraphrase": "paraphrases", "locality": "locality prompts"}


def recognised_prompts(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each record (with its relation), role and prompt of a score table.

    ``entry`` is the statement or key that the edit acts by, -1 where it does nothing; ``nearness`` is that of
    the nearest one, higher where it is nearer.
    """
    keys = ["case_id", "relation", "role", "prompt_index"]
    return table.groupby(keys, observed=True, dropna=False)[["entry", "nearness"]].first()


def area_under_curve(positive: np.ndarray, negative: np.ndarray) -> float:
    """The probability that a positive value exceeds a negative one, ties counted as half."""
    if not len(positive) or not len(negative):
        return float("nan")
    ranks = rankdata(np.concatenate([positive, negative]))
    rank_sum = ranks[: len(positive)].sum() - len(positive) * (len(positive) + 1) / 2
    return float(rank_sum / (len(positive) * len(negative)))


def recognised_at(nearness: np.ndarray, others: np.ndarray, share: float = 0.05) -> float:
    """The share of prompts nearer than all but ``share`` of the others: what a fair threshold lets in."""
    if not len(nearness) or not len(others):
        return float("nan")
    return float((nearness > np.quantile(others, 1 - share)).mean())


def gate_table(run: Run) -> ShownTable:
    """Share of prompts, in percent, after which an edit acts, by method and kind of prompt, with intervals.

    A record's share is the mean over its prompts. ``AUC`` is the probability that a paraphrase is nearer to
    the edit than a locality prompt; ``at 5 %`` the share of paraphrases that are recognised by the threshold
    that 5 % of the locality prompts pass.
    """
    rows = {}
    samples: list[pd.Series] = []
    for method, table in scores_of(run).items():
        if "entry" not in table:
            continue
        prompts = recognised_prompts(table)
        by_role = dict(iter(prompts.groupby("role")))
        row = {"records": str(table["case_id"].nunique())}
        for role, title in ROLES.items():
            of_role = by_role.get(role, prompts[:0])
            acts = (of_role["entry"] >= 0).groupby(["case_id", "relation"], dropna=False).mean()
            row[title] = in_points(share_interval(acts))
            samples.append(acts)
        paraphrases, others = (
            by_role.get(role, prompts[:0])["nearness"].to_numpy(float)
            for role in ("paraphrase", "locality")
        )
        row["AUC"] = f"{area_under_curve(paraphrases, others):.2f}"
        row["at 5 %"] = f"{100 * recognised_at(paraphrases, others):.0f}"
        rows[method] = row
    shown = pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
    note = (
        "prompts after which the edit acts, in percent of a record's. AUC: a paraphrase is nearer to the edit"
        " than a locality prompt; at 5 %: paraphrases that pass where 5 % of the locality prompts do"
    )
    return with_note(with_relations(shown, samples), note)
