"""Two folders of edits compared, without a model: what each did to the facts that both hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from helpers import UserError
from helpers.facts.answers import FACT_MEASURES
from helpers.facts.result import EDITOR, read_index
from helpers.results.notes import ShownTable, with_note
from helpers.results.statistics import paired
from helpers.results.text import in_points

_FACT = ["fact", "target"]  # the columns by which it is known again


def compare_edits(first: Path | str, second: Path | str) -> ShownTable:
    """Means over the facts of both folders in percent, and second minus first with its 95 % interval.

    A method that both have is compared with itself; of folders with one method each, these are compared.
    """
    first_index, second_index = read_index(Path(first)), read_index(Path(second))
    methods = list(first_index["files"]), list(second_index["files"])
    method_pairs = [(method, method) for method in methods[0] if method in methods[1]]
    if not method_pairs and len(methods[0]) == len(methods[1]) == 1:
        method_pairs = [(methods[0][0], methods[1][0])]
    if not method_pairs:
        raise UserError(
            f"{first} has edits by {', '.join(methods[0])}, {second} by {', '.join(methods[1])}: give"
            " folders with the same editor, or with one editor each"
        )
    rows = []
    for method, other_method in method_pairs:
        first_table, second_table = (
            _by_fact(first_index, method),
            _by_fact(second_index, other_method),
        )
        shared_facts = first_table.index.intersection(second_table.index)
        if shared_facts.empty:
            raise UserError(f"{first} and {second} have no fact in common: edit the same facts")
        name = method if method == other_method else f"{method}, {other_method}"
        rows += _compared(name, first_table.loc[shared_facts], second_table.loc[shared_facts])
    model_texts = dict.fromkeys(
        f"{index['model']['model']} ({index['model']['dtype']})"
        for index in (first_index, second_index)
    )
    note = f"first: {first}; second: {second}; of {', '.join(model_texts)}"
    return with_note(pd.DataFrame(rows), f"{note}; means in percent, difference: second - first")


def _compared(
    name: str, first_table: pd.DataFrame, second_table: pd.DataFrame
) -> list[dict[str, Any]]:
    """A row for each measure that both tables have of some fact."""
    rows = []
    for measure, kind in FACT_MEASURES.items():
        if measure not in first_table or measure not in second_table:
            continue
        values = pd.DataFrame(
            {"first": first_table[measure], "second": second_table[measure]}
        ).dropna()
        if len(values):
            difference = paired(values["first"], values["second"], kind).difference
            row: dict[str, Any] = {EDITOR: name, "measure": measure}
            row |= {side: f"{100 * values[side].mean():.1f}" for side in ("first", "second")}
            rows.append({**row, "difference": in_points(difference, signed=True), "n": len(values)})
    return rows


def _by_fact(index: Mapping[str, Any], method: str) -> pd.DataFrame:
    table = pd.DataFrame(index["table"])
    if EDITOR in table:
        table = table[table[EDITOR] == method]
    return table.drop_duplicates(_FACT).set_index(_FACT)
