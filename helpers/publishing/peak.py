"""Run a params file without its notebook, resumably, and store the tables its figures need."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

from helpers import models
from helpers.data.fetch import FetchError
from helpers.data.peak import load_peak
from helpers.data.peak_record import RecordError
from helpers.editing.editor import Editor
from helpers.editing.hyperparameters import HyperparameterError
from helpers.editing.mend_network import NetworkError
from helpers.editing.presets import preset_words
from helpers.editing.variants import MethodError
from helpers.models.architectures import UnknownArchitectureError
from helpers.models.load import ModelError
from helpers.models.packaged_weights import WeightsError
from helpers.paths import FIGURES, REPOSITORY, run_name
from helpers.publishing.ablations import publish_ablations
from helpers.publishing.adoption import adopt
from helpers.reporting.peak_tables import Caption
from helpers.reporting.stored import StoredRun, load_run, store_run, stored_runs
from helpers.runs.methods import build_methods
from helpers.runs.params import ParamsError, notebook_of, read_params
from helpers.runs.peak_scores import PeakRun
from helpers.runs.store import ResultsStore
from helpers.runs.wrong_values import check_values

ERRORS = (
    ParamsError,
    RecordError,
    FetchError,
    MethodError,
    HyperparameterError,
    NetworkError,
    ModelError,
    WeightsError,
    UnknownArchitectureError,
    FileNotFoundError,
)  # what a params file can get wrong

DATA = FIGURES / "data"
NOTEBOOKS = ("03_editing_runs", "04_app_ablations")


def publish(params_file: Path, *, finished: bool = False) -> Path:
    """Compute what is missing, then write score tables under ``figures/data``.

    Notebook 03's go to ``peak/<model>_<dataset>/``, notebook 04's to ``peak_ablations/…``. What is
    published there already, with the same settings, is not computed again.

    Args:
        params_file: parameters of notebook 03 or 04.
        finished: write what is finished and compute nothing (notebook 03): methods may then have
            different numbers of records, which every table states.

    Raises:
        ParamsError: the params file is for another notebook, does not fit it, or holds wrong values.
        The others of ``ERRORS``: the model, its presets or networks, or the data cannot be had.
    """
    params = read_params(params_file)
    notebook = notebook_of(params_file).stem
    if notebook not in NOTEBOOKS:
        raise ParamsError(f"{params_file}: only {' and '.join(NOTEBOOKS)} are published this way")
    with chdir(REPOSITORY):  # from where the notebooks read paths, too
        check_values(params_file, notebook, params)
        if notebook == "04_app_ablations":
            last = max([params["records"], *params["checkpoints"]])
            run = _peak_run({**params, "records": last})
            return publish_ablations(run, params, caption(run, params), DATA / "peak_ablations")
        return publish_runs(_peak_run(params), params, DATA / "peak", finished=finished)


def publish_runs(
    run: PeakRun, params: Mapping[str, Any], folder: Path, *, finished: bool = False
) -> Path:
    """Every method of notebook 03 on every record, or on those that are finished.

    Raises:
        ParamsError: nothing is finished, or methods or records are published that this run lacks.
    """
    options = {key: params[key] for key in ("preset", "corpus", "seed")}
    editors = build_methods(params["methods"], run.language_model, **options)
    about = caption(run, params)
    name, source = run_name(about.model, about.dataset), run.settings({})
    known = load_run(name, folder) if name in stored_runs(folder) else None
    if known and known.source == source:
        _check_nothing_lost(known, editors, about, folder / name)
        adopt(run, editors, known)
    every = {label: run.scores(editor, finished=finished) for label, editor in editors.items()}
    scores = {label: table for label, table in every.items() if len(table)}
    if not scores:
        raise ParamsError(f"none of {', '.join(editors)} is finished; nothing was stored")
    settings = {label: editors[label].settings() for label in scores}
    return store_run(name, StoredRun(about, scores, settings, source), folder)


def _check_nothing_lost(
    known: StoredRun, editors: Mapping[str, Editor], about: Caption, folder: Path
) -> None:
    """Refuse to replace a published run of the same model and data by a part of it."""
    missing = [label for label in known.scores if label not in editors]
    fewer = known.caption.records > about.records
    if missing or fewer:
        lost = ", ".join([*missing, *([f"{known.caption.records} records"] if fewer else [])])
        raise ParamsError(
            f"{folder} holds {lost}, which this run lacks: name them in the params file, too, or move"
            " the folder away"
        )


def caption(run: PeakRun, params: Mapping[str, Any]) -> Caption:
    """What the tables of a run say about themselves."""
    return Caption(
        model=run.language_model.name,
        dataset=run.data.name,
        records=len(run.data.records),
        preset=preset_words(run.language_model.name, params["preset"], _protected(params)),
        dtype=run.language_model.dtype_name,
        device=run.language_model.device.type,
    )


def _protected(params: Mapping[str, Any]) -> list[str]:
    """Methods of notebook 03, or of notebook 04, whose studies put APP on every editor."""
    editors = (name for key in ("editors", "fairer", "others") for name in params.get(key, ()))
    return [*params.get("methods", ()), *(f"{editor}+app" for editor in editors)]


def _peak_run(params: Mapping[str, Any]) -> PeakRun:
    """Model, records and results store that the parameters name."""
    language_model = models.load(params["model"], dtype=params["dtype"], device=params["device"])
    data = load_peak(
        params["dataset"], strict_lists=params["strict_lists"], limit=params["records"]
    )
    return PeakRun(
        language_model, data, ResultsStore(REPOSITORY / params["results"]), progress=True
    )
