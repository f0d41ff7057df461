"""How the edits of a published run went: steps, losses, sizes of the updates.

Published runs hold scores. Where no record of the edits was kept, the same editor makes them again,
without scoring; the first records are scored to show that they are the edits published.

    python -m helpers.peak.edit_diagnostics params/paper/03_editing_runs/smollm2-135m_peak-cf.yaml rome
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from helpers import models
from helpers.editing.build import build_editors
from helpers.editing.editor import Editor
from helpers.editing.editors import method_label
from helpers.editing.memit import AlphaEdit
from helpers.params import read_params
from helpers.paths import REPOSITORY, run_name
from helpers.peak.run import (
    EDIT_COLUMNS,
    KEYS,
    PeakRun,
    diagnostics_table,
    edit_request,
    score_records,
)
from helpers.peak.schema import PeakRecord
from helpers.peak.stored_scores import scores_of
from helpers.peak.usable import load_usable
from helpers.results.archive import About, archive
from helpers.results.store import ResultsStore

COLUMNS = [name for name in EDIT_COLUMNS if name != "diagnostics"]


def edits_again(run: PeakRun, editor: Editor, *, finished: bool = False) -> pd.DataFrame:
    """``EDIT_COLUMNS`` of every record, each edited without scoring; kept in the run's store.

    Args:
        run: model, records and store.
        finished: take the edits that are in the store and make none.
    """
    how = {"mode": "edits only", **editor.settings(), "scoring_version": 0}

    def made(records: Sequence[PeakRecord]) -> dict[str, pd.DataFrame]:
        updates = editor.edit([edit_request(record) for record in records])
        return {"scores": diagnostics_table(records, updates)}

    table = run.cases.read(run.open(how)) if finished else run.completed(how, made)
    return table.reindex(columns=EDIT_COLUMNS)


def largest_difference(
    run: PeakRun, editor: Editor, published: pd.DataFrame, *, records: int
) -> float:
    """Between the log-probabilities of the first records under edits made now and those published."""
    first = run.data.records[:records]
    updates = editor.edit([edit_request(record) for record in first])
    scores = score_records(run.language_model, first, updates)
    both = scores.merge(published, on=KEYS, validate="1:1")
    return float((both["sum"] - both["sum_after"]).abs().max())


def publish_edits(
    params: dict[str, Any], methods: Sequence[str], *, checked: int = 3, finished: bool = False
) -> Path:
    """Make the edits of a published run again and store how they went, method by method.

    Args:
        params: of notebook 03.
        methods: such as ``rome+app``; each is stored as soon as it is finished.
        checked: records that are scored and compared with the published scores.
        finished: store the edits that are in the store and make none but those compared.
    """
    language_model = models.load(params["model"], dtype=params["dtype"], device=params["device"])
    data = load_usable(
        language_model,
        params["dataset"],
        strict_lists=params["strict_lists"],
        limit=params["records"],
        skip_bad=params.get("skip_bad_records", False),
    )
    run = PeakRun(language_model, data, ResultsStore(REPOSITORY / params["results"]), chunk=8)
    name = run_name(language_model.name, data.name)
    known = archive("peak").get(name)
    options = {key: params[key] for key in ("preset", "corpus", "seed")}
    folder = Path()
    for method, editor in build_editors(methods, language_model, **options).items():
        label = method_label(method)
        table = edits_again(run, editor, finished=finished)[COLUMNS].assign(method=label)
        how = {"largest_difference": None, "records_compared": 0, **_dimensions(editor)}
        if label in known.tables and checked:
            gap = largest_difference(
                run, editor, scores_of(known, only=[label])[label], records=checked
            )
            how |= {"largest_difference": round(gap, 5), "records_compared": checked}
        about = About(source=run.settings({}), settings={label: how})
        folder = archive("peak_edits").put(name, {"edits": table}, about, by=["method"])
    return folder


def edits_table(name: str) -> pd.DataFrame:
    """How a published run's edits went, methods as rows; nothing where none are stored.

    ``agreement``: the largest difference in log-probability from the published scores, over the
    answers of the first records.
    """
    if name not in archive("peak_edits").names():
        return pd.DataFrame()
    stored = archive("peak_edits").get(name)
    rows = {}
    for label, edits in stored.tables["edits"].groupby("method", sort=False):
        how = stored.about.settings[str(label)]
        rows[str(label)] = {
            "edits": len(edits),
            "given up": int((edits["failure"] != "").sum()),
            "flagged": int(edits["exploding"].sum()),
            "median steps": edits["steps"].median(),
            "median |dW|/|W|": edits["relative_norm"].median(),
            "largest |dW|/|W|": edits["relative_norm"].max(),
            "agreement": _digits(how["largest_difference"]),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")


def null_spaces(name: str) -> pd.DataFrame:
    """The dimension of AlphaEdit's null space by layer, as stored with a run's edits."""
    if name not in archive("peak_edits").names():
        return pd.DataFrame()
    settings = archive("peak_edits").get(name).about.settings
    dimensions = {
        label: how["null_space"] for label, how in settings.items() if "null_space" in how
    }
    return pd.DataFrame(dimensions).T.rename_axis("layer", axis=1)


def _digits(value: float | None) -> str:
    """A difference of log-probabilities as text; nothing where none was measured."""
    return "" if value is None else f"{value:.4f}"


def _dimensions(editor: Editor) -> dict[str, Any]:
    """The dimension of AlphaEdit's null space, by layer."""
    if not isinstance(editor, AlphaEdit):
        return {}
    layers = editor.hyperparameters.layers
    return {"null_space": {str(layer): editor.null_space(layer).dimension for layer in layers}}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("params", type=Path)
    parser.add_argument("methods", nargs="+")
    parser.add_argument("--finished", action="store_true", help="make none, store what is there")
    given = parser.parse_args()
    print(publish_edits(read_params(given.params), given.methods, finished=given.finished))
