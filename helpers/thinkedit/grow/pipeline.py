"""Grow a model's own knowledge graph around a fact (Algorithms 1–3), one round at a time.

A round validates triplets and chains (1), reasons about the validated questions to find new triplets
(2), and adds validated triplets to the graph, whose new chains go into the next round (3). The paper's
Algorithm 1 sends validated chains to component 3, its section 5.1.2 only to component 2; the text is
followed. Questions of a round are asked together, so that a model can batch them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

import networkx as nx
from pydantic import TypeAdapter

from helpers.models.tokens import Prompt
from helpers.scoring.naming import Aliases, mentions, names_of
from helpers.thinkedit.graph import Triplet, add_triplet, simple_chains
from helpers.thinkedit.grow import language
from helpers.thinkedit.grow.journal import Journal, Respondent
from helpers.thinkedit.grow.people import Decision, Proposer, Review, Reviewer, proposed_triplets
from helpers.thinkedit.grow.wordings import Wordings

Path = tuple[Triplet, ...]
Key = tuple[str, str, str]
Steps = Generator[Review, Decision, None]
_DECISION = TypeAdapter(Decision)


@dataclass(frozen=True)
class Settings:
    """How far to grow, and how to ask.

    ``max_attempts`` is the paper's k_max, ``target_chains`` its stop at 100 (Harry Potter);
    ``chain_questions`` bounds the chains asked about per round, ``proposals`` a proposer's facts per
    question. Algorithm 2 takes one chain of thought per question (``thoughts``) and all its statements
    (``statements``); the paper gives no length, ``thought_tokens`` is ours.
    """

    max_attempts: int = 3
    max_steps: int = 5
    target_chains: int = 100
    max_rounds: int = 8
    responses: int = 1
    chain_questions: int = 20
    thoughts: int = 1
    thought_tokens: int = 256
    statements: int | None = None
    proposals: int = 8
    seed: int = 0


@dataclass
class Growth:
    """State of a run: the graph so far, its chains, what was given up, and why it stopped.

    Of triplets, by their keys: ``reasoned`` were read from the model's chains of thought, ``proposed`` are
    the proposer's about the entities asked for, ``offered`` were reviewed and ``kept`` passed.
    """

    fact: Triplet
    graph: nx.DiGraph = field(default_factory=nx.DiGraph)
    chains: list[Path] = field(default_factory=list)
    discarded: list[Path] = field(default_factory=list)
    rounds: int = 0
    stopped: str = ""
    reasoned: set[Key] = field(default_factory=set)
    proposed: set[Key] = field(default_factory=set)
    offered: set[Key] = field(default_factory=set)
    kept: set[Key] = field(default_factory=set)


def asks_for_all(question: str, path: Path, aliases: Aliases) -> bool:
    """Whether a question names the path's subject, and neither its object nor an entity on the way.

    One that gives its object away validates anything; one that names an entity on the way asks for
    the last step only.
    """
    told = [names_of(triplet.object, aliases) for triplet in path]
    asks = mentions(question, names_of(path[0].subject, aliases))
    return asks and not any(mentions(question, names) for names in told)


@dataclass
class Session:
    """A run that stops at each decision not yet taken.

    Args:
        fact: the fact to edit, where the graph starts.
        model: who answers.
        journal: where everything is recorded and replayed from.
        settings: how far to grow, and how to ask.
        proposer: proposes facts in addition to the model's own reasoning.
        wordings: aliases, and questions of known relations that replace those the model would write.
        question: what is asked first about the fact; empty for the wordings' or the model's question.

    ``pending`` is the review waiting for ``decide``; None when the run is over.
    """

    fact: Triplet
    model: Respondent
    journal: Journal
    settings: Settings = Settings()
    proposer: Proposer | None = None
    wordings: Wordings = field(default_factory=Wordings)
    question: str = ""

    def __post_init__(self) -> None:
        """Replay the journal up to the first decision that it lacks."""
        self.growth = Growth(self.fact)
        self.pending: Review | None = None
        self._aliases = dict(self.wordings.aliases)
        self._seen: set[tuple[Key, ...]] = set()
        self._read: dict[str, list[Triplet]] = {}
        self._steps = self._rounds()
        self._advance(None)

    def decide(self, decision: Decision) -> None:
        """Answer the pending review and continue to the next one.

        Raises:
            ValueError: nothing is pending, or the decision does not answer the review.
        """
        if self.pending is None:
            raise ValueError("no review is pending: the run is over")
        decision.check(self.pending)
        self.journal.record("decision", asdict(self.pending), asdict(decision))
        self._advance(decision)

    def run(self, reviewer: Reviewer) -> Growth:
        """Let a reviewer take all remaining decisions."""
        while self.pending is not None:
            self.decide(reviewer(self.pending))
        return self.growth

    def _advance(self, decision: Decision | None) -> None:
        """Proceed to the next review that the journal holds no decision of."""
        self.pending = None
        try:
            while True:
                review = next(self._steps) if decision is None else self._steps.send(decision)
                stored = self.journal.recall("decision", asdict(review))
                if stored is None:
                    self.pending = review
                    return
                decision = _DECISION.validate_python(stored)
        except StopIteration:
            return

    def _rounds(self) -> Steps:
        """The algorithms as one generator of reviews."""
        growth, settings = self.growth, self.settings
        waiting = self._unseen([(growth.fact,)])
        while waiting and growth.rounds < settings.max_rounds and not self._enough():
            growth.rounds += 1
            validated: dict[Path, str] = {}
            yield from self._validate(waiting, validated)
            new_chains = self._synthesise(validated)
            if growth.rounds == 1 and not growth.chains:
                break
            found: list[Path] = []
            if not self._enough() and growth.rounds < settings.max_rounds:
                yield from self._generate(validated, found)
            waiting = self._unseen(found) + self._unseen(new_chains, settings.chain_questions)
        if not growth.chains:
            growth.stopped = "the fact to edit did not validate"
        elif self._enough():
            growth.stopped = "target number of chains"
        else:
            last = growth.rounds >= settings.max_rounds
            growth.stopped = "number of rounds" if last else "nothing new validated"
        self._note("stopped", reason=growth.stopped, chains=len(growth.chains))

    def _validate(self, paths: Sequence[Path], validated: dict[Path, str]) -> Steps:
        """Algorithm 1: fill ``validated`` with the paths whose object the model names."""
        asked = self._questions(paths)
        for attempt in range(self.settings.max_attempts):
            texts = [language.answer_prompt(question) for _, question in asked]
            answers = self._ask(texts, n=self.settings.responses, attempt=attempt)
            again: list[tuple[Path, str]] = []
            for (path, question), responses in zip(asked, answers, strict=True):
                names = names_of(path[-1].object, self._aliases)
                if any(mentions(response, names) for response in responses):
                    validated[path] = question
                    self._note("validated", path=path, question=question)
                elif attempt + 1 == self.settings.max_attempts:
                    self._discard(path)
                elif attempt == 0 and (worded := self._worded(path, question)):
                    again.append((path, worded))
                else:
                    decision = yield Review("refine", question, path, tuple(responses))
                    if decision.alias:
                        self._aliases[path[-1].object.casefold()] = (*names[1:], decision.alias)
                        self._note("synonym", entity=path[-1].object, alias=decision.alias)
                        validated[path] = question
                    elif decision.discard:
                        self._discard(path)
                    else:
                        again.append((decision.path, decision.question))
            asked = again

    def _generate(self, validated: Mapping[Path, str], found: list[Path]) -> Steps:
        """Algorithm 2: reasoning on the validated questions, its statements, their triplets."""
        growth, settings = self.growth, self.settings
        thoughts = self._ask(
            [language.solved_prompt("thought", question) for question in validated.values()],
            n=settings.thoughts,
            max_new_tokens=settings.thought_tokens,
            stop=None,
        )
        told = [self._statements(t, q) for t, q in zip(thoughts, validated.values(), strict=True)]
        new = [s for s in dict.fromkeys(chain.from_iterable(told)) if s not in self._read]
        extractions = [language.solved_prompt("extraction", statement) for statement in new]
        written = self._ask(extractions, temperature=0.0)
        for statement, (text,) in zip(new, written, strict=True):
            self._read[statement] = language.triplets_of(text, statement, self.wordings)
        for (path, question), thought, group in zip(validated.items(), thoughts, told, strict=True):
            reasoned = [triplet for statement in group for triplet in self._read[statement]]
            proposed = []
            if self.proposer and len(path) == 1:
                ends = path[0].subject, path[0].object
                proposed = proposed_triplets(self.proposer, self.wordings, ends, near=growth.graph)
            growth.reasoned.update(triplet.key for triplet in reasoned)
            growth.proposed.update(triplet.key for triplet in proposed)
            offer = self._fresh([*reasoned, *self._fresh(proposed)[: settings.proposals]])
            growth.offered.update(triplet.key for triplet in offer)
            decision = yield Review("prune", question, path, tuple(thought), tuple(offer))
            growth.kept.update(triplet.key for triplet in decision.triplets)
            found += [(triplet,) for triplet in decision.triplets]

    def _synthesise(self, validated: Mapping[Path, str]) -> list[Path]:
        """Algorithm 3: add validated triplets; return the chains that this made possible."""
        growth = self.growth
        if growth.rounds == 1 and validated:
            growth.fact = next(iter(validated))[0]  # as refined, if it was
        ends = growth.fact.subject, growth.fact.object
        for path, question in validated.items():
            if len(path) == 1 and not self._enough():
                added = add_triplet(growth.graph, path[0], question=question)
                self._note("added" if added else "second relation left out", path=path)
                most = self.settings.max_steps
                growth.chains = simple_chains(growth.graph, *ends, max_steps=most)
        return [found for found in growth.chains if len(found) > 1]

    def _questions(self, paths: Sequence[Path]) -> list[tuple[Path, str]]:
        """A question for each path; a chain without a usable one is refused."""
        worded = {path: self._worded(path) for path in paths}
        free = [path for path in paths if not worded[path]]
        texts = self._ask([language.question_prompt(path) for path in free])
        written = {path: text for path, (text,) in zip(free, texts, strict=True)}
        asked = []
        for path in paths:
            question = worded[path] or language.question_of(written[path])
            if not asks_for_all(question, path, self._aliases):
                cloze = path[0].prompt.replace("{}", path[0].subject)
                question = f"{cloze} what?" if len(path) == 1 else ""
            if question:
                asked.append((path, question))
            else:
                self._note("no question of the whole chain", path=path, written=written[path])
        return asked

    def _worded(self, path: Path, failed: str = "") -> str:
        """A known question about a single triplet, other than the one that failed."""
        if len(path) > 1:
            return ""
        own = [self.question] if path == (self.growth.fact,) and self.question else []
        known = own + self.wordings.questions_about(path[0].relation, path[0].subject)
        return next((question for question in known if question != failed), "")

    def _statements(self, thoughts: Sequence[str], question: str) -> list[str]:
        """The distinct statements of a question's chains of thought, without the solved examples'."""
        told = dict.fromkeys(s for thought in thoughts for s in language.statements(thought))
        own = [s for s in told if not language.repeats_example(s, question)]
        return own[: self.settings.statements]

    def _fresh(self, triplets: Iterable[Triplet]) -> list[Triplet]:
        """Those neither offered nor asked about before that can still become a link, each once."""
        known, linked = self.growth.offered, self.growth.graph.has_edge
        return [
            triplet
            for key, triplet in {t.key: t for t in triplets}.items()
            if key not in known and (key,) not in self._seen and not linked(key[0], key[2])
        ]

    def _ask(
        self, texts: Sequence[Prompt], *, n: int = 1, attempt: int = 0, **changes: Any
    ) -> list[list[str]]:
        seed = self.settings.seed + attempt
        return self.journal.ask(self.model, texts, n=n, seed=seed, **changes)

    def _unseen(self, paths: Iterable[Path], most: int | None = None) -> list[Path]:
        new: dict[tuple[Key, ...], Path] = {}
        for path in paths:
            new.setdefault(tuple(triplet.key for triplet in path), path)
        fresh = [(key, path) for key, path in new.items() if key not in self._seen][:most]
        self._seen.update(key for key, _ in fresh)
        return [path for _, path in fresh]

    def _enough(self) -> bool:
        return len(self.growth.chains) >= self.settings.target_chains

    def _discard(self, path: Path) -> None:
        self.growth.discarded.append(path)
        self._note("discarded", path=path)

    def _note(self, event: str, **details: Any) -> None:
        self.journal.record("event", {"event": event}, details)
