"""PEAK's published scores: what a run's tables hold, in small types, and what they are of.

*peak/<model>_<dataset>*: scores before and after by method, as tables name it (``ROME+APP``).
*ablations/<model>_<dataset>*: the studies of notebook 04, each written as soon as it is finished:

- ``rome+app@neighbours=3``: scores before and after independent edits, by variant;
- ``rome+app after 10``: the same after ten sequential edits;
- ``said by rome+app``: which known answers sampled responses name after the edits; ``said before`` and
  ``said again`` (other random numbers) are of the unedited model.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers.results.archive import Run

if TYPE_CHECKING:  # names are listed without it
    import pandas as pd

    from helpers.peak.schema import PeakRecord
    from helpers.peak.tables import Caption

_SCORES = {
    "case_id": "int32",
    "role": "category",
    "prompt_index": "int8",
    "list": "category",
    "answer_index": "int16",
    "tokens": "int16",
    "sum_before": "float32",
    "sum_after": "float32",
}
_SAID = {"case_id": "int32", "sample": "int16", "list": "category", "answer_index": "int16"}
_WIDE = {"role": str, "list": str, "sum_before": float, "sum_after": float}


def small(table: pd.DataFrame) -> pd.DataFrame:
    """A table as it is published: no text but names of lists, log-probabilities in single precision."""
    types = _SAID if "sample" in table else _SCORES
    return table[list(types)].astype(types)


def scores_of(run: Run, *, only: Sequence[str] = ()) -> dict[str, pd.DataFrame]:
    """A run's tables, or those of ``only``, in the types that metrics take, in the order of publication."""
    return {name: _wide(run.tables[name]) for name in run.tables if not only or name in only}


def is_published(
    run: Run, name: str, settings: Mapping[str, Any], records: Iterable[PeakRecord]
) -> bool:
    """Whether a run has a table that was made with these settings and holds all these records."""
    made = json.loads(json.dumps(settings))  # as JSON gives them back: tuples are lists
    if name not in run.tables or run.about.settings.get(name) != made:
        return False
    return {record.case_id for record in records} <= set(run.tables[name]["case_id"])


def caption_of(run: Run) -> Caption:
    """What a run's tables say about themselves."""
    from helpers.peak.tables import Caption

    source = {key: run.about.source[key] for key in ("model", "dataset", "dtype", "device")}
    return Caption(**source, **run.about.caption)


def sequence_key(method: str, edits: int) -> str:
    """The table of a method's scores after so many sequential edits."""
    return f"{method} after {edits}"


def said_key(state: str) -> str:
    """The table of what is said in a state of the model: ``before``, ``again``, or after a method."""
    return f"said {state}" if state in ("before", "again") else f"said by {state}"


def variants_of(run: Run) -> list[str]:
    """Variants with independent edits, in the order they were published."""
    return [name for name in run.tables if " " not in name]


def states_of(run: Run) -> list[str]:
    """States of the model with sampled responses."""
    named = (name for name in run.tables if name.startswith("said "))
    return [name.removeprefix("said ").removeprefix("by ") for name in named]


@dataclass(frozen=True)
class Studies:
    """What is finished of one model's ablations on one data set.

    ``scores`` by variant, ``sequences`` by method and number of edits, ``said`` by state; ``settings`` of
    each variant, and how samples were drawn.
    """

    name: str
    caption: Caption
    scores: dict[str, pd.DataFrame]
    sequences: dict[tuple[str, int], pd.DataFrame]
    said: dict[str, pd.DataFrame]
    settings: Mapping[str, Any]
    sampling: Mapping[str, Any]

    def margin(self, editor: str) -> float | None:
        """APP's margin in an editor's preset; None where the editor with APP is not stored."""
        app = self.settings.get(f"{editor}+app", {}).get("app") or {}
        return app.get("margin")

    def described(self, *tables: pd.DataFrame) -> str:
        """The caption with the number of records (case_id) that stand behind these tables."""
        counts = sorted({table.reset_index()["case_id"].nunique() for table in tables}) or [0]
        fewer = f"{counts[0]}–" if len(counts) > 1 else ""
        return self.caption.words(records=f"first {fewer}{counts[-1]} records")


def studies_of(run: Run) -> Studies:
    """A published run of ablations, study by study."""
    variants = variants_of(run)
    sequences = [name for name in run.tables if " after " in name]
    said = {state: run.tables[said_key(state)].astype({"list": str}) for state in states_of(run)}
    drawn = [run.about.settings[said_key(state)]["sampling"] for state in said]
    return Studies(
        name=run.name,
        caption=caption_of(run),
        scores={name: _wide(run.tables[name]) for name in variants},
        sequences={_place(name): _wide(run.tables[name]) for name in sequences},
        said=said,
        settings={name: run.about.settings[name] for name in variants},
        sampling=drawn[0] if drawn else {},
    )


def _wide(table: pd.DataFrame) -> pd.DataFrame:
    return table.astype({name: kind for name, kind in _WIDE.items() if name in table})


def _place(name: str) -> tuple[str, int]:
    method, edits = name.split(" after ")
    return method, int(edits)
