"""Grow a model's own knowledge graph around a fact (Algorithms 1–3), one round at a time.

A round validates triplets and chains (1), reasons about the validated questions to find new triplets
(2), and adds validated triplets to the graph, whose new chains go into the next round (3). The paper's
Algorithm 1 sends validated chains to component 3, its section 5.1.2, as here, only to component 2.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import networkx as nx
import pandas as pd
from pydantic import TypeAdapter

from helpers import UserError
from helpers.models.tokens import Prompt
from helpers.paths import PACKAGED, digest_of, in_one_line
from helpers.records import comparable, read_all
from helpers.results.store import settings_key
from helpers.scoring.naming import Aliases, mentions, names_of
from helpers.thinkedit.graph import (
    MAX_STEPS,
    Triplet,
    add_triplet,
    check_triplet,
    simple_chains,
    triplets,
)
from helpers.thinkedit.grow import language
from helpers.thinkedit.grow.language import ModelRespondent
from helpers.thinkedit.grow.wordings import Proposal, Wordings, read_wordings, store_neighbours

FOLDER = PACKAGED / "thinkedit"
Steps = tuple[Triplet, ...]  # a triplet, or a chain
Key = tuple[str, str, str]
Store = Mapping[str, list[Proposal]]
QuestionOfPath = dict[Steps, str]  # triplets and chains with their questions


@dataclass(frozen=True)
class Settings:
    """How far to grow, and how to ask. ``max_attempts`` is the paper's k_max, ``target_chains`` its stop (at
    100 for Harry Potter); ``chain_questions`` bounds the chains asked about per round, ``proposals`` the
    store's facts per question. The paper takes one chain of thought and all its statements.
    """

    max_attempts: int = 2
    max_steps: int = MAX_STEPS
    target_chains: int = 8
    max_rounds: int = 3
    responses: int = 5
    chain_questions: int = 1
    thoughts: int = 3
    thought_tokens: int = 96
    statements: int = 5
    proposals: int = 6
    seed: int = 0


@dataclass(frozen=True)
class Review:
    """Something to decide about a question, behind which is a triplet or chain (``path``): the responses lack
    its object (refine), or which ``candidates`` are facts, and which are missing (prune).
    """

    occasion: Literal["refine", "prune"]
    question: str
    path: tuple[Triplet, ...]
    responses: tuple[str, ...]
    candidates: tuple[Triplet, ...] = ()


@dataclass(frozen=True)
class Decision:
    """What was decided about a review: to ask again or to give up (refine), what to keep (prune)."""

    discard: bool = False
    question: str = ""  # asked again
    path: tuple[Triplet, ...] = ()  # what it asks for, as refined
    triplets: tuple[Triplet, ...] = ()  # kept


def keep_all(review: Review) -> Decision:
    """Accept what validates: keep every candidate, discard what does not validate."""
    return Decision(discard=review.occasion == "refine", triplets=review.candidates)


@dataclass
class Growth:
    """State of a run; the sets hold keys of triplets."""

    fact: Triplet
    graph: nx.DiGraph = field(default_factory=nx.DiGraph)
    chains: list[Steps] = field(default_factory=list)
    discarded: list[Steps] = field(default_factory=list)
    rounds: int = 0
    stopped: str = ""
    reasoned: set[Key] = field(default_factory=set)  # read from the model's chains of thought
    proposed: set[Key] = field(default_factory=set)  # the store's, about the entities asked for
    offered: set[Key] = field(default_factory=set)  # for review
    kept: set[Key] = field(default_factory=set)  # by the review


def asks_for_all(question: str, path: Steps, aliases: Aliases) -> bool:
    """Whether a question names the path's subject, and neither its object, which would validate anything,
    nor an entity on the way, which would ask for the last step only.
    """
    names_of_objects = [names_of(triplet.object, aliases) for triplet in path]
    names_subject = mentions(question, names_of(path[0].subject, aliases))
    return names_subject and not any(
        mentions(question, names_of_object) for names_of_object in names_of_objects
    )


class Journal:
    """JSON lines of every prompt, response and decision, so that a run resumes and replays exactly. Its
    ``header`` (None: the file's), the model's fingerprint and the settings, is all that determines it.
    """

    def __init__(self, path: Path, header: Mapping[str, Any] | None = None) -> None:
        self.path = path
        content = path.read_bytes() if path.exists() else b""
        complete_lines = content[: content.rfind(b"\n") + 1]
        numbered_lines = enumerate(complete_lines.splitlines(), start=1)
        steps = read_all(
            ((f"{path}, line {number}", line) for number, line in numbered_lines), _read_step
        )
        if len(content) > len(complete_lines):
            warnings.warn(f"{path}: dropped an unfinished last line", stacklevel=2)
            os.truncate(path, len(complete_lines))
        self._size = len(complete_lines)
        self._outcomes = {
            _as_json([step["kind"], step["request"]]): step["outcome"] for step in steps
        }
        if not steps:
            if header is None:
                raise UserError(f"{path}: no journal of a run; give a file that a run wrote")
            self.record("run", header, True)
        elif header is not None and self.recall("run", header) is None:
            raise UserError(
                f"{path}: holds a run of {steps[0]['request']}, not of {_as_json(header)} (another"
                " model or settings); use the same or start a new journal"
            )
        self.header = header or steps[0]["request"]

    def recall(self, kind: str, request: Mapping[str, Any]) -> Any:
        """The recorded outcome of a step, or None."""
        return self._outcomes.get(_as_json([kind, request]))

    def record(self, kind: str, request: Mapping[str, Any], outcome: Any) -> None:
        """Write a step that the record lacks."""
        step = {"kind": kind, "request": request, "outcome": outcome}
        journal_line = (_as_json({**step, "digest": _digest_of_step(step)}) + "\n").encode()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.path.open("ab") as stream:
                if stream.tell() != self._size:
                    raise UserError(
                        f"{self.path}: another session writes to it; end one and open it again"
                    )
                stream.write(journal_line)
        except OSError as error:  # reading drops an unfinished line
            raise UserError(in_one_line(error, self.path)) from error
        self._size += len(journal_line)
        self._outcomes[_as_json([kind, request])] = outcome


def _read_step(line: bytes) -> dict[str, Any]:
    record = json.loads(line)
    if not isinstance(record, dict) or record.pop("digest", "") != _digest_of_step(record):
        raise ValueError("no line of a run; restore the file, or delete the rest and decide again")
    return record


def _digest_of_step(step: Mapping[str, Any]) -> str:
    return digest_of(json.dumps(step, default=asdict).encode())


def _as_json(value: Any) -> str:
    return json.dumps(value, default=asdict, ensure_ascii=False)


class Session:
    """A run that stops at each decision not yet taken: ``pending`` waits for ``decide``, None at the end.

    The journal's header holds fact and settings. Without a model the journal is only replayed.
    """

    def __init__(
        self, journal: Journal, model: ModelRespondent | None, store: Store, wordings: Wordings
    ) -> None:
        run_settings = journal.header["settings"]
        self.settings = Settings(**run_settings["pipeline"])
        self.question = run_settings["question"]
        self.journal = journal
        self.model = model
        self.store = store
        self.wordings = wordings
        self.growth = Growth(Triplet(*run_settings["fact"]))
        self._asked_paths: set[tuple[Key, ...]] = set()
        self._triplets_of_statement: dict[str, list[Triplet]] = {}
        self._reviews = self._rounds()
        self._advance(None)

    def decide(self, decision: Decision) -> None:
        """Answer the pending review and continue to the next one; ``ValueError`` where it is no answer."""
        review = self.pending
        if review is None:
            raise ValueError("no review is pending: the run is over")
        for triplet in (*decision.path, *decision.triplets):
            check_triplet(triplet)
        is_refined = decision.question.strip() and decision.path
        if review.occasion == "refine" and not (decision.discard or is_refined):
            raise ValueError("a refinement needs a question and a triplet or chain")
        self.journal.record("decision", asdict(review), asdict(decision))
        self._advance(decision)

    def run(self, reviewer: Callable[[Review], Decision]) -> Growth:
        """Let a reviewer take all remaining decisions."""
        while self.pending is not None:
            self.decide(reviewer(self.pending))
        return self.growth

    def _advance(self, decision: Decision | None) -> None:
        """Proceed to the next review that the journal holds no decision of."""
        self.pending: Review | None = None
        with suppress(StopIteration):
            while self.pending is None:
                review = self._reviews.send(decision) if decision else next(self._reviews)
                if stored_decision := self.journal.recall("decision", asdict(review)):
                    decision = TypeAdapter(Decision).validate_python(stored_decision)
                else:
                    self.pending = review

    def _rounds(self) -> Generator[Review, Decision, None]:
        """The algorithms as one generator of reviews."""
        growth = self.growth
        settings = self.settings
        waiting_paths = self._paths_not_asked([(growth.fact,)])
        while (
            waiting_paths and growth.rounds < settings.max_rounds and not self._has_enough_chains()
        ):
            growth.rounds += 1
            validated = yield from self._validate(waiting_paths)
            new_chains = self._synthesise(validated)
            if not growth.chains:
                break
            new_links: list[Steps] = []
            if not self._has_enough_chains() and growth.rounds < settings.max_rounds:
                new_links = yield from self._generate(validated)
            waiting_paths = self._paths_not_asked(new_links) + self._paths_not_asked(
                new_chains, settings.chain_questions
            )
        is_last_round = growth.rounds >= settings.max_rounds
        growth.stopped = "number of rounds" if is_last_round else "nothing new validated"
        if self._has_enough_chains():
            growth.stopped = "target number of chains"
        if not growth.chains:
            growth.stopped = "the fact to edit did not validate"

    def _validate(self, paths: Sequence[Steps]) -> Generator[Review, Decision, QuestionOfPath]:
        """Algorithm 1: the paths whose object the model names, and the questions."""
        validated: QuestionOfPath = {}
        paths_and_questions = list(self._questions(paths).items())
        for attempt in range(self.settings.max_attempts):
            prompts = [language.answer_prompt(question) for _, question in paths_and_questions]
            answers = self._responses_to(prompts, n=self.settings.responses, attempt=attempt)
            next_questions: list[tuple[Steps, str]] = []
            for (path, question), responses in zip(paths_and_questions, answers, strict=True):
                names_of_object = names_of(path[-1].object, self.wordings.aliases)
                if any(mentions(response, names_of_object) for response in responses):
                    validated[path] = question
                elif attempt + 1 == self.settings.max_attempts:
                    self.growth.discarded.append(path)
                elif attempt == 0 and (other_wording := self._known_question(path, question)):
                    next_questions.append((path, other_wording))
                else:
                    decision = yield Review("refine", question, path, tuple(responses))
                    if decision.discard:
                        self.growth.discarded.append(path)
                    else:
                        next_questions.append((decision.path, decision.question))
            paths_and_questions = next_questions
        return validated

    def _generate(self, validated: QuestionOfPath) -> Generator[Review, Decision, list[Steps]]:
        """Algorithm 2: reasoning on the validated questions, its statements, their triplets."""
        growth = self.growth
        settings = self.settings
        prompts = [language.solved_prompt("thought", question) for question in validated.values()]
        thoughts_by_question = self._responses_to(
            prompts, n=settings.thoughts, max_new_tokens=settings.thought_tokens, stop=None
        )
        statements = [
            language.statements(thoughts, question)[: settings.statements]
            for thoughts, question in zip(thoughts_by_question, validated.values(), strict=True)
        ]
        self._read_triplets(dict.fromkeys(chain.from_iterable(statements)))
        new_links: list[Steps] = []
        reasoning = zip(validated.items(), thoughts_by_question, statements, strict=True)
        for (path, question), thoughts, statements_of_path in reasoning:
            reasoned_triplets = [
                triplet
                for statement in statements_of_path
                for triplet in self._triplets_of_statement[statement]
            ]
            entities_asked = (path[0].subject, path[0].object) if len(path) == 1 else ()
            proposed_triplets = self._proposed(entities_asked)
            growth.reasoned.update(triplet.key for triplet in reasoned_triplets)
            growth.proposed.update(triplet.key for triplet in proposed_triplets)
            offered_triplets = self._new_triplets(
                [*reasoned_triplets, *self._new_triplets(proposed_triplets)[: settings.proposals]]
            )
            growth.offered.update(triplet.key for triplet in offered_triplets)
            decision = yield Review(
                "prune", question, path, tuple(thoughts), tuple(offered_triplets)
            )
            growth.kept.update(triplet.key for triplet in decision.triplets)
            new_links += [(triplet,) for triplet in decision.triplets]
        return new_links

    def _read_triplets(self, statements: Iterable[str]) -> None:
        """Let the model write the triplets of statements that were not read before."""
        unread_statements = [
            statement for statement in statements if statement not in self._triplets_of_statement
        ]
        prompts = [
            language.solved_prompt("extraction", statement) for statement in unread_statements
        ]
        responses = self._responses_to(prompts, temperature=0.0)
        for statement, (response,) in zip(unread_statements, responses, strict=True):
            self._triplets_of_statement[statement] = language.triplets_of(
                response, statement, self.wordings
            )

    def _proposed(self, entities: Iterable[str]) -> list[Triplet]:
        """The store's facts about entities in words, one a subject and relation: in the graph if possible."""
        graph = self.growth.graph
        preferred: dict[tuple[str, str], Triplet] = {}  # by subject and relation
        for entity in entities:
            for proposal in self.store.get(comparable(entity), ()):
                reads = self.wordings.relations[proposal.relation].reads
                triplet = Triplet(proposal.subject, reads, proposal.object)
                subject_key, relation, object_key = triplet.key
                earlier_triplet = preferred.get((subject_key, relation))
                if earlier_triplet is None or (
                    object_key in graph and earlier_triplet.key[2] not in graph
                ):
                    preferred[subject_key, relation] = triplet
        return list(preferred.values())

    def _synthesise(self, validated: QuestionOfPath) -> list[Steps]:
        """Algorithm 3: add validated triplets; return the chains that this made possible."""
        growth = self.growth
        max_steps = self.settings.max_steps
        if growth.rounds == 1 and validated:
            growth.fact = next(iter(validated))[0]  # as refined, if it was
        subject_and_object = growth.fact.subject, growth.fact.object
        for path, question in validated.items():
            if len(path) == 1 and not self._has_enough_chains():
                add_triplet(growth.graph, path[0], question=question)
                growth.chains = simple_chains(
                    growth.graph, *subject_and_object, max_steps=max_steps
                )
        return [path_found for path_found in growth.chains if len(path_found) > 1]

    def _questions(self, paths: Sequence[Steps]) -> QuestionOfPath:
        """A question for each path; a chain without a usable one is omitted."""
        question_of_path = {path: self._known_question(path) for path in paths}
        unworded_paths = [path for path in paths if not question_of_path[path]]
        for path, (response,) in zip(
            unworded_paths,
            self._responses_to(map(language.question_prompt, unworded_paths)),
            strict=True,
        ):
            question_of_path[path] = language.question_of(response)
        for path, question in question_of_path.items():
            if not asks_for_all(question, path, self.wordings.aliases):
                cloze = path[0].prompt.replace("{}", path[0].subject)
                question_of_path[path] = f"{cloze} what?" if len(path) == 1 else ""
        return {path: question for path, question in question_of_path.items() if question}

    def _known_question(self, path: Steps, failed_question: str = "") -> str:
        """A known question about a single triplet, other than the one that failed."""
        known_questions = [self.question] if path == (self.growth.fact,) else []
        for wording in self.wordings.relations.values():
            if len(path) == 1 and wording.reads == path[0].relation:
                known_questions += [
                    template.replace("{}", path[0].subject) for template in wording.questions
                ]
        return next(
            (question for question in known_questions if question not in ("", failed_question)), ""
        )

    def _new_triplets(self, triplets: Iterable[Triplet]) -> list[Triplet]:
        """Triplets that can still become a link: neither offered nor asked about before, each once."""
        asked_about = {path[0] for path in self._asked_paths if len(path) == 1}
        dealt_with = self.growth.offered | asked_about
        new_triplets: dict[Key, Triplet] = {}
        for triplet in triplets:
            subject_key, _, object_key = triplet.key
            if triplet.key not in dealt_with and not self.growth.graph.has_edge(
                subject_key, object_key
            ):
                new_triplets[triplet.key] = triplet
        return list(new_triplets.values())

    def _responses_to(
        self, prompts: Iterable[Prompt], *, n: int = 1, attempt: int = 0, **changes: Any
    ) -> list[list[str]]:
        """Responses to the prompts: recorded ones as they were, the others from the model."""
        seed = self.settings.seed + attempt
        requests = [{"prompt": prompt, "n": n, "seed": seed, **changes} for prompt in prompts]
        unanswered_requests = [
            request for request in requests if self.journal.recall("responses", request) is None
        ]
        if unanswered_requests and self.model is None:
            raise UserError(
                f"{self.journal.path} does not answer {unanswered_requests[0]['prompt']!r}: the pipeline has"
                " changed; grow it again (python -m tools.grow, or in notebook 06)"
            )
        if self.model and unanswered_requests:
            unanswered_prompts = [request["prompt"] for request in unanswered_requests]
            new_responses = self.model.respond(unanswered_prompts, n=n, seed=seed, **changes)
            for request, responses in zip(unanswered_requests, new_responses, strict=True):
                self.journal.record("responses", request, responses)
        return [self.journal.recall("responses", request) for request in requests]

    def _paths_not_asked(self, paths: Iterable[Steps], most: int | None = None) -> list[Steps]:
        path_of_keys: dict[tuple[Key, ...], Steps] = {}
        for path in paths:
            path_of_keys.setdefault(tuple(triplet.key for triplet in path), path)
        keys_not_asked = [
            triplet_keys for triplet_keys in path_of_keys if triplet_keys not in self._asked_paths
        ][:most]
        self._asked_paths.update(keys_not_asked)
        return [path_of_keys[triplet_keys] for triplet_keys in keys_not_asked]

    def _has_enough_chains(self) -> bool:
        return len(self.growth.chains) >= self.settings.target_chains


def session(
    fact: Triplet,
    model: ModelRespondent,
    journal_place: Path,
    *,
    question: str = "",
    settings: Settings = Settings(),
) -> Session:
    """A run in which the packaged facts propose neighbours; one that was left resumes.

    ``journal_place`` is the journal, or a folder in which this model and these settings have one of their
    own. ``question`` is asked first; empty: the wordings' or the model's own.
    """
    check_triplet(fact)
    if question and not asks_for_all(question, (fact,), read_wordings().aliases):
        raise ValueError(
            f"question {question!r} must name {fact.subject!r} and not {fact.object!r}: reword it"
        )
    run_settings = {
        "fact": [fact.subject, fact.relation, fact.object],
        "question": question,
        "source": "packaged",
    }
    header = {
        "model": model.fingerprint,
        "settings": {**run_settings, "pipeline": asdict(settings)},
    }
    journal_file = (
        journal_place
        if journal_place.suffix == ".jsonl"
        else journal_place / f"own-{settings_key(header)}.jsonl"
    )
    return Session(
        Journal(journal_file, header), model, store_neighbours("packaged"), read_wordings()
    )


def replayed(paths: Iterable[Path]) -> list[Growth]:
    """The graphs that journals hold, in the order of their names; nothing is written."""
    grown = []
    for path in sorted(paths):
        replay = Session(Journal(path), None, store_neighbours("packaged"), read_wordings())
        if replay.pending is not None:
            raise UserError(f"{path} ends before its run: grow it again (python -m tools.grow)")
        grown.append(replay.growth)
    return grown


def counts(grown: Sequence[Growth]) -> pd.DataFrame:
    """What each graph holds, with its chains by number of steps, and how it ended."""
    rows_of_growths = []
    for growth in grown:
        link_keys = {triplet.key for triplet in triplets(growth.graph)}
        chain_lengths = [len(chain) for chain in growth.chains]
        reasoned_count = len(link_keys & growth.reasoned & growth.offered)
        counts_by_steps = "/".join(
            str(chain_lengths.count(step_count)) for step_count in range(1, MAX_STEPS + 1)
        )
        rows_of_growths.append(
            (
                str(growth.fact),
                len(link_keys),
                reasoned_count,
                len(chain_lengths),
                counts_by_steps,
                growth.stopped,
            )
        )
    column_names = ["fact", "links", "reasoned", "chains", "by steps", "stopped by"]
    return pd.DataFrame(rows_of_growths, columns=column_names)


def reasoned(grown: Sequence[Growth]) -> pd.DataFrame:
    """Numbers of facts by stage: *reasoned* ones are stated by a chain of thought, *reasoned only* if the
    triple store does not hold them. The others are the fact to edit or the reviewer's.
    """
    rows_of_stages = []
    for growth in grown:
        keys_by_stage = {
            "offered for review": growth.offered,
            "kept by the review": growth.kept,
            "links (validated)": {triplet.key for triplet in triplets(growth.graph)},
            "links on chains": {step.key for chain in growth.chains for step in chain},
        }
        for stage, keys in keys_by_stage.items():
            reasoned_keys = keys & growth.reasoned & growth.offered
            keys_in_triple_store = keys & growth.proposed
            rows_of_stages.append(
                (
                    stage,
                    len(keys),
                    len(reasoned_keys),
                    len(reasoned_keys - growth.proposed),
                    len(keys_in_triple_store),
                )
            )
    column_names = ["stage", "facts", "reasoned", "reasoned only", "in the store"]
    sums_by_stage = (
        pd.DataFrame(rows_of_stages, columns=column_names).groupby("stage", sort=False).sum()
    )
    return sums_by_stage.rename_axis(index=None).assign(
        share=sums_by_stage["reasoned"] / sums_by_stage["facts"]
    )
