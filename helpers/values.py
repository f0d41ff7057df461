"""What a parameter's value must be, checked before anything is fetched or a model is loaded.

Each notebook has a class of its parameters, in the room that it is about. The class adds what its
notebook needs to the checks that all notebooks share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from helpers import UserError
from helpers.editing.build import check_method
from helpers.editing.corpus import corpus_named
from helpers.editing.editors import method_label
from helpers.editing.mend import UntrainedError
from helpers.fetch import NotHereError, require_local
from helpers.models.load import model_source
from helpers.models.weights import torch_device, torch_dtype
from helpers.params import check_range
from helpers.results.archive import ArchiveError

# By the parameter: the check of its value or, in a list, of each item.
ValueChecks = Mapping[str, Callable[[Any], object]]

# Notebook: the module and the class of its parameters. A notebook that is not listed has the base's.
PARAMS_CLASSES = {
    "01_preliminaries": ("peak.params", "PreliminariesParams"),
    "02_peak_construction": ("peak.construction.params", "ConstructionParams"),
    "03_editing_runs": ("peak.params", "EditingRunsParams"),
    "04_app_ablations": ("behaviour.params", "AblationsParams"),
    "05_klob_localisation": ("klob.params", "KlobParams"),
    "06_thinkedit_case_study": ("thinkedit.params", "ThinkEditParams"),
    "07_explorer": ("explorer.params", "ExplorerParams"),
    "08_generated_text": ("behaviour.params", "GeneratedTextParams"),
    "09_editors": ("comparison.params", "ComparisonParams"),
    "10_lifelong": ("lifelong.plan", "LifelongParams"),
}

# Data set in the place of a PEAK one in a params file of notebook 03: the room of its benchmark, whose
# ``publish`` has ``benchmark_of`` and ``publication``.
BENCHMARKS = {"counterfact": "counterfact", "counterfact-val": "counterfact"}


def at_least(least: float, *names: str) -> ValueChecks:
    """Checks that the numbers of these names are not below ``least``."""
    return {name: partial(check_range, name, least=least) for name in names}


class RunBehind(NamedTuple):
    """A run of another notebook, which a params file asks for."""

    notebook_name: str
    values: dict[str, Any]  # of that notebook's parameters
    label: str  # that it is published under by default


class NotebookParams:
    """The values of a notebook's parameters, and what they must be.

    Every check raises a ``ValueError`` for what a run could not use. A subclass adds checks of single values
    to ``value_checks`` and checks of values next to others to ``joint_checks``, and states which lists may
    not be empty and which methods its notebook edits with.
    """

    value_checks: ClassVar[ValueChecks] = {
        "model": model_source,
        "dtype": torch_dtype,
        "device": torch_device,
        "corpus": corpus_named,
        **at_least(0, "seed"),
    }

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    @property
    def methods(self) -> list[str]:
        """Every method that a run edits with; none where it makes no edit."""
        return []

    def needed_lists(self) -> tuple[str, ...]:
        """Parameters that must list something."""
        return ()

    def run_behind(self) -> RunBehind | None:
        """The run of another notebook that is published for this one; None: the notebook's own."""
        return None

    def joint_checks(self) -> Iterator[Callable[[], object]]:
        """Checks of values next to others, for values that are right by themselves."""
        for method in self.methods:
            yield partial(check_method, method, self.values["model"], self.values["preset"])

    def check(self, file: Path, *, published: bool = True) -> None:
        """Refuse values that a run could not use, all at once; ``published`` tables must exist."""
        allowed_errors: tuple[type[Exception], ...] = () if published else (ArchiveError,)
        if any(not method.startswith("mend") for method in self.methods):
            allowed_errors = (*allowed_errors, UntrainedError)  # the others run without it
        wrong_values = [
            str(error) for error in self.wrong_values() if not isinstance(error, allowed_errors)
        ]
        if wrong_values:
            raise UserError(f"{file}: " + "; ".join(wrong_values))

    def wrong_values(self) -> list[ValueError]:
        """What is wrong with values, each thing once; data that is not here yet is not judged.

        A check of values next to others would only stumble over one that is wrong by itself: those checks
        run once the single values are right.
        """
        empty_lists = [name for name in self.needed_lists() if self.values[name] == []]
        if empty_lists:
            return [ValueError(f"{name}: name at least one") for name in empty_lists]
        return _errors_of(self._single_checks()) or _errors_of(self.joint_checks())

    def _single_checks(self) -> Iterator[Callable[[], object]]:
        for name, value in self.values.items():
            single_values = value if isinstance(value, list) else [value]
            for single_value in single_values:
                if single_value is not None and name in self.value_checks:
                    yield partial(self.value_checks[name], single_value)


class TableParams(NotebookParams):
    """Parameters of what has one table of the methods that ``methods`` lists."""

    value_checks: ClassVar[ValueChecks] = {
        **NotebookParams.value_checks,
        **at_least(1, "records"),
        "methods": method_label,
    }

    @property
    def methods(self) -> list[str]:
        """The methods of the table."""
        return list(self.values["methods"])

    def needed_lists(self) -> tuple[str, ...]:
        """The methods of the table."""
        return ("methods",)


class BenchmarkParams(TableParams):
    """Parameters of a benchmark: notebook 03's, which is about PEAK's records and cannot run them."""

    def joint_checks(self) -> Iterator[Callable[[], object]]:
        """Methods, parameters that are PEAK's alone, then the data set."""
        yield from super().joint_checks()
        yield self._check_others
        yield self._check_cases

    def check(self, file: Path, *, published: bool = True) -> None:
        """Refuse values that a run could not use, and a run of the notebook."""
        if published:
            raise UserError(
                f"{file}: dataset {self.values['dataset']} is not PEAK's, which the notebook is about;"
                f" make its table: python -m helpers publish {file}"
            )
        super().check(file, published=published)

    def _check_others(self) -> None:
        no_values: dict[str, Any] = {"keep": None, "placebo": [], "shown_half": False}
        for name, no_value in no_values.items():
            if self.values[name] != no_value:
                raise UserError(f"{name}: omit it, dataset {self.values['dataset']} has none")

    def _check_cases(self) -> None:
        require_local(self.values["dataset"])
        room = BENCHMARKS[self.values["dataset"]]
        import_module(f"helpers.{room}.publish").benchmark_of(self.values)


def benchmark_room(notebook: Path, values: Mapping[str, Any]) -> str:
    """The room of the benchmark that a params file of notebook 03 names, empty where it names a PEAK set."""
    if notebook.stem != "03_editing_runs":
        return ""
    return BENCHMARKS.get(str(values.get("dataset")), "")


def params_of(notebook: Path, values: Mapping[str, Any]) -> NotebookParams:
    """The values of a notebook's parameters, as the notebook's own class of them, or a benchmark's."""
    if benchmark_room(notebook, values):
        return BenchmarkParams(values)
    if notebook.stem not in PARAMS_CLASSES:
        return NotebookParams(values)
    module_path, class_name = PARAMS_CLASSES[notebook.stem]
    params_class: type[NotebookParams] = getattr(
        import_module(f"helpers.{module_path}"), class_name
    )
    return params_class(values)


def _errors_of(checks: Iterable[Callable[[], object]]) -> list[ValueError]:
    error_of_message: dict[str, ValueError] = {}
    for check in checks:
        try:
            check()
        except NotHereError:
            continue
        except ValueError as error:
            error_of_message.setdefault(str(error), error)
    return list(error_of_message.values())
