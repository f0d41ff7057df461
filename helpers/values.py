"""What a parameter's value must be, checked before anything is fetched or a model is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from helpers import UserError
from helpers.editing.build import check_method
from helpers.editing.corpus import corpus_named
from helpers.editing.editors import EDITORS, Variant, method_label
from helpers.editing.mend import UntrainedError
from helpers.fetch import NotHereError, files_of, locate
from helpers.klob.examples import read_examples
from helpers.klob.metrics import SHARES
from helpers.locating.locators import make_locator
from helpers.models.load import model_source
from helpers.models.weights import torch_device, torch_dtype
from helpers.params import check_range, one_of
from helpers.paths import REPOSITORY, run_name
from helpers.peak.metrics import AnswerFilter
from helpers.peak.records import load_peak
from helpers.peak.tables import published_runs
from helpers.records import by_case_id
from helpers.results.archive import Archive, ArchiveError, archive
from helpers.thinkedit.knowgic import load_edits
from helpers.thinkedit.modes import MODES
from helpers.thinkedit.scores import ESTIMATORS
from helpers.triples.sources import check_source

Params = Mapping[str, Any]
Check = Callable[[], object]
_METHODS = ("methods", "placebo", "editors", "fairer", "others", "scorers", "sequences", "ability")
_SOME = {"methods": (), "modes": (), "estimators": (), "editors": ("others", "doses", "ability")}
# What looks at a value, or at each item of a list, by itself.
_ALONE: dict[str, Callable[[Any], object]] = {
    "model": model_source,
    "dtype": torch_dtype,
    "device": torch_device,
    "corpus": corpus_named,
    **dict.fromkeys((*_METHODS, "method"), method_label),
    "doses": Variant.parse,
    "editor": partial(one_of, "editor", known=EDITORS),
    **dict.fromkeys(("editors", "fairer", "others"), lambda e: method_label(f"{e}+app")),
    "locators": make_locator,
    "mode": partial(one_of, "mode", known=("sequential", "independent")),
    "modes": partial(one_of, "modes", known=MODES),
    "known_threshold": partial(check_range, "known_threshold", least=0, most=1),
    "share": partial(one_of, "share", known=SHARES),
    "estimators": partial(one_of, "estimators", known=ESTIMATORS),
}
_LEAST = {
    **dict.fromkeys(("records", "first", "examples", "most_rows", "checkpoints", "late"), 1),
    **dict.fromkeys(("samples", "permutations", "max_new_tokens"), 1),
    **dict.fromkeys(("seed", "counts", "edited_facts", "temperature", "keep"), 0),
    **dict.fromkeys(("neighbours", "factors", "margins"), 0),
}


def check_values(file: Path, params: Params, *, published: bool = True) -> None:
    """Refuse values that a run could not use, all at once; ``published`` tables must exist."""
    allowed: tuple[type[Exception], ...] = () if published else (ArchiveError,)
    if any(not method.startswith("mend") for method in methods_of(params)):
        allowed = (*allowed, UntrainedError)  # the others run without it
    if wrong := [str(e) for e in wrong_values(params) if not isinstance(e, allowed)]:
        raise UserError(f"{file}: " + "; ".join(wrong))


def wrong_values(params: Params) -> list[ValueError]:
    """What is wrong with values, each thing once; data that is not here yet is not judged."""
    needed = [name for name, instead in _SOME.items() if not any(map(params.get, instead))]
    empty = [ValueError(f"{name}: name at least one") for name in needed if params.get(name) == []]
    return (
        empty
        or _raised(_checks_of_single_values(params))
        or _raised(_checks_of_several_values(params))
    )


def makes_edits(params: Params) -> bool:
    """Whether a run edits: notebook 05 does not where it edits no fact, or the model fills masks."""
    return "preset" in params and bool(params.get("edited_facts", 1)) and not params.get("masked")


def methods_of(params: Params) -> list[str]:
    """Every method that the params name; ROME with APP where a notebook leaves no choice."""
    many = [n.partition("@")[0] for key in (*_METHODS, "doses") for n in params.get(key, ())]
    app = "+app" * params.get("app", False)
    one = [params[name] + app for name in ("method", "editor") if name in params]
    return many + one or ["rome" + "+app" * ("edited_facts" not in params)] * ("preset" in params)


def _raised(checks: Iterable[Check]) -> list[ValueError]:
    found: dict[str, ValueError] = {}
    for check in checks:
        try:
            check()
        except NotHereError:
            continue
        except ValueError as error:
            found.setdefault(str(error), error)
    return list(found.values())


def _checks_of_single_values(params: Params) -> Iterator[Check]:
    for name, value in params.items():
        for each in value if isinstance(value, list) else [value]:
            if each is not None and name in _ALONE:
                yield partial(_ALONE[name], each)
            if each is not None and name in _LEAST:
                yield partial(check_range, name, each, _LEAST[name])


def _checks_of_several_values(params: Params) -> Iterator[Check]:
    """What looks at a value next to others, once each is right by itself."""
    if makes_edits(params):
        for method in methods_of(params):
            yield partial(check_method, method, params["model"], params["preset"])
    if "dataset" in params:
        yield partial(_records, params)
    if "rule" in params:
        yield lambda: AnswerFilter(**{n: params[n] for n in ("rule", "hard_share", "threshold")})
    if "cutoff" in params:
        yield partial(_construction, params)
    for name in ("layout", "benchmark"):
        if name in params:
            yield partial(_edits_of_layout, params[name])
    if "case_id" in params:
        yield lambda: by_case_id(_records(params), params["case_id"])
    yield lambda: [by_case_id(_edits_of_layout("2025-06"), n) for n in params.get("cases", ())]
    if "edit" in params:
        yield lambda: by_case_id(_edits_of_layout(params["layout"]), params["edit"])
    if "source" in params and "relations" in params:
        yield partial(check_source, params["source"])
    elif "source" in params:  # KLoB's
        yield lambda: read_examples("consistency", _here(params["source"]))
    yield from (partial(_check_published, name, params) for name in params.get("published", ()))


def _here(name: str) -> str:  # or ``NotHereError``, where its files would have to be downloaded
    for resource in files_of(name):
        locate(resource, download=False)
    return name


def _construction(params: Params) -> None:
    from helpers.peak.construction.publish import settings_of  # which draws: matplotlib is slow

    settings_of(params)


def _edits_of_layout(layout: str) -> Iterable[Any]:
    return load_edits(_here(layout))


def _records(params: Params) -> Iterable[Any]:
    if "dataset" not in params:
        return _edits_of_layout(params["layout"])
    how = {n: params[n] for n in ("strict_lists", "keep", "seed") if n in params}
    return load_peak(_here(params["dataset"]), limit=params.get("records"), **how).records


def _check_published(name: str, params: Params) -> None:
    run = run_name(name, params.get("source", "peak-cf"))
    if "stored" in params:  # notebooks 05 and 06
        Archive(REPOSITORY / params["stored"]).get(run if "source" in params else name)
    elif "scorers" in params:  # notebook 04
        for paper in ("ablations", "scorers")[name != params["published"][0] :]:
            archive(paper).get(run)
    else:
        published_runs(params["published"])
