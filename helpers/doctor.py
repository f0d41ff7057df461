"""What this machine has and what a run will need, for bug reports and before long runs."""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Iterable, Iterator
from contextlib import chdir
from dataclasses import dataclass
from enum import Enum, auto
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

import psutil
import torch
from huggingface_hub import (
    get_hf_file_metadata,
    hf_hub_url,
    is_offline_mode,
    try_to_load_from_cache,
)
from huggingface_hub.constants import HF_HUB_CACHE
from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, RepositoryNotFoundError

from helpers import UserError, __version__
from helpers.editing.corpus import DUMP
from helpers.editing.editors import method_label
from helpers.editing.mend import UntrainedError
from helpers.editing.presets import base_hyperparameters
from helpers.execute import USUAL_TIME
from helpers.fetch import (
    DATA_VARIABLE,
    NotHereError,
    Resource,
    data_folder,
    files_of,
    locate,
    official_files,
)
from helpers.models import LanguageModel
from helpers.models.architectures import architecture_of
from helpers.models.batching import bytes_of_a_token
from helpers.models.load import model_source
from helpers.models.quantised import check_codes
from helpers.models.shapes import SHAPE_PREFIX, SHAPE_TOKENIZER
from helpers.models.weights import (
    PACKAGED_WEIGHTS,
    check_device,
    free_bytes,
    memory_in_words,
    outline_of,
    torch_device,
    torch_dtype,
    weight_bytes,
    weights_folder,
)
from helpers.params import notebook_of, read_params
from helpers.paths import REPOSITORY, cache_folder
from helpers.results.archive import ArchiveError
from helpers.values import NotebookParams, params_of

_PACKAGES = ("torch", "transformers", "numpy", "pandas", "papermill", "submitit", "ipywidgets")
_GIB = 2**30
_PATIENCE = 4.0  # seconds that the hub has to answer
# Tokens of a pass on a CPU, with gradients and without.
_TOKENS_WITH_GRADIENTS = 2048
_TOKENS_WITHOUT_GRADIENTS = 4096


class Kind(Enum):
    """What a finding means for a run."""

    WRONG = auto()  # it cannot run anywhere: a value, or a damaged file
    LACKING = auto()  # it cannot run here and now: a device, memory, disk, or access to the hub
    FIRST = auto()  # to be made by hand before it
    NOTE = auto()  # what it takes, or fetches and makes itself


_BEGINNINGS = {
    Kind.WRONG: "PROBLEM: ",
    Kind.LACKING: "PROBLEM: ",
    Kind.FIRST: "to be made first: ",
    Kind.NOTE: "",
}


@dataclass(frozen=True)
class Finding:
    """A line about this machine or a run, and what it means for a run."""

    text: str
    kind: Kind = Kind.NOTE

    def __str__(self) -> str:
        return _BEGINNINGS[self.kind] + self.text

    @property
    def is_problem(self) -> bool:
        """Whether a run that starts now does not end well."""
        return self.kind in (Kind.WRONG, Kind.LACKING)


def findings_about_machine(*, with_data: bool = True) -> Iterator[Finding]:
    """Versions, device, memory, cache, and where the official files are."""
    yield Finding(
        f"helpers {__version__}, Python {platform.python_version()} on {platform.platform()}"
    )
    versions = [f"{package} {version(package)}" for package in _PACKAGES]
    yield Finding(f"packages: {', '.join(versions)}")
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        gpu_name = torch.cuda.get_device_name(index)
        yield Finding(f"GPU {index}: {gpu_name}, {free / _GIB:.0f} of {total / _GIB:.0f} GiB free")
    if not torch.cuda.is_available():
        threads = torch.get_num_threads()
        yield Finding(f"no GPU; {os.cpu_count()} CPU cores, torch uses {threads} threads")
    total_memory = psutil.virtual_memory().total
    free_memory = free_bytes(torch.device("cpu"))
    yield Finding(f"memory: {total_memory / _GIB:.0f} GiB, {free_memory / _GIB:.1f} GiB free")
    cache = cache_folder()
    used_mib = sum(file.stat().st_size for file in cache.rglob("*")) / 2**20
    free_disk = shutil.disk_usage(cache).free / _GIB
    yield Finding(f"cache {cache}: {used_mib:,.0f} MiB; {free_disk:.0f} GiB of disk free")
    for model_name in PACKAGED_WEIGHTS:
        state = "cached" if weights_folder(model_name).exists() else "not fetched yet"
        yield Finding(f"model {model_name}: {state}")
    if with_data:
        yield from _data(official_files().values())


def _data(resources: Iterable[Resource]) -> Iterator[Finding]:
    """The places of official files, or that they will be downloaded."""
    try:
        yield Finding(f"{DATA_VARIABLE}: {data_folder() or 'not set'}")
    except UserError as error:
        yield Finding(str(error), Kind.WRONG)
        return
    for resource in resources:
        try:
            path = locate(resource, download=False)
            yield Finding(f"data {resource.name}: found ({path})")
        except NotHereError:
            size_in_words = _megabytes(resource.size)
            yield Finding(f"data {resource.name}: will be downloaded ({size_in_words})")
        except UserError as error:  # damaged
            yield Finding(f"data {error}", Kind.WRONG)


def needs_of_file(params_file: Path) -> list[Finding]:
    """What a params file's run needs, and its usual time."""
    notebook = notebook_of(params_file)
    params = params_of(notebook, read_params(params_file, notebook))
    usual_time = USUAL_TIME.search(params_file.read_text("utf-8"))
    time_in_words = "unknown: the params file has no '# Usual time:'"
    if usual_time:
        time_in_words = f"usually {usual_time[1]}, as the file's comment says"
    return [*needs_of(params), Finding(f"time: {time_in_words}")]


def needs_of(params: NotebookParams, *, here: bool = True, copies: int = 1) -> list[Finding]:
    """What is wrong with a run, what this machine lacks for it, what is to be made first, and what it takes.

    Nothing is downloaded. Other findings would only stumble over wrong values, which then are the only ones.

    Args:
        params: of a params file whose names and types are right.
        here: whether it runs on this machine; else device, memory, disk and the hub are not looked at.
        copies: processes at a time that hold a model each.
    """
    with chdir(REPOSITORY):
        errors = params.wrong_values()
        unmade_prerequisites = [
            error for error in errors if isinstance(error, ArchiveError | UntrainedError)
        ]
        wrong_values = [error for error in errors if error not in unmade_prerequisites]
        if wrong_values:
            return [Finding(str(error), Kind.WRONG) for error in wrong_values]
        findings = [Finding(str(error), Kind.FIRST) for error in unmade_prerequisites]
        findings += _device_and_memory(params, here, copies)
        findings += _weights(params.values["model"], here)
        findings += _official_data(params)
        findings += _findings_about_moments(params)
        findings += _held_out(params)
        if here:
            findings += _disk(params)
    return findings


def _device_and_memory(params: NotebookParams, here: bool, copies: int) -> Iterator[Finding]:
    model_name = params.values["model"]
    dtype = params.values["dtype"]
    device_here = params.values["device"] if here else None
    if device_here:
        try:
            check_device(device_here)
        except UserError as error:
            yield Finding(str(error), Kind.LACKING)
            device_here = None
    try:
        weights_size = weight_bytes(model_name, dtype)
        outline = outline_of(model_name)
        lm = LanguageModel(model_name, outline, None) if outline else None
        if lm:
            architecture_of(lm.network.config)
            dequantise = bool(params.values.get("dequantise"))
            check_codes(model_name, lm.network.config, torch_dtype(dtype), dequantise)
    except (OSError, ValueError) as error:
        cause = " ".join(str(error).split())
        yield Finding(f"model {model_name}: its config.json cannot be used ({cause})", Kind.WRONG)
        return
    yield Finding(
        f"model {model_name}: {memory_in_words(model_name, dtype, device_here, copies=copies)}"
    )
    weights_of_copies = (weights_size or 0) * copies
    free_memory = free_bytes(torch_device(device_here)) if device_here else None
    if free_memory is not None and weights_of_copies > free_memory:
        yield Finding(
            f"model {model_name}: its weights take {weights_of_copies / _GIB:.1f} GiB of memory in"
            f" {dtype}, and {free_memory / _GIB:.1f} are free on {device_here}: end other programs, or"
            " choose another dtype or a smaller model",
            Kind.LACKING,
        )
    if lm:
        yield _peak_memory(params, lm, weights_of_copies, copies, free_memory)
    else:
        yield Finding(f"peak memory of {model_name}: unknown before it is fetched")


def _peak_memory(
    params: NotebookParams,
    lm: LanguageModel,
    weights_of_copies: int,
    copies: int,
    free_memory: int | None,
) -> Finding:
    """An estimate: weights, the activations of one pass, and the second moments that edits solve with."""
    with_gradients = bool(params.methods)
    tokens_per_pass = _TOKENS_WITH_GRADIENTS if with_gradients else _TOKENS_WITHOUT_GRADIENTS
    dtype = torch_dtype(params.values["dtype"])
    activation_bytes = (
        copies * tokens_per_pass * bytes_of_a_token(lm, dtype, gradients=with_gradients)
    )
    memory_parts = [
        f"weights {weights_of_copies / _GIB:.1f}",
        f"a pass of {tokens_per_pass:,} tokens {activation_bytes / _GIB:.1f}",
    ]
    moment_bytes = 0
    moment_layers = _moment_layers(params)
    if moment_layers:
        # C [f, f] in fp32, and its factor in fp64.
        moment_bytes = copies * len(moment_layers) * lm.layout.intermediate_size**2 * (4 + 8)
        memory_parts.append(f"second moments {moment_bytes / _GIB:.1f}")
    peak_bytes = weights_of_copies + activation_bytes + moment_bytes
    estimate_in_words = (
        f"peak memory of {lm.name}: about {peak_bytes / _GIB:.1f} GiB by an estimate"
        f" ({', '.join(memory_parts)})"
    )
    if free_memory is not None and weights_of_copies <= free_memory < peak_bytes:
        estimate_in_words += (
            f"; {free_memory / _GIB:.1f} are free, so batches will be smaller and slower"
        )
    return Finding(estimate_in_words)


def _moment_layers(params: NotebookParams) -> set[int]:
    """Layers whose second moments the run's editors solve with."""
    layers: set[int] = set()
    for editor in {method.partition("+")[0] for method in params.methods}:
        hyperparameters = base_hyperparameters(
            editor, params.values["model"], params.values["preset"]
        )
        layers.update(hyperparameters.moment_layers)
    return layers


def _weights(model_name: str, here: bool) -> Iterator[Finding]:
    if model_name.startswith(SHAPE_PREFIX):
        yield Finding(f"weights of {model_name}: random, nothing to fetch")
    elif model_name in PACKAGED_WEIGHTS:
        yield from _packaged_weights(model_name)
    elif Path(model_name).expanduser().is_dir():
        yield Finding(f"weights of {model_name}: local folder")
    else:
        yield from _hub_weights(model_name, here)


def _packaged_weights(model_name: str) -> Iterator[Finding]:
    if weights_folder(model_name).exists():
        yield Finding(f"weights of {model_name}: cached")
        return
    packaged = PACKAGED_WEIGHTS[model_name]
    yield Finding(
        f"weights of {model_name}: to be fetched: {_megabytes(packaged.size)} as Python wheels"
    )
    if packaged.terms:
        yield Finding(
            f"{model_name} comes under the {packaged.licence} ({packaged.terms}): read them, then"
            f" python -m helpers fetch {model_name} --accept-terms",
            Kind.FIRST,
        )


def _hub_weights(model_name: str, here: bool) -> Iterator[Finding]:
    hub_name = model_source(model_name)
    if _in_the_hubs_cache(hub_name):
        yield Finding(f"weights of {model_name}: in the hub's cache as {hub_name}")
        return
    bf16_size = weight_bytes(model_name, "bfloat16")
    size_in_words = ""
    if bf16_size:
        size_in_words = (
            f", {bf16_size / 1e9:.0f} GB or, if stored in fp32, {2 * bf16_size / 1e9:.0f} GB"
        )
    yield Finding(
        f"weights of {model_name}: to be fetched from the hub as {hub_name}{size_in_words}"
    )
    if here:
        yield from _hub_access(hub_name)


def _in_the_hubs_cache(name: str) -> bool:
    """Whether a model's configuration and all of its weights are there."""

    def cached_path(file_name: str) -> Path | None:
        path = try_to_load_from_cache(name, file_name)
        return Path(path) if isinstance(path, str) else None

    if cached_path("config.json") is None:
        return False
    if cached_path("model.safetensors"):
        return True
    index_path = cached_path("model.safetensors.index.json")
    if index_path is None:
        return False
    shard_files = set(json.loads(index_path.read_text("utf-8"))["weight_map"].values())
    return all(map(cached_path, shard_files))


def _hub_access(name: str) -> Iterator[Finding]:
    """Whether the hub would give this user a model, by the header of its configuration."""
    other_way = "or name a folder that holds the model"
    if is_offline_mode():
        problem_in_words = (
            f"{name} is not in the hub's cache, and offline mode is set: unset HF_HUB_OFFLINE"
        )
        yield Finding(f"{problem_in_words}, {other_way}", Kind.LACKING)
        return
    refusal = _refusal(name)
    if refusal is None:
        yield Finding(f"hub: reached, {name} may be fetched")
    elif isinstance(refusal, GatedRepoError):
        remedy = f"accept its terms at {hf_hub_url(name, '').partition('/resolve/')[0]}, then hf auth login"
        yield Finding(f"{name} is gated: {remedy}, {other_way}", Kind.LACKING)
    elif isinstance(refusal, RepositoryNotFoundError):
        problem_in_words = (
            f"the hub has no model {name}, or keeps it private: correct the name, or hf auth login"
        )
        yield Finding(problem_in_words, Kind.WRONG)
    elif isinstance(refusal, EntryNotFoundError):
        yield Finding(f"{name} on the hub has no config.json: name another model", Kind.WRONG)
    else:
        cause = " ".join(f"{type(refusal).__name__}: {refusal}".split())[:200]
        problem_in_words = (
            f"the hub, from where {name} is to be fetched, cannot be reached ({cause}): connect"
        )
        yield Finding(f"{problem_in_words}, {other_way}", Kind.LACKING)


def _refusal(name: str) -> Exception | None:
    """What the hub answers instead of a model's configuration; None where it hands it out.

    A thread asks, because no timeout covers a name server.
    """
    refusals: list[Exception] = []

    def ask() -> None:
        try:
            get_hf_file_metadata(hf_hub_url(name, "config.json"), timeout=_PATIENCE)
        except Exception as error:
            refusals.append(error)

    thread = Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_PATIENCE + 1)
    if thread.is_alive():
        return TimeoutError(f"no answer in {_PATIENCE:.0f} seconds")
    return refusals[0] if refusals else None


def _official_files_of(params: NotebookParams) -> list[Resource]:
    """Official files that the parameters name."""
    official_files_named: dict[Resource, None] = {}  # each once, in this order
    for parameter in ("dataset", "source", "layout", "benchmark"):
        official_files_named |= dict.fromkeys(files_of(str(params.values.get(parameter))))
    return list(official_files_named)


def _official_data(params: NotebookParams) -> Iterator[Finding]:
    files = _official_files_of(params)
    if files:
        yield from _data(files)


def _findings_about_moments(params: NotebookParams) -> Iterator[Finding]:
    if params.values.get("corpus") == "wikipedia":
        missing_package = (
            "" if find_spec("datasets") else "; needs pip install --editable '.[wikipedia]'"
        )
        offline_words = "; offline mode is set" if is_offline_mode() else ""
        corpus_words = f"corpus wikipedia: {DUMP}, where the hub's cache lacks it"
        yield Finding(f"{corpus_words}{missing_package}{offline_words}")
    if _moment_layers(params):
        moments_words = f"second moments over {params.values['corpus']}"
        yield Finding(
            f"{moments_words}: made before the first edit where package and cache lack them"
        )


def _held_out(params: NotebookParams) -> Iterator[Finding]:
    """Statistics that editors measure on held-out requests."""
    for editor in dict.fromkeys(method.partition("+")[0] for method in params.methods):
        hyperparameters = base_hyperparameters(
            editor, params.values["model"], params.values["preset"]
        )
        if count := hyperparameters.measured_requests:
            yield Finding(
                f"{method_label(editor)}: statistics of {count} held-out requests, made before the first"
                " edit where the cache lacks them"
            )


@dataclass(frozen=True)
class _Download:
    """What is written to a folder, at least."""

    what: str
    folder: Path
    size: int  # bytes


def _disk(params: NotebookParams) -> Iterator[Finding]:
    """A problem for each disk that is too full for what is fetched."""
    downloads_by_disk: dict[int, list[_Download]] = {}
    for download in _downloads(params):
        disk = _existing(download.folder).stat().st_dev
        downloads_by_disk.setdefault(disk, []).append(download)
    for downloads in downloads_by_disk.values():
        folder = downloads[0].folder
        needed_bytes = sum(download.size for download in downloads)
        free_space = shutil.disk_usage(_existing(folder)).free
        if needed_bytes > free_space:
            download_names = ", ".join(download.what for download in downloads)
            yield Finding(
                f"disk of {folder}: {download_names} take {needed_bytes / _GIB:.1f} GiB or more while"
                f" fetched, {free_space / _GIB:.1f} are free: make room, or move HELPERS_CACHE and HF_HOME",
                Kind.LACKING,
            )


def _downloads(params: NotebookParams) -> Iterator[_Download]:
    model_name = params.values["model"]
    cache = cache_folder()
    packaged_name = SHAPE_TOKENIZER if model_name.startswith(SHAPE_PREFIX) else model_name
    if packaged_name in PACKAGED_WEIGHTS:
        packaged_weights = PACKAGED_WEIGHTS[packaged_name]
        if not weights_folder(packaged_name).exists():
            yield _Download(
                f"model {packaged_name}",
                cache,
                2 * packaged_weights.size + packaged_weights.unpacked,
            )
    elif not Path(model_name).expanduser().is_dir() and not _in_the_hubs_cache(
        model_source(model_name)
    ):
        bf16_size = weight_bytes(model_name, "bfloat16") or 0
        yield _Download(f"model {model_name}", Path(HF_HUB_CACHE), bf16_size)
    for resource in _official_files_of(params):
        try:
            locate(resource, download=False)
        except NotHereError:
            yield _Download(f"data {resource.name}", cache, resource.size or 0)


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def _megabytes(size: int | None) -> str:
    return "size unknown" if size is None else f"{size / 1e6:.1f} MB"
