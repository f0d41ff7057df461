"""Does an edit leak to other subjects? Measured on the stored scores of ``leaks_run``.

The edit's prompt is asked about other subjects of its relation. Each of them has the similarity of its key
with the edited one, the plain cosine and the whitened one (``leaks_run``), and the change of o*.

*figures/data/leaks/<model>_<dataset>* holds a table for each method: of each record (``case_id``) and subject
(``other``, the number of the record that it is from) the score of o* before and after, and both cosines.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from helpers.editing.editors import method_label
from helpers.results.archive import Run
from helpers.results.notes import ShownTable, with_note, with_power, with_relations
from helpers.results.statistics import detectable, interval, mean_above
from helpers.results.text import in_points, with_interval, with_p_values

SIMILARITIES = ("whitened", "cosine")
BINS = (-1.0, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0)  # of a similarity


def leaks_of_run(run: Run) -> dict[str, pd.DataFrame]:
    """By method a row a record and other subject: the change of o*'s score and probability, both cosines.

    Columns: ``case_id``, ``relation``, ``change`` in nats a token, ``probability`` (after - before),
    ``whitened``, ``cosine``. The edited subject itself has ``is_own``.
    """
    relations = run.about.caption.get("relations", {})
    leaks = {}
    for key in run.keys:
        table = run.tables[str(key)]
        before = table["sum_before"].astype(float) / table["tokens"]
        after = table["sum_after"].astype(float) / table["tokens"]
        leaks[key.method] = pd.DataFrame(
            {
                "case_id": table["case_id"],
                "relation": table["case_id"].astype(str).map(relations),
                "is_own": table["case_id"] == table["other"],
                "change": after - before,
                "probability": np.exp(after) - np.exp(before),
                **{name: table[name].astype(float) for name in SIMILARITIES},
            }
        )
    return leaks


def slope_by_record(leaks: pd.DataFrame, similarity: str) -> pd.Series:
    """Of each record Spearman's rank correlation of change and similarity over its other subjects.

    NaN of fewer than five subjects.
    """
    others = leaks[~leaks["is_own"]]
    correlations = {}
    for (case_id, relation), of_record in others.groupby(["case_id", "relation"], dropna=False):
        if len(of_record) >= 5:
            ranks = of_record[["change", similarity]].rank()
            correlations[case_id, relation] = ranks["change"].corr(ranks[similarity])
    index = pd.MultiIndex.from_tuples([*correlations], names=["case_id", "relation"])
    return pd.Series([*correlations.values()], index=index, dtype=float)


def leak_table(run: Run) -> ShownTable:
    """How much o* rises at other subjects, and whether it follows the similarity of keys, a row a method.

    Means over records of each record's mean over subjects; ``p``: rank correlation with the whitened cosine,
    by record, against none; ``Holm`` corrects for all methods.
    """
    rows = []
    p_values = []
    correlations = []
    for method, leaks in leaks_of_run(run).items():
        others = leaks[~leaks["is_own"]]
        means_of_others = others.groupby(["case_id", "relation"], dropna=False).mean()
        of_own_subject = leaks.loc[leaks["is_own"], "probability"]
        whitened = slope_by_record(leaks, "whitened")
        cosine = slope_by_record(leaks, "cosine")
        p_values.append(mean_above(whitened, 0.0, "number").p_value)
        correlations.append(whitened)
        rise = interval(means_of_others["probability"], "number")
        change = interval(means_of_others["change"], "number")
        rows.append(
            {
                "method": method_label(method),
                "records": len(of_own_subject),
                "subjects": len(others),
                "own subject, P(o*)": f"{100 * of_own_subject.mean():+.1f}",
                "others, P(o*)": in_points(rise, signed=True),
                "others, nats": with_interval(change, signed=True),
                "ρ, whitened": with_interval(interval(whitened, "number")),
                "ρ, cosine": with_interval(interval(cosine, "number")),
                "n": int(whitened.notna().sum()),
            }
        )
    table = with_p_values(rows, p_values, [True] * len(rows)).set_index("method")
    shown = with_power(table, map(detectable, correlations), table["n"], digits=2)
    note = (
        "change of o* at the edit's prompt about other subjects of the relation, P(o*) in points; ρ:"
        " Spearman's correlation over a record's subjects with the similarity of keys"
    )
    return with_note(with_relations(shown, correlations), note)
