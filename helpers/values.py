"""What a parameter's value must be, said once and by the parameter's name.

A check is what the notebook hands the value to, a constructor or a loader that refuses what it cannot
use, or bounds of a number. Values are checked before anything is fetched and before a model is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_args

from helpers import UserError
from helpers.editing.build import check_method
from helpers.editing.corpus import corpus_named
from helpers.editing.editors import method_label
from helpers.editing.mend import UntrainedError
from helpers.fetch import NotHereError, files_of, locate
from helpers.klob.examples import Subtask
from helpers.klob.questions import chosen_examples
from helpers.klob.unit_sets import located_count
from helpers.locating.locators import make_locator
from helpers.models.load import model_source
from helpers.models.weights import torch_device, torch_dtype
from helpers.params import one_of, within
from helpers.paths import REPOSITORY, run_name
from helpers.peak.construction.run import settings_of
from helpers.peak.records import PeakData, load_peak
from helpers.records import by_case_id
from helpers.results.archive import Archive, ArchiveError, archive
from helpers.thinkedit.edits import Edit
from helpers.thinkedit.knowgic import edits_file, usable_edits
from helpers.thinkedit.run import MODES
from helpers.thinkedit.scores import ESTIMATORS
from helpers.triples.packaged_facts import packaged_triples
from helpers.triples.sources import check_source

Params = Mapping[str, Any]


class NotMadeError(UserError):
    """Raised for published tables that nobody has made yet, with the command that does."""


def check_values(file: Path, params: Params, *, published: bool = True) -> None:
    """Refuse values that the run could not use.

    Args:
        file: the params file, for the message.
        params: all parameters of its notebook.
        published: whether the published tables that the params name must be there.

    Raises:
        UserError: with the file and every such value.
    """
    passed_over: tuple[type[Exception], ...] = () if published else (NotMadeError,)
    if any(not method.startswith("mend") for method in methods_of(params)):
        passed_over = (*passed_over, UntrainedError)  # the others run without it
    if wrong := [str(e) for e in wrong_values(params) if not isinstance(e, passed_over)]:
        raise UserError(f"{file}: " + "; ".join(wrong))


def wrong_values(params: Params) -> list[ValueError]:
    """What is wrong with values, each thing once; data that is not here yet is not judged."""
    alone = [
        (partial(ALONE[name], each), ())
        for name, value in params.items()
        for each in (value if isinstance(value, list) else [value])
        if name in ALONE and value is not None
    ]
    together = [
        (TOGETHER[name], (value, params)) for name, value in params.items() if name in TOGETHER
    ]
    some = [name for name in _SOME if name != "editors" or not params.get("others")]
    empty = [ValueError(f"{name}: name at least one") for name in some if params.get(name) == []]
    return empty or _raised(alone) or _raised(together)


def _raised(checks: Iterable[tuple[Callable[..., object], tuple[Any, ...]]]) -> list[ValueError]:
    found: dict[str, ValueError] = {}
    for check, arguments in checks:
        try:
            check(*arguments)
        except NotHereError:
            continue
        except ArchiveError as error:
            found.setdefault(str(error), NotMadeError(str(error)))
        except ValueError as error:
            found.setdefault(str(error), error)
    return list(found.values())


def methods_of(params: Params) -> list[str]:
    """Every method that the params name; ROME with APP where a notebook leaves no choice."""
    many = [name for key in _METHODS for name in params.get(key, ())]
    one = [params[key] + "+app" * params.get("app", False) for key in _METHOD if key in params]
    return many + one or (["rome+app"] if "preset" in params else [])


def _preset(preset: str, params: Params) -> None:
    untrained = None
    for method in methods_of(params):
        try:
            check_method(method, params["model"], preset)
        except UntrainedError as error:
            untrained = error  # said last: the run can do without
    if untrained:
        raise untrained


def _here(name: str) -> str:  # or ``NotHereError``, where its files would have to be downloaded
    for resource in files_of(name):
        locate(resource, download=False)
    return name


def _records(params: Params) -> Any:
    if "dataset" not in params:
        return _edits(params["layout"], params)
    return _dataset(params["dataset"], params).records


def _edits(layout: str, params: Params) -> Iterable[Edit]:
    found = usable_edits(edits_file(_here(layout))).checked(skip_bad=_skipping(params))
    return found.records.values()


def _cases(numbers: list[int], params: Params) -> None:
    for number in numbers:  # of the paper's edits, whose stored graphs are drawn
        by_case_id(_edits("2025-06", params), number)


def _dataset(name: str, params: Params) -> PeakData:
    return load_peak(
        _here(name),
        limit=params.get("records"),
        strict_lists=params.get("strict_lists", True),
        skip_bad=_skipping(params),
    )


def _skipping(params: Params) -> bool:
    return bool(params.get("skip_bad_records", False))


def _examples(_fact: int, params: Params) -> None:
    if len(counts := params["counts"]) != 3:
        raise ValueError(f"counts: give three, of c, r and u, not {len(counts)}; 0 takes all")
    for subtask, count, name in zip(get_args(Subtask), counts, ("fact", "chain", ""), strict=True):
        klob, source = f"KLoB-{subtask[0]}", _here(params["source"])
        there, skipped = chosen_examples(subtask, source, skip_bad=_skipping(params))
        if name and params[name] not in there:
            raise ValueError(
                f"{name}: no example {params[name]} of {klob} to use; 0 to {max(there)}"
            )
        for key, wanted in (("counts", count), ("examples", params["examples"])):
            if wanted > (most := len(there) + len(skipped)):
                raise ValueError(f"{key}: {klob} has {most} examples, not {wanted}")


def _source(value: str, params: Params) -> None:
    if "relations" in params:  # KLoB's source is opened with its examples
        check_source(value)


def _relations(values: list[str], params: Params) -> None:
    # Those of other sources are known once they are read.
    if params["source"] == "packaged" and values:
        known = sorted({fact.relation for fact in packaged_triples()})
        for value in values:
            one_of("relations", value, known)


def _example_fact(subject: str, params: Params) -> None:
    relation = params["example_relation"]
    if params["source"] == "packaged" and not any(
        (fact.relation, fact.subject) == (relation, subject)
        or (f"re_{fact.relation}", fact.object) == (relation, subject)
        for fact in packaged_triples()
    ):
        raise ValueError(f"no packaged fact of {subject!r} by {relation!r}; give another example")


def _published(names: list[str], params: Params) -> None:
    if "stored" in params:  # notebooks 05 and 06
        source = params.get("source")
        for name in names:
            run = run_name(name, source) if source else name
            Archive(REPOSITORY / params["stored"]).get(run)
        return
    if len(names) not in (0, 2):
        raise ValueError(f"published: name two runs or models, or none, not {len(names)}")
    for name in names:
        if "said" in params:  # notebook 04
            archive("ablations").get(name)
        else:
            for data in ("peak-cf", "peak-t"):
                archive("peak").get(run_name(name, data))


_METHODS = ("methods", "editors", "fairer", "others", "said", "sequences")
_METHOD = ("method", "editor")
_CONSTRUCTION = (
    *("least_correct", "most_correct", "least_hard", "most_hard", "least_locality", "random_type"),
    *("link_steps", "per_relation", "cutoff", "until", "temporal_least_hard"),
    *("temporal_per_relation", "rule", "hard_share", "threshold", "least_known"),
)
_SOME = ("methods", "editors", "modes", "estimators")  # lists that may not be empty


def _told(name: str, text: str) -> None:
    if not text.strip():
        raise ValueError(f"{name}: give the words of the fact")


def _bounded(name: str, *bounds: float) -> Callable[[float], None]:
    return lambda number: within(name, number, *bounds)


# What looks at a value, or at each item of a list, by itself ...
ALONE: dict[str, Callable[[Any], object]] = {
    "model": model_source,
    "dtype": torch_dtype,
    "device": torch_device,
    "corpus": corpus_named,
    **dict.fromkeys((*_METHODS, *_METHOD), method_label),
    "share": partial(located_count, 1),
    "mode": partial(one_of, "mode", known=("sequential", "independent")),
    "seed": _bounded("seed", 0, 2**32 - 1),  # what numpy takes
    **{name: _bounded(name, 1) for name in ("records", "first", "examples", "most_rows")},
    "checkpoints": _bounded("checkpoints", 1),
    "modes": partial(one_of, "modes", known=MODES),
    "estimators": partial(one_of, "estimators", known=ESTIMATORS),
    **dict.fromkeys(("locators", "layers_only"), make_locator),
    # Each of these is made: a million of them is a slip, or days.
    **{name: _bounded(name, 1, 10**6) for name in ("samples", "permutations", "max_new_tokens")},
    **{name: _bounded(name, 0) for name in ("counts", "edited_facts", "temperature")},
    **{name: _bounded(name, 0) for name in ("neighbours", "factors", "margins")},
    **{name: partial(_told, name) for name in ("fact_subject", "fact_relation", "fact_answer")},
    "fact_question": lambda text: text,  # none is one that the model asks itself
}
# ... and what looks at it beside others, once each is right by itself.
TOGETHER: dict[str, Callable[[Any, Params], object]] = {
    "preset": _preset,
    "dataset": _dataset,
    **dict.fromkeys(("layout", "benchmark"), _edits),
    "case_id": lambda value, params: by_case_id(_records(params), value),
    "cases": _cases,
    "edit": lambda value, params: by_case_id(_edits(params["layout"], params), value),
    "source": _source,
    "relations": _relations,
    "example_subject": _example_fact,
    "example_relation": lambda value, params: _example_fact(params["example_subject"], params),
    **dict.fromkeys(_CONSTRUCTION, lambda _, params: settings_of(params)),
    **dict.fromkeys(("fact", "chain"), _examples),
    "published": _published,
}
