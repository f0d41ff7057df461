"""An edit with the implication chains that lead back to the original fact (ThinkEdit)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Fact:
    """One step: subject, cloze ``prompt`` with one ``{}``, object, and the direct question."""

    subject: str
    prompt: str
    object: str
    question: str

    @property
    def cloze(self) -> str:
        """The prompt about its subject, without a trailing blank."""
        return self.prompt.replace("{}", self.subject).strip()

    @property
    def key(self) -> tuple[str, str, str]:
        """Identity of the fact: case-folded subject, prompt and object.

        The question's wording varies; another wording of the prompt makes another fact.
        """
        return self.subject.casefold(), self.prompt, self.object.casefold()


@dataclass(frozen=True)
class Chain:
    """Facts that lead from the edit's subject to its original object, step by step."""

    facts: tuple[Fact, ...]

    def __len__(self) -> int:
        return len(self.facts)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The entities passed, subject first."""
        return (self.facts[0].subject, *(fact.object for fact in self.facts))


@dataclass(frozen=True)
class Edit:
    """A requested edit with its chains; ``original`` and ``new`` are the objects before and after."""

    case_id: int
    subject: str
    prompt: str
    original: str
    new: str
    chains: tuple[Chain, ...]

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Distinct facts of the graph, in the order of their *last* appearance on the chains.

        Stored tables number facts in this order (``item``). Of several wordings of a fact's question
        the first counts.
        """
        distinct = {
            fact.key: fact for chain in reversed(self.chains) for fact in reversed(chain.facts)
        }
        return tuple(reversed(distinct.values()))

    @property
    def direct_fact(self) -> Fact | None:
        """The edited fact as its one-step chain words it; a few edits of the latest layout lack one."""
        return next((chain.facts[0] for chain in self.chains if len(chain) == 1), None)

    @property
    def broader_context(self) -> tuple[Fact, ...]:
        """Distinct facts about other subjects than the edited one: what an edit should preserve."""
        own = self.subject.casefold()
        return tuple(fact for fact in self.facts if fact.subject.casefold() != own)


def chain_lengths(edits: Sequence[Edit]) -> dict[int, int]:
    """Number of chains of each length over all edits (the paper's Table 4)."""
    lengths = Counter(len(chain) for edit in edits for chain in edit.chains)
    return dict(sorted(lengths.items()))
