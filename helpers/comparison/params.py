"""Parameters of notebook 09, the comparison of editors, and what their values must be.

The notebook shows stored tables and makes no edit. A params file of it names what ``publish`` adds to them:
methods on PEAK's records, as notebooks 03 or 08 score them, or on what a model recalls, as notebook 06 does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

from helpers import UserError
from helpers.comparison.measures import FURTHER_EDITORS
from helpers.params import check_one_of, defaults_of
from helpers.paths import NOTEBOOKS, run_name
from helpers.results.archive import HALF_SHOWN, archive
from helpers.values import RunBehind, TableParams, ValueChecks, at_least, params_of

OF_ANSWERS, OF_TEXT, OF_ABILITY = "answers", "text", "ability"  # what is measured of PEAK's records
RECALLED_PREFIX = "recalled-"  # what a model recalls: its data set's name begins so


class ComparisonParams(TableParams):
    """Parameters of notebook 09."""

    value_checks: ClassVar[ValueChecks] = {
        **TableParams.value_checks,
        **at_least(1, "samples"),
        "measured": partial(check_one_of, "measured", known=(OF_ANSWERS, OF_TEXT, OF_ABILITY)),
    }

    def joint_checks(self) -> Iterator[Callable[[], object]]:
        """What is measured of which data, the checks of the run behind, and the published runs."""
        yield self._check_measured
        behind = self.run_behind()
        yield from params_of(
            NOTEBOOKS / f"{behind.notebook_name}.ipynb", behind.values
        ).joint_checks()
        for model_name in self.values["published"]:
            yield partial(archive("peak").get, run_name(model_name, "peak-cf"))

    def run_behind(self) -> RunBehind:
        """The run of notebook 03, 06 or 08 that is published, next to the one of its model and data."""
        names = ("model", "dtype", "device", "dequantise", "preset", "corpus", "seed")
        values: dict[str, Any] = {name: self.values[name] for name in names}
        values["published"] = []
        label = HALF_SHOWN if self.values["shown_half"] else FURTHER_EDITORS
        if self.values["dataset"].startswith(RECALLED_PREFIX):
            values |= {
                "benchmark": self.values["dataset"],
                "first": self.values["records"],
                "rivals": False,
                "shown_half": self.values["shown_half"],
                "methods": self.methods,
                "modes": ["independent"],
                "estimators": ["exact"],
            }
            return _behind("06_thinkedit_case_study", values, label)
        values |= {
            "dataset": self.values["dataset"],
            "records": self.values["records"],
            "results": self.values["results"],
            "shown_half": self.values["shown_half"],
        }
        if self.values["measured"] == OF_ANSWERS:
            values["methods"] = self.methods
            return _behind("03_editing_runs", values, label)
        if self.values["measured"] == OF_TEXT:
            values |= {"scorers": self.methods, "samples": self.values["samples"]}
            return _behind("08_generated_text", values, label)
        values["ability"] = self.methods
        return _behind("08_generated_text", values, label)

    def _check_measured(self) -> None:
        is_of_graphs = self.values["dataset"].startswith(RECALLED_PREFIX)
        if is_of_graphs and self.values["measured"] != OF_ANSWERS:
            raise UserError(
                f"measured: {self.values['measured']} is of PEAK's records, not of"
                f" {self.values['dataset']}; set answers"
            )


def _behind(notebook_name: str, values: dict[str, Any], label: str) -> RunBehind:
    defaults = defaults_of(NOTEBOOKS / f"{notebook_name}.ipynb")
    return RunBehind(notebook_name, {**defaults, **values}, label)
