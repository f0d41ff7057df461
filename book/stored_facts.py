"""The explorer's files: what every editor did to every stored fact, as small data for the browser.

One script a run, ``records/<run>.js``, that hands its facts to ``explorer.js``: a script loads from a
folder, too, where a browser refuses to fetch JSON. Log-probabilities are means over an answer's tokens.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
from page_parts import label_of, metrics_of, runs_of

from helpers.paths import FIGURES, file_name
from helpers.peak.records import MINI, PeakRecord, load_peak
from helpers.peak.tables import caption_of, scores_of
from helpers.results.archive import Run

KINDS = ("target", "correct", "hard", "random")
MEASURES = ("ES", "GS", "LS", "AFF_hard", "ANF_hard", "AFF_random", "ANF_random")


def write_facts(folder: Path, data: Path = FIGURES / "data") -> str:
    """Write one script a run; gives the options that choose them, runs with words first."""
    folder.mkdir(parents=True, exist_ok=True)
    packaged = [run for run in runs_of(data / "ablations") if _words_of(run)]
    offered = ""
    for run in [*packaged, *runs_of(data / "peak")]:
        facts = json.dumps(facts_of(run), ensure_ascii=False, separators=(",", ":"))
        file = f"{file_name(run.name)}.js"
        (folder / file).write_text(f"showRun({facts});\n", "utf-8")
        source, words = run.about.source, "" if _words_of(run) else " (answers by number)"
        title = f"{source['dataset']}, {source['model']}{words}"
        offered += f'<option value="{file}">{title}</option>'
    return offered


def facts_of(run: Run) -> dict[str, Any]:
    """A run's facts: their answers, scores before and after every method, and each method's measures.

    Returns:
        ``caption``; ``methods`` (labels); ``facts``, each with its ``title``, the edit's ``target``,
        ``answers`` (kind, words), ``before`` and, by method, ``after`` [answers] and ``measures``.
    """
    words = _words_of(run)
    scores = scores_of(run, only=[n for n in run.tables if " " not in n and "@" not in n])
    labels = {name: label_of(name) for name in scores}
    edit = {name: _at_edit(table) for name, table in scores.items()}
    metrics = {name: metrics_of(run, name).groupby("case_id").first() for name in scores}
    facts = []
    for case_id, asked in next(iter(edit.values())).groupby("case_id", sort=True):
        every = {name: table[table["case_id"] == case_id] for name, table in edit.items()}
        record = words.get(int(case_id))
        facts.append(
            {
                **_named(int(case_id), record),
                "answers": [
                    [kind, _answer(record, kind, int(place))]
                    for kind, place in zip(asked["list"], asked["answer_index"], strict=True)
                ],
                "before": _means(asked, "sum_before"),
                "after": {labels[name]: _means(t, "sum_after") for name, t in every.items()},
                "measures": {labels[n]: _measures(t, case_id) for n, t in metrics.items()},
            }
        )
    caption = caption_of(run).removeprefix("ours: ")
    return {"caption": caption, "methods": list(labels.values()), "facts": facts}


def _words_of(run: Run) -> dict[int, PeakRecord]:
    """Records of a packaged data set by number; official ones have no licence, and so no words here."""
    name = run.about.source["dataset"]
    return {r.case_id: r for r in load_peak(name).records} if name in MINI else {}


def _at_edit(scores: pd.DataFrame) -> pd.DataFrame:
    """Rows of the edit prompt, in one order for every method."""
    chosen = scores[scores["role"] == "edit"]
    order = chosen["list"].map(KINDS.index)
    return chosen.assign(order=order).sort_values(["case_id", "order", "answer_index"])


def _means(rows: pd.DataFrame, column: str) -> list[float]:
    return [round(value, 2) for value in rows[column] / rows["tokens"]]


def _measures(metrics: pd.DataFrame, case_id: Any) -> dict[str, float]:
    """In percent; what is undefined for a record is left out."""
    row = metrics.loc[case_id] if case_id in metrics.index else pd.Series(dtype=float)
    return {n: round(100 * row[n], 1) for n in MEASURES if n in row and row[n] == row[n]}


def _named(case_id: int, record: PeakRecord | None) -> dict[str, str]:
    if record is None:
        return {"title": f"record {case_id}", "target": "the new answer"}
    return {"title": f"{record.prompt.format(record.subject)} …", "target": record.target_new}


def _answer(record: PeakRecord | None, kind: str, place: int) -> str:
    if record:
        return str(record.lists[kind][place])
    return "the new answer" if kind == "target" else f"{kind} {place + 1}"
