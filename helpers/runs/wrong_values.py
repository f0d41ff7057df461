"""Values of a params file that its notebook would refuse, found before anything is fetched or run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from helpers.construction.sources import open_source
from helpers.data import knowgic
from helpers.data.choose import by_case_id
from helpers.data.fetch import FetchError, locate
from helpers.data.klob import load_consistency, load_relevance
from helpers.data.peak import load_peak
from helpers.editing.variants import method_label
from helpers.metrics.klob_sets import located_count
from helpers.models.load import torch_device, torch_dtype
from helpers.runs.fetching import OFFICIAL
from helpers.runs.params import ParamsError

_CHOICES: dict[str, tuple[str | int, ...]] = {
    "mode": ("sequential", "independent"),
    "rule": ("rank", "threshold"),
    "random_type": ("same", "any"),
    "link_steps": (1, 2),
}
_AT_LEAST_ONE = ("samples", "examples", "most_rows", "per_relation", "temporal_per_relation")
_MANY = ("methods", "editors", "fairer", "others", "said", "sequences")
_ONE = ("method", "editor")


def methods_of(params: dict[str, Any]) -> list[str]:
    """Every method that the params name."""
    many = [name for key in _MANY for name in params.get(key, ())]
    return many + [params[key] for key in _ONE if key in params]


def wrong_values(notebook: str, params: dict[str, Any]) -> Iterator[str]:
    """One sentence for each value that the notebook would refuse; data not here yet is not judged."""
    for check, value in _checks(notebook, params):
        try:
            check(value)
        except FetchError:
            continue
        except ValueError as error:
            yield str(error)


def check_values(file: Path, notebook: str, params: dict[str, Any]) -> None:
    """Refuse a params file with values that its notebook would refuse.

    Raises:
        ParamsError: with the file and every such value.
    """
    if wrong := list(wrong_values(notebook, params)):
        raise ParamsError(f"{file}: " + "; ".join(wrong))


def _checks(notebook: str, params: dict[str, Any]) -> Iterator[tuple[Callable[..., Any], Any]]:
    """Functions that raise for a wrong value, each with what it looks at."""
    yield torch_dtype, params.get("dtype", "float32")
    yield torch_device, str(params.get("device", "cpu"))
    for name in methods_of(params):
        yield method_label, name
    if "dataset" in params:
        yield _peak, params
    if "layout" in params:
        yield _edits, params
    if "source" in params:
        yield (_construction, params["source"]) if notebook.startswith("02") else (_klob, params)
    for name in filter(params.__contains__, _CHOICES):
        yield partial(_choice, name), params[name]
    for name in filter(params.__contains__, _AT_LEAST_ONE):
        yield partial(_at_least, 1, name), params[name]
    for name, least in (("checkpoints", 1), ("neighbours", 0)):
        for value in params.get(name, ()):
            yield partial(_at_least, least, name), value
    if "share" in params:
        yield partial(located_count, 1), params["share"]


def _peak(params: dict[str, Any]) -> None:
    _at_hand(str(params["dataset"]).partition("[")[0])
    data = load_peak(params["dataset"], limit=params.get("records"))
    if "case_id" in params:
        by_case_id(data.records, params["case_id"])


def _edits(params: dict[str, Any]) -> None:
    layout = params["layout"]
    if layout in knowgic.LAYOUTS:
        locate(knowgic.LAYOUTS[layout], download=False)
    edits = knowgic.load_edits(layout)
    chosen = "edit" if "edit" in params else "case_id"  # notebook 07 has both
    if chosen in params:
        by_case_id(edits, params[chosen])


def _klob(params: dict[str, Any]) -> None:
    """The benchmark, and the examples of it that are looked at closely."""
    source = params["source"]
    for name, subtask, load in (("fact", "c", load_consistency), ("chain", "r", load_relevance)):
        if source == "klob":
            _at_hand(f"klob-{subtask}")
        count = len(load(source))
        if not 0 <= params[name] < count:
            last = count - 1
            raise ValueError(f"{name}: no example {params[name]} of KLoB-{subtask}; 0 to {last}")


def _choice(name: str, value: str | int) -> None:
    if value not in _CHOICES[name]:
        raise ValueError(f"{name}: {value!r} is none of {', '.join(map(str, _CHOICES[name]))}")


def _at_least(least: int, name: str, value: int | None) -> None:
    if value is not None and value < least:
        raise ValueError(f"{name}: must be at least {least}, not {value}")


def _construction(source: str) -> None:
    """Only what is no source at all is opened, to hear so: the others may be large or far."""
    known = ("packaged", "codex-s", "dyknow", "wikidata")
    if source not in known and not source.startswith("http") and not Path(source).exists():
        open_source(source)


def _at_hand(name: str) -> None:
    """Raise ``FetchError`` for an official file that would have to be downloaded."""
    if name in OFFICIAL:
        locate(OFFICIAL[name], download=False)
