"""A notebook's result in twenty seconds, and the Markdown it becomes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from helpers.paths import NOTEBOOKS, REPOSITORY
from helpers.results.text import Evidence, corrected_verdicts

_USUAL = re.compile(r"^# Usual time: (\d+) s", re.MULTILINE)


class UnsupportedError(Exception):
    """A sentence claims what the tables no longer show."""


@dataclass(frozen=True)
class Headline:
    """What a notebook (``03``) finds: in a few words, a sentence, at most four numbers, each with what it is
    of, and a figure's name; of which models, data and records (``scope``).
    """

    number: str
    finding: str
    sentence: str
    numbers: tuple[tuple[str, str], ...]
    figure: str
    scope: str

    @property
    def notebook(self) -> str:
        """The notebook's file name without its ending."""
        (path,) = NOTEBOOKS.glob(f"{self.number}_*.ipynb")
        return path.stem

    def box(self) -> str:
        """The box under the notebook's title."""
        cells = [f"| {what} | {value} |" for what, value in self.numbers]
        time = f"The quick run takes about {self._minutes()} on one slow core."
        lines = [
            f"> **The result in twenty seconds. {self.finding}.** {self.sentence}",
            *("", "| | |", "|---|---|", *cells, ""),
            f"*{self.scope} {time}*",
            *("", f"![{self.finding}](../figures/{self.figure}.png)"),
        ]
        return "\n".join(lines)

    def line(self) -> str:
        """One item of the README's list, with the first number; the notebook's box explains it."""
        what, value = self.numbers[0]
        link = f"[{self.number}](notebooks/{self.notebook}.ipynb)"
        return f"- **{self.finding}** ({what}: {value}) → {link}"

    def _minutes(self) -> str:
        text = (REPOSITORY / "params" / "quick" / f"{self.notebook}.yaml").read_text("utf-8")
        (seconds,) = _USUAL.findall(text)
        minutes = max(1, round(int(seconds) / 60))
        return "a minute" if minutes == 1 else f"{minutes} minutes"


def holds(evidence: Sequence[Evidence], *measures: str) -> list[Evidence]:
    """The tests of these measures, all of which must hold when all of the evidence is corrected for."""
    tested = {item.measure: item for item in evidence}
    verdicts = dict(zip(tested, corrected_verdicts(evidence), strict=True))
    for measure in measures:
        if (verdict := verdicts.get(measure, "not tested")) != "holds":
            raise UnsupportedError(f"{measure}: {verdict}; the headline states that it holds")
    return [tested[measure] for measure in measures]


def ranged(of: Mapping[Any, Any]) -> str:
    """A mean with its interval and n."""
    return "{mean:z.2f} [{low:z.2f}, {high:z.2f}] (n = {n})".format_map(of)
