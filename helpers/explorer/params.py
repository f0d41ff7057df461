"""Parameters of notebook 07, the explorer, and what their values must be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar

from helpers.editing.editors import EDITORS
from helpers.params import check_one_of
from helpers.peak.params import PeakParams
from helpers.thinkedit.params import check_edit, local_edits
from helpers.values import ValueChecks


class ExplorerParams(PeakParams):
    """Parameters of notebook 07."""

    value_checks: ClassVar[ValueChecks] = {
        **PeakParams.value_checks,
        "editor": partial(check_one_of, "editor", known=EDITORS),
    }

    @property
    def methods(self) -> list[str]:
        """The editor, with APP where it is asked for."""
        editor = self.values["editor"]
        return [f"{editor}+app" if self.values["app"] else editor]

    def joint_checks(self) -> Iterator[Callable[[], object]]:
        """The checks of all PEAK notebooks, then of the layout, the record and the layout's edit."""
        yield from super().joint_checks()
        yield partial(local_edits, self.values["layout"])
        yield self.check_case
        yield partial(check_edit, self.values["layout"], self.values["edit"])
