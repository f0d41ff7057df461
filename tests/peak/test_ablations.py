"""The ablations' tables, from results made up by hand and from the published run."""

from __future__ import annotations

import pandas as pd

from helpers.editing.editors import Variant
from helpers.peak.ablations import with_neighbours
from helpers.peak.metrics import metrics_table

KEYS = ["case_id", "role", "prompt_index", "list", "answer_index"]
SIZES = {"target": 1, "correct": 3, "hard": 3, "random": 2}
LEVEL = {"target": -4.0, "correct": -1.0, "hard": -3.0, "random": -6.0, "locality": -1.0}


def metrics(lost: float, records: int = 6) -> pd.DataFrame:
    """Correct answers lose ``lost`` (natural logarithm), a little more in every record."""
    rows = []
    for case in range(records):
        for role in ("edit", "paraphrase"):
            rows += [(case, role, 0, name, i) for name, n in SIZES.items() for i in range(n)]
        rows += [(case, "locality", 0, name, 0) for name in ("target", "locality")]
    table = pd.DataFrame(rows, columns=KEYS).assign(tokens=1)
    before = table["list"].map(LEVEL) - 0.1 * table["answer_index"]
    change = table["list"].map({"target": 3.5, "correct": -lost}).fillna(0)
    after = before + change * (1 + 0.1 * table["case_id"])
    return metrics_table(table.assign(sum_before=before, sum_after=after))


def test_the_whole_list_is_last_of_the_neighbours():
    names = ("rome+app@neighbours=3", "rome+app", "rome+app@neighbours=1", "rome")
    chosen = with_neighbours({Variant.parse(n): metrics(1.0) for n in names}, "rome")
    assert [str(v) for v in chosen] == [names[2], names[0], names[1]]
