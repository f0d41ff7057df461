"""How PEAK records are made, and what a construction returns."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from helpers.data.peak_record import PeakRecord


@dataclass(frozen=True, kw_only=True)
class PeakSettings:
    """How records are made; the defaults follow the sizes of the official files.

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
