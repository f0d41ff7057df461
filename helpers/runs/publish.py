"""Run a params file of notebook 03 without the notebook, resumably, and store its score tables."""

from __future__ import annotations

from pathlib import Path

from helpers import models
from helpers.data.peak import load_peak
from helpers.paths import REPOSITORY
from helpers.reporting.peak_tables import Caption
from helpers.reporting.stored import StoredRun, store_run
from helpers.runs.methods import build_methods
from helpers.runs.params import read_params
from helpers.runs.peak_scores import PeakRun
from helpers.runs.store import ResultsStore


def publish(params_file: Path) -> Path:
    """Edit what is missing, then write ``figures/data/peak/<model>_<dataset>/``.

    Raises:
        ParamsError: the params file does not fit notebook 03.
    """
    params = read_params(params_file)
    language_model = models.load(params["model"], dtype=params["dtype"], device=params["device"])
    data = load_peak(
        params["dataset"], strict_lists=params["strict_lists"], limit=params["records"]
    )
    options = {key: params[key] for key in ("preset", "corpus", "seed")}
    run = PeakRun(language_model, data, ResultsStore(REPOSITORY / params["results"]), progress=True)
    editors = build_methods(params["methods"], language_model, **options)
    scores = {label: run.scores(editor) for label, editor in editors.items()}
    caption = Caption(
        model=language_model.name,
        dataset=data.name,
        records=len(data.records),
        preset=params["preset"],
        dtype=language_model.dtype_name,
        device=language_model.device.type,
    )
    settings = {label: editor.settings() for label, editor in editors.items()}
    return store_run(f"{caption.model}_{caption.dataset}", StoredRun(caption, scores, settings))
