"""Who decides where the paper asks human experts: a recording, nobody, or a person at a panel.

The pipeline yields a ``Review`` and goes on with a ``Decision``. Two occasions: *refine* (the object did
not occur in the responses; give another question or path, or discard) and *prune* (which extracted
triplets are facts, and which are missing). The person's panel is ``helpers.thinkedit.panel``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from helpers.scoring.naming import mentions
from helpers.thinkedit.graph import Triplet, check_triplet
from helpers.thinkedit.journal import JournalError, decisions

Occasion = Literal["refine", "prune"]


@dataclass(frozen=True)
class Review:
    """Something to decide: ``path`` is the triplet or chain behind the question."""

    occasion: Occasion
    question: str
    path: tuple[Triplet, ...]
    responses: tuple[str, ...]
    candidates: tuple[Triplet, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """JSON values, as the journal keeps them."""
        return asdict(self)


@dataclass(frozen=True)
class Decision:
    """What was decided.

    ``discard`` gives up the question (refine only), ``alias`` accepts a word of the responses as another
    name of the object (refine only). Otherwise ``question`` and ``path`` are asked again (refine), or
    ``triplets`` are kept (prune).
    """

    discard: bool = False
    question: str = ""
    path: tuple[Triplet, ...] = ()
    triplets: tuple[Triplet, ...] = ()
    alias: str = ""

    def as_json(self) -> dict[str, Any]:
        """JSON values, as the journal keeps them."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Decision:
        """Read ``as_json`` back."""
        paths = {
            name: tuple(Triplet(**triplet) for triplet in value[name])
            for name in ("path", "triplets")
        }
        return cls(
            bool(value["discard"]), str(value["question"]), **paths, alias=value.get("alias", "")
        )

    def check(self, review: Review) -> None:
        """Raise ``ValueError`` where the decision does not answer the review, or holds no facts."""
        for triplet in (*self.path, *self.triplets):
            check_triplet(triplet)
        if review.occasion == "prune" and (self.discard or self.path or self.alias):
            raise ValueError("a pruning decision lists the triplets to keep, nothing else")
        if self.alias:
            if not any(mentions(response, (self.alias,)) for response in review.responses):
                raise ValueError(
                    f"no response to refine holds {self.alias!r}: a synonym must occur"
                )
        elif review.occasion == "refine" and not self.discard:
            if not self.question.strip() or not self.path:
                raise ValueError("a refinement needs a question and a triplet or chain")
            ends = zip(self.path, self.path[1:], strict=False)
            if any(a.key[2] != b.key[0] for a, b in ends):
                raise ValueError("the refined chain does not hang together")


class Reviewer(Protocol):
    """Takes decisions without waiting for anybody."""

    def decide(self, review: Review) -> Decision:
        """Decide one review."""
        ...


class AutomaticReviewer:
    """Accepts what validates: keeps every extracted triplet, discards what does not validate."""

    def decide(self, review: Review) -> Decision:
        """Keep all candidates, or discard."""
        if review.occasion == "prune":
            return Decision(triplets=review.candidates)
        return Decision(discard=True)


class RecordedReviewer:
    """Repeats the decisions of an earlier journal, whichever model answers now.

    A decision is found by its occasion, question, path and candidates; responses may differ. Where a
    review came up several times, its decisions are repeated in their order, the last one from then on.

    Args:
        path: journal of the run in which the decisions were taken.
        otherwise: who decides reviews that the journal does not hold; None refuses them.
    """

    def __init__(self, path: Path, *, otherwise: Reviewer | None = None) -> None:
        self._path = path
        self._otherwise = otherwise
        self._decisions: dict[Review, list[Decision]] = {}
        for entry in decisions(path):
            review = _without_responses(_review_from_json(entry["review"]))
            self._decisions.setdefault(review, []).append(Decision.from_json(entry["decision"]))

    def decide(self, review: Review) -> Decision:
        """Look the decision up.

        Raises:
            JournalError: the journal holds none and there is nobody else to ask.
        """
        recorded = self._decisions.get(_without_responses(review))
        if recorded:
            return recorded.pop(0) if len(recorded) > 1 else recorded[0]
        if self._otherwise is None:
            raise JournalError(
                f"{self._path} holds no decision for {review.occasion} {review.question!r};"
                " review it interactively, or name a reviewer for such cases (otherwise=)"
            )
        return self._otherwise.decide(review)


def _without_responses(review: Review) -> Review:
    return replace(review, responses=())


def _review_from_json(value: Mapping[str, Any]) -> Review:
    paths = {
        name: tuple(Triplet(**triplet) for triplet in value[name])
        for name in ("path", "candidates")
    }
    return Review(
        occasion=value["occasion"],
        question=value["question"],
        responses=tuple(value["responses"]),
        **paths,
    )
