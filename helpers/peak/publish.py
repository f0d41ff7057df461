"""PEAK's runs of a params file, written to the archive; what is published there is not made again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from helpers import UserError, models
from helpers.editing.build import build_editors
from helpers.editing.editors import method_label
from helpers.editing.presets import preset_words
from helpers.paths import REPOSITORY, run_name
from helpers.peak.ablations import publish_ablations
from helpers.peak.run import PeakRun
from helpers.peak.stored_scores import is_published, small
from helpers.peak.usable import load_usable
from helpers.results.archive import About, Archive
from helpers.results.store import ResultsStore


def publish(params: Mapping[str, Any], into: Archive, *, finished: bool = False) -> Path:
    """Every method of notebook 03 on every record, or on those that are finished.

    Args:
        params: of notebook 03.
        into: the archive *peak*.
        finished: write what is finished and compute nothing: methods may then have different numbers
            of records, which every table states.

    Raises:
        UserError: nothing is finished.
        ArchiveError: the published run has another source, or more records; before anything is made.
    """
    return publish_runs(peak_run(params), params, into, finished=finished)


def publish_studies(params: Mapping[str, Any], into: Archive, *, finished: bool = False) -> Path:
    """Every study of notebook 04, see ``helpers.peak.ablations``; ``finished`` is not for them.

    Args:
        params: of notebook 04.
        into: the archive *ablations*.
    """
    if finished:
        raise UserError("--finished is for notebook 03: studies are written piece by piece anyway")
    last = max([params["records"], *params["checkpoints"]])
    run = peak_run({**params, "records": last})
    return publish_ablations(run, params, about_of(run, params), into)


def publish_runs(
    run: PeakRun, params: Mapping[str, Any], into: Archive, *, finished: bool = False
) -> Path:
    """``publish`` for a model and records that are at hand."""
    options = {key: params[key] for key in ("preset", "corpus", "seed")}
    built = build_editors(params["methods"], run.language_model, **options)
    editors = {method_label(method): editor for method, editor in built.items()}
    name = run_name(run.language_model.name, run.data.name)
    known = into.known(name)
    about = about_of(run, params, published=list(known.tables) if known else [])
    into.check(name, about)
    if known:
        records = known.about.caption["records"]
        if records > len(run.data.records):
            raise UserError(
                f"{into.folder(name)} holds {records} records, which this run lacks: name as many in"
                " the params file, or publish under --name NAME"
            )
    missing = {
        label: editor
        for label, editor in editors.items()
        if not (known and is_published(known, label, editor.settings(), run.data.records))
    }
    every = {label: run.scores(editor, finished=finished) for label, editor in missing.items()}
    scores = {label: small(table) for label, table in every.items() if len(table)}
    if not scores and len(missing) == len(editors):
        raise UserError(f"none of {', '.join(editors)} is finished; nothing was stored")
    settings = {label: missing[label].settings() for label in scores}
    return into.put(name, scores, About(about.source, settings, about.caption))


def about_of(
    run: PeakRun, params: Mapping[str, Any], *, published: list[str] | None = None
) -> About:
    """What all tables of a run say about themselves; ``published`` are labels of other methods in it."""
    methods = [*params.get("methods", ()), *(label.lower() for label in published or ())]
    editors = (name for key in ("editors", "fairer", "others") for name in params.get(key, ()))
    protected = [name for name in methods if name.endswith("+app")]
    protected += [f"{editor}+app" for editor in editors]
    words = preset_words(run.language_model.name, params["preset"], list(dict.fromkeys(protected)))
    caption = {"records": len(run.data.records), "preset": words}
    if run.data.skipped:
        caption["skipped"] = len(run.data.skipped)
    return About(run.settings({}), caption=caption)


def peak_run(params: Mapping[str, Any]) -> PeakRun:
    """Model, records and results store that the parameters name."""
    language_model = models.load(params["model"], dtype=params["dtype"], device=params["device"])
    data = load_usable(
        language_model,
        params["dataset"],
        strict_lists=params["strict_lists"],
        limit=params["records"],
        skip_bad=params.get("skip_bad_records", False),
    )
    return PeakRun(
        language_model, data, ResultsStore(REPOSITORY / params["results"]), progress=True
    )
