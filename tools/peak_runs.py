"""What notebooks 02 and 03 report next to published runs: of the official files, and of the edits.

    python -m tools.peak_runs contradictions
    python -m tools.peak_runs samples smollm2-135m_peak-cf
    python -m tools.peak_runs edits params/paper/03_editing_runs/smollm2-135m_peak-cf.yaml rome
    python -m tools.peak_runs similarity smollm2-135m_peak-cf

A published run holds scores. Its edits are made again by the same editor, without scoring; the first
records are scored to show that they are the edits published.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import typer

from helpers import UserError, models
from helpers.editing.build import build_editors
from helpers.editing.editor import Editor
from helpers.editing.editors import method_label
from helpers.editing.memit import AlphaEdit
from helpers.params import read_params
from helpers.paths import run_name
from helpers.peak import records as peak
from helpers.peak.cosines import answer_cosines
from helpers.peak.metrics import KEYS
from helpers.peak.publish import peak_run
from helpers.peak.records import OFFICIAL, PeakRecord, load_peak
from helpers.peak.run import PeakRun, score_records
from helpers.peak.similarity import COSINES
from helpers.peak.tables import scores_of
from helpers.results.archive import About, archive
from helpers.results.evaluation import EDIT_COLUMNS, Mode, diagnostics_table

COMPARED = 3  # records that are scored
app = typer.Typer(add_completion=False)


@app.command()
def contradictions() -> None:
    """Count and store the contradictions of each kind in the official files."""
    rows = []
    for name in OFFICIAL:
        records = load_peak(name, strict_lists=False).records
        found = Counter(kind for each in records for kind in peak.contradictions(each))
        rows += [(name, *each) for each in found.most_common()]
    table = pd.DataFrame(rows, columns=["set", "kind", "count"])
    source = {name: resource.checksum for name, resource in OFFICIAL.items()}
    print(archive("construction").put("official", {"contradictions": table}, About(source)))


@app.command()
def samples(names: list[str]) -> None:
    """Count and store what part of an official file the records of published runs are."""
    for name in names:
        run = archive("peak").get(name)
        whole = load_peak(run.about.source["dataset"]).records
        part = [record for record in whole if str(record.case_id) in run.about.caption["relations"]]
        prompts = [(r.case_id, r.edit_prompt.startswith(r.subject)) for r in part]
        row = {
            "records": len(part),
            "records_whole": len(whole),
            "relations": len({record.relation for record in part}),
            "relations_whole": len({record.relation for record in whole}),
            "subject_first": sum(is_first for _, is_first in prompts),
        }
        counts = Counter(record.relation for record in part)
        whole_counts = Counter(record.relation for record in whole)
        by_relation = [(r, counts[r], whole_counts[r]) for r in sorted(whole_counts)]
        columns = ["relation", "records", "records_whole"]
        tables = {
            "counts": pd.DataFrame([row]),
            "relations": pd.DataFrame(by_relation, columns=columns),
            "prompts": pd.DataFrame(prompts, columns=["case_id", "subject_first"]),
        }
        about = About(source=run.about.source)
        print(archive("peak_samples").put(name, tables, about))


@app.command()
def edits(params: Path, methods: list[str]) -> None:
    """Make the edits of a published run again and store how they went, methods as rows of one table."""
    values = read_params(params)
    run = replace(peak_run(values), chunk=8)
    name = run_name(run.lm.name, run.data.name)
    options = {key: values[key] for key in ("preset", "corpus", "seed")}
    tables, settings = [], {}
    for method, editor in build_editors(methods, run.lm, **options).items():
        label = method_label(method)
        tables.append(edits_again(run, editor).assign(method=label))
        published = scores_of(archive("peak").get(name), only=[label])[label]
        gap = largest_difference(run, editor, published)
        how: dict[str, Any] = {"largest_difference": round(gap, 5), "records_compared": COMPARED}
        if isinstance(editor, AlphaEdit):
            sizes = {n: editor.occupied(n).shape for n in editor.hyperparameters.layers}
            how["null_space"] = {str(n): size - used for n, (size, used) in sizes.items()}
        settings[label] = how
    if known := archive("peak_edits").known(name):
        stored = known.tables["edits"]
        tables.insert(0, stored[~stored["method"].isin(settings)])
    about = About(source=run.settings({}), settings=settings)
    print(archive("peak_edits").put(name, {"edits": pd.concat(tables)}, about))


@app.command()
def similarity(names: list[str]) -> None:
    """Compute and store how near the correct answers of published runs lie to o* in the unembedding."""
    for name in names:
        run = archive("peak").get(name)
        source = run.about.source
        records = load_peak(source["dataset"]).records
        published = [r for r in records if str(r.case_id) in run.about.caption["relations"]]
        lm = models.load(source["model"], dtype=source["dtype"], device=source["device"])
        if lm.identity["fingerprint"] != source["fingerprint"]:
            raise UserError(
                f"{name} is of another model than {lm.name}: load the weights that it was published from"
            )
        tables = {COSINES: answer_cosines(lm, published)}
        print(archive("similarity").put(name, tables, About(source, caption=run.about.caption)))


def edits_again(run: PeakRun, editor: Editor) -> pd.DataFrame:
    """``EDIT_COLUMNS`` of every record, each edited without scoring; kept in the run's store."""
    mode: Mode[PeakRecord] = Mode("edits only", settings={"scoring_version": 0})

    def made(records: Sequence[PeakRecord]) -> dict[str, pd.DataFrame]:
        updates = editor.edit([run.request(record) for record in records])
        return {"scores": diagnostics_table(records, updates)}

    return run.evaluation(editor, mode).complete(made).reindex(columns=EDIT_COLUMNS)


def largest_difference(run: PeakRun, editor: Editor, published: pd.DataFrame) -> float:
    """Between the log-probabilities of the first records under edits made now and those published."""
    first = run.data.records[:COMPARED]
    updates = editor.edit([run.request(record) for record in first])
    scores = score_records(run.lm, first, updates)
    both = scores.merge(published, on=KEYS, validate="1:1")
    return float((both["sum"] - both["sum_after"]).abs().max())


if __name__ == "__main__":
    app()
