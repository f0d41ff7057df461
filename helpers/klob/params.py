"""Parameters of notebook 05, KLoB, and what their values must be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar

from helpers import UserError
from helpers.fetch import require_local
from helpers.klob.examples import read_examples
from helpers.klob.metrics import SHARES
from helpers.locating.locators import make_locator
from helpers.params import check_one_of
from helpers.paths import in_repository, run_name
from helpers.results.archive import Archive
from helpers.values import NotebookParams, ValueChecks, at_least


class KlobParams(NotebookParams):
    """Parameters of notebook 05."""

    value_checks: ClassVar[ValueChecks] = {
        **NotebookParams.value_checks,
        **at_least(1, "examples", "late", "permutations", "layer_step"),
        **at_least(0, "counts", "edited_facts", "located_edits"),
        "locators": make_locator,
        "share": partial(check_one_of, "share", known=SHARES),
    }

    @property
    def methods(self) -> list[str]:
        """ROME at every layer; none where no fact is edited, or the model fills masks."""
        edited_count = self.values["edited_facts"] + self.values["located_edits"]
        return ["rome"] if edited_count and not self.values["masked"] else []

    def joint_checks(self) -> Iterator[Callable[[], object]]:
        """The method, the examples and the published runs."""
        yield from super().joint_checks()
        yield self._check_examples
        yield self._check_editable
        for name in self.values["published"]:
            run = run_name(name, self.values["source"])
            yield partial(Archive(in_repository(self.values["stored"])).get, run)

    def _check_editable(self) -> None:
        if self.values["located_edits"] and self.values["masked"]:
            raise UserError("located_edits: a model that fills masks is not edited; give 0")
        for name in self.values["locators"] if self.values["located_edits"] else ():
            if make_locator(name).tokens == "none":
                raise UserError(f"locators: {name} points to no fact's layer; omit it")

    def _check_examples(self) -> None:
        require_local(self.values["source"])
        read_examples("consistency", self.values["source"])
