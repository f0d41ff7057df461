"""Parameters of notebooks 04, PEAK's ablations, and 08, generated text, and what their values must be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar

from helpers import UserError
from helpers.editing.editors import EditorError, Variant, method_label, split_method
from helpers.paths import run_name
from helpers.peak.params import PeakParams
from helpers.results.archive import archive
from helpers.values import ValueChecks, at_least

_METHOD_LISTS = (
    "editors",
    "fairer",
    "others",
    "sequences",
    "scaled",
    "unscaled",
    "leaks",
)


def check_has_layers(method: str) -> None:
    """Refuse an editor that edits in no layers of its preset."""
    editor, _ = split_method(method)
    if "layers" not in editor.hyperparameters.model_fields:
        raise EditorError(
            f"{method}: {editor.label} has no layers in which the keys of subjects are read; name an"
            " editor that has"
        )


class AblationsParams(PeakParams):
    """Parameters of notebook 04."""

    value_checks: ClassVar[ValueChecks] = {
        **PeakParams.value_checks,
        **at_least(1, "records", "checkpoints", "subjects"),
        **at_least(0, "neighbours", "factors", "margins", "keep", "scales"),
        **dict.fromkeys(("sequences", "scaled", "unscaled"), method_label),
        "leaks": check_has_layers,  # in which keys are read
        # Studied with and without APP.
        **dict.fromkeys(
            ("editors", "fairer", "others", "held_out"), lambda name: method_label(f"{name}+app")
        ),
        # Edited back to all correct answers as well.
        "undone": lambda name: method_label(f"{name}+all-sum"),
    }

    @property
    def methods(self) -> list[str]:
        """Every method that a list names."""
        listed = [method for name in _METHOD_LISTS for method in self.values[name]]
        listed += [f"{editor}+app" for editor in self.values["held_out"]]
        return listed + [f"{editor}+all-sum" for editor in self.values["undone"]]

    def needed_lists(self) -> tuple[str, ...]:
        """The editors, where nothing else is to be published."""
        return () if self.values["others"] else ("editors",)

    def joint_checks(self) -> Iterator[Callable[[], object]]:
        """The checks of all PEAK notebooks, then of the published runs."""
        yield from super().joint_checks()
        yield self._check_scales
        yield self._check_published

    def _check_scales(self) -> None:
        """Refuse scales without the update itself, with which all others are compared."""
        scales = self.values["scales"]
        if self.values["scaled"] and (1.0 not in scales or len(set(scales) - {0.0}) < 2):
            raise UserError(f"scales {scales}: give 1 and another one")

    def _check_published(self) -> None:
        """Refuse a first model without stored ablations."""
        for name in self.values["published"][:1]:
            archive("ablations").get(run_name(name, "peak-cf"))


class GeneratedTextParams(PeakParams):
    """Parameters of notebook 08."""

    value_checks: ClassVar[ValueChecks] = {
        **PeakParams.value_checks,
        **at_least(1, "records", "samples"),
        **at_least(0, "keep"),
        **dict.fromkeys(("methods", "scorers", "ability"), method_label),
        "doses": Variant.parse,
    }

    @property
    def methods(self) -> list[str]:
        """Every method that a list names, or that a dose is a variant of."""
        listed = [
            method for name in ("methods", "scorers", "ability") for method in self.values[name]
        ]
        return listed + [dose.partition("@")[0] for dose in self.values["doses"]]

    def needed_lists(self) -> tuple[str, ...]:
        """The methods of the live part, where nothing is to be published."""
        is_published = any(self.values[name] for name in ("scorers", "ability", "doses"))
        return () if is_published else ("methods",)

    def joint_checks(self) -> Iterator[Callable[[], object]]:
        """The checks of all PEAK notebooks, then of the published runs."""
        yield from super().joint_checks()
        for name in self.values["published"]:
            yield partial(self._check_published, name)

    def _check_published(self, name: str) -> None:
        """Refuse a model without stored scorers."""
        archive("scorers").get(run_name(name, "peak-cf"))
