"""The papers' published numbers, to stand beside ours."""

import pandas as pd

from helpers.paths import PACKAGED

_FOLDER = PACKAGED / "published"
_TYPES = {"value": "float64", "significant": "boolean"}  # every other column is text


def published_names() -> list[str]:
    """Names of the tables at hand, such as ``"peak_table_3"``."""
    return sorted(path.stem for path in _FOLDER.glob("*.csv"))


def published_table(name: str) -> pd.DataFrame:
    """One published table in tidy form: one row per number.

    PEAK's tables have the columns model, dataset, method, metric (named as in
    ``helpers.peak.metrics``), value (percent in Tables 3, 4, 5 and 9), significant (PEAK's †: True
    or False where a method with APP is tested against the plain one, else missing), source and
    note (how to read the number, or a slip in the paper).

    Raises:
        KeyError: no such table; the message names the tables at hand.
    """
    path = _FOLDER / f"{name}.csv"
    if name not in published_names():
        raise KeyError(f"no published table {name!r}; there are: {', '.join(published_names())}")
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    if "significant" in table:
        marks = {"yes": True, "no": False, "": pd.NA}
        table["significant"] = table["significant"].map(marks)
    return table.astype({column: kind for column, kind in _TYPES.items() if column in table})
