"""How PEAK records are made, and what a construction returns."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from helpers.params import one_of, within
from helpers.peak.schema import PeakRecord

_DATE = re.compile(r"\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?")


@dataclass(frozen=True, kw_only=True)
class PeakSettings:
    """How records are made; the defaults follow the sizes of the official files.

    Raises:
        ValueError: a number below its bound, fewest above most, or an unknown choice.

    Attributes:
        correct: fewest and most correct answers (10–20 in PEAK-CF, 4–15 in PEAK-T).
        hard: fewest and most hard false answers (5–19 in PEAK-CF, 1–15 in PEAK-T).
        random_false: number of random false answers.
        random_type: type of the random ones: ``"same"`` as o* (Appendix A.1), or ``"any"``.
        link_steps: 1: hard false answers are linked with o* directly (the paper); 2: where there are
            too few, entities that share a neighbour with o* count too.
        paraphrases: number of paraphrases.
        locality: fewest and most locality prompts.
        per_relation: most records of one relation; None for all.
        seed: of all draws.
    """

    correct: tuple[int, int] = (5, 20)
    hard: tuple[int, int] = (5, 15)
    random_false: int = 10
    random_type: str = "same"
    link_steps: int = 2
    paraphrases: int = 2
    locality: tuple[int, int] = (1, 6)
    per_relation: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("correct", "hard", "locality"):
            fewest, most = getattr(self, name)
            within(f"fewest of {name}", fewest, 0)
            within(f"most of {name}", most, max(fewest, 1))
        for name in ("random_false", "paraphrases", "seed"):
            within(name, getattr(self, name), 0)
        one_of("random_type", self.random_type, ("same", "any"))
        one_of("link_steps", self.link_steps, (1, 2))
        if self.per_relation is not None:
            within("per_relation", self.per_relation, 1)


def temporal_span(cutoff: str, until: str | None) -> None:
    """Refuse dates between which no temporal edit can begin; years, months and days are dates.

    Raises:
        ValueError: one is no date, or they are the wrong way round.
    """
    for name, date in (("cutoff", cutoff), ("until", until)):
        if date is not None and not _DATE.fullmatch(date):
            raise ValueError(
                f"{name}: {date!r} is no date; write a year, '2022-01' or '2022-01-31'"
            )
    if until is not None and until <= cutoff:
        raise ValueError(f"until: {until!r} must come after the cutoff {cutoff!r}")


STEPS = (
    "relation has templates",
    "subjects told apart by name",
    "new answer after the cut-off",
    "enough correct answers",
    "object to append",
    "hard and random false answers",
    "locality prompts",
    "within the relation's share",
)


@dataclass(frozen=True)
class Rejection:
    """A fact that became no record, and at which step."""

    subject: str
    relation: str
    step: str


@dataclass(frozen=True)
class Built:
    """Records, and every fact that was lost on the way."""

    records: tuple[PeakRecord, ...]
    rejections: tuple[Rejection, ...]

    def funnel(self) -> list[tuple[str, int]]:
        """Facts left after each step that loses any, in the order of the steps."""
        lost = Counter(rejection.step for rejection in self.rejections)
        left = len(self.records) + len(self.rejections)
        rows = [("facts (subject, relation)", left)]
        for step in (step for step in STEPS if lost[step]):
            left -= lost[step]
            rows.append((step, left))
        return rows
