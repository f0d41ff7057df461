"""How often is the matcher of answers wrong? Generated texts, drawn with a seed and read one by one.

    python -m tools.reading draw runs/results to_read.csv
    python -m tools.reading errors to_read.csv

``draw`` writes texts of a store's states with the lists of their records and, under ``named``, what the
matcher names. A reader fills in ``read``, the known answers that the text gives as answers, and, where
the two differ, ``kinds``: ``Chad = part of a longer name; Niger = other spelling``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import typer
from scipy.stats import binomtest

from helpers.behaviour.scorers import named_answers
from helpers.peak.records import PeakRecord, load_peak
from helpers.results.store import Cases, Results

app = typer.Typer(add_completion=False)


@app.command()
def draw(
    store: Path, file: Path, *, dataset: str = "peak-cf", each: int = 67, seed: int = 0
) -> None:
    """Draw ``each`` of the texts of every state in a store."""
    records = {record.case_id: record for record in load_peak(dataset).records}
    cases = Cases(records, content=PeakRecord.to_json)
    tables = []
    for path in sorted(store.glob("*/settings.json")):
        settings = json.loads(path.read_text("utf-8"))
        state = settings["editor"].replace("none", "unedited") + "+app" * bool(settings.get("app"))
        tables.append(cases.read(Results(path.parent), "texts").assign(state=state))
    drawn = pd.concat(tables).groupby("state").sample(each, random_state=seed)
    drawn = drawn.sort_values(["case_id", "state", "form", "sample"])
    asked = [records[case] for case in drawn["case_id"]]
    drawn["prompt"] = [record.edit_prompt for record in asked]
    for name in asked[0].lists:
        drawn[name] = ["; ".join(record.lists[name]) for record in asked]
    drawn["named"] = [
        "; ".join(of.lists[name][index] for name, index in named_answers(text, of))
        for text, of in zip(drawn["text"], asked, strict=True)
    ]
    drawn.assign(read="", kinds="").to_csv(file, index=False)


@app.command()
def errors(file: Path) -> None:
    """Print the matcher's errors by kind as CSV."""
    print(errors_table(pd.read_csv(file, keep_default_na=False)).to_csv(index=False))


def errors_table(labels: pd.DataFrame) -> pd.DataFrame:
    """Number and share (percent, Wilson's 95 % interval) of the matcher's errors.

    First the texts with an error, of any kind and of each. Then the answers: wrong ones of those that
    the matcher names, missed ones of those that the texts name.
    """
    cells = labels[["named", "read", "kinds"]].map(lambda cell: set(filter(None, cell.split("; "))))
    found, counted = [], {"wrong": 0, "missed": 0}
    for text, (named, read, kinds) in enumerate(cells.itertuples(index=False, name=None)):
        kind_of = dict(each.split(" = ") for each in kinds)
        if kind_of.keys() != named ^ read:
            raise ValueError(f"text {text}: give a kind to each of {sorted(named ^ read)}")
        counted["wrong"] += len(named)
        counted["missed"] += len(read)
        for answer, kind in kind_of.items():
            found.append(("wrong" if answer in named else "missed", kind, text))
    table = pd.DataFrame(found, columns=["error", "kind", "text"])
    rows = [("texts with an error", table["text"].nunique(), len(labels))]
    for (error, kind), own in table.groupby(["error", "kind"]):
        rows.append((f"texts with an answer {error}: {kind}", own["text"].nunique(), len(labels)))
    for error, n in counted.items():
        rows.append((f"answers {error}", int((table["error"] == error).sum()), n))
    columns = ["what", "errors", "n", "percent", "low", "high"]
    return pd.DataFrame([(*row, *_interval(*row[1:])) for row in rows], columns=columns)


def _interval(errors: int, n: int) -> tuple[float, ...]:
    ends = binomtest(errors, n).proportion_ci(method="wilson")
    return tuple(round(100 * float(share), 1) for share in (errors / n, ends.low, ends.high))


if __name__ == "__main__":
    app()
