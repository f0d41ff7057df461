"""Streams of requests: what a sequence edits, in which order, and what it must not touch.

=============== ============================================================ =============
stream          its requests                                                 they
=============== ============================================================ =============
``counterfact`` a record a subject of CounterFact's evaluation split         mostly insert
``triples``     packaged facts, each with another answer of its relation     mostly insert
``recalled``    what smollm2-135m recalls, each with another such answer     overwrite
``conflicts``   ``triples``, and a twentieth of them later contradicted      overwrite
=============== ============================================================ =============

But in ``conflicts`` no two requests are about the same subject and relation. None is about the subject of a
probe, and none has the prompt of one on which editors measure (``editing.held_out``); some are about the same
subjects in other words. Of two requests that
contradict each other the later one is to hold (``Stream.holding``); the earlier one is asked about no more.
CounterFact's 1,919 records name no relation, and one relation has several templates: of each subject the
first record counts. In the other streams no answer is given to more than ``MOST_PER_ANSWER`` requests of a
relation, but by contradictions, so that none becomes the relation's prior.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from helpers import UserError
from helpers.counterfact.records import read_records
from helpers.editing.held_out import check_held_out, held_out_requests
from helpers.editing.request import EditRequest
from helpers.fetch import locate, official_files
from helpers.records import comparable, did_you_mean
from helpers.results.store import settings_key
from helpers.thinkedit.knowgic import load_edited_graphs
from helpers.triples.sources import packaged_triples
from helpers.triples.templates import packaged_templates

MOST_PER_ANSWER = 40
CONFLICTS = "conflicts"
CONTRADICTED = 20  # one request in so many is contradicted later in that stream
COUNTERFACT = "counterfact-val"
RECALLED = "recalled-smollm2-135m"


@dataclass(frozen=True)
class StreamRequest:
    """One request of a stream, and other wordings of its prompt.

    ``group`` is what it states of its subject; empty where that is unknown and may be anything.
    """

    case_id: int
    request: EditRequest
    paraphrases: tuple[str, ...]
    group: str

    @property
    def about(self) -> tuple[str, str]:
        """Its subject and what is stated of it; of two requests about the same the later one is to hold."""
        return comparable(self.request.subject), self.group


class KnownFact(NamedTuple):
    """A subject's answers, from which a request with another answer is made."""

    subject: str
    group: str
    answers: tuple[str, ...]
    prompt: str  # with one {} for the subject
    paraphrases: tuple[str, ...]


@dataclass(frozen=True)
class Stream:
    """Requests in the order in which they are edited."""

    name: str
    order: int  # the seed of the order
    requests: tuple[StreamRequest, ...]

    @property
    def digest(self) -> str:
        """Digest of all requests in their order."""
        return settings_key({"requests": [asdict(request) for request in self.requests]})

    def first(self, count: int) -> Stream:
        """The stream of the first ``count`` requests; a ``UserError`` where there are fewer."""
        if count > len(self.requests):
            raise UserError(
                f"the stream {self.name} has {len(self.requests)} requests, a checkpoint is at {count}:"
                " lower checkpoints, or take another stream"
            )
        return replace(self, requests=self.requests[:count])

    def holding(self, count: int) -> list[int]:
        """Positions, from 1, of those of the first ``count`` requests that none of them contradicts later."""
        latest = {request.about: n for n, request in enumerate(self.requests[:count], start=1)}
        return sorted(latest.values())

    def contradicting(self) -> list[int]:
        """Positions, from 1, of the requests that contradict an earlier one."""
        positions = []
        written: set[tuple[str, str]] = set()
        for position, request in enumerate(self.requests, start=1):
            if request.about in written:
                positions.append(position)
            written.add(request.about)
        return positions


def stream_named(name: str, *, order: int = 0, probe_subjects: Collection[str] = ()) -> Stream:
    """A stream by its name, shuffled by the seed ``order``, without requests about the subjects of probes."""
    if name not in STREAMS:
        hint = did_you_mean(name, STREAMS)
        raise UserError(f"no stream {name!r}{hint}; there are {', '.join(STREAMS)}")
    requests = without_contradictions(STREAMS[name](), probe_subjects)
    random.Random(order).shuffle(requests)
    if name == CONFLICTS:
        requests = with_contradictions(requests, order)
    return Stream(name, order, tuple(requests))


def check_stream(stream: Stream, probe_subjects: Collection[str]) -> None:
    """Refuse a stream with a request about a probe's subject, or one that editors' statistics are of."""
    left_alone = {comparable(subject) for subject in probe_subjects}
    for request in stream.requests:
        subject, _ = request.about
        if subject in left_alone:
            raise UserError(
                f"the stream {stream.name} edits {request.request.subject!r}, the subject of a probe: draw"
                " it without the probes' subjects (stream_named, probe_subjects)"
            )
    requests = [request.request for request in stream.requests]
    check_held_out(requests, len(held_out_requests()))


def without_contradictions(
    requests: Iterable[StreamRequest], probe_subjects: Collection[str] = ()
) -> list[StreamRequest]:
    """The first request about each subject and relation, none of a probe's subject or held out."""
    left_alone = {comparable(subject) for subject in probe_subjects}
    held_out_prompts = {comparable(request.text) for request in held_out_requests()}
    first_requests: dict[tuple[str, str], StreamRequest] = {}
    for request in requests:
        subject, _ = request.about
        is_held_out = comparable(request.request.text) in held_out_prompts
        if subject not in left_alone and not is_held_out:
            first_requests.setdefault(request.about, request)
    return list(first_requests.values())


def with_contradictions(requests: Sequence[StreamRequest], seed: int) -> list[StreamRequest]:
    """A stream, and a twentieth of its requests again at later places with another answer of their group.

    What such a request replaces (``correct``) is the answer that the earlier one gave.
    """
    generator = random.Random(seed)
    targets_of_group: dict[str, list[str]] = defaultdict(list)
    for request in requests:
        targets_of_group[request.group].append(request.request.target)
    placed: list[tuple[float, StreamRequest]] = list(enumerate(requests))
    for number in generator.sample(range(len(requests)), len(requests) // CONTRADICTED):
        first = requests[number]
        excluded = {comparable(text) for text in (first.request.target, *first.request.correct)}
        targets = [
            target for target in targets_of_group[first.group] if comparable(target) not in excluded
        ]
        if targets:
            contradiction = replace(
                first.request, target=generator.choice(targets), correct=(first.request.target,)
            )
            place = generator.uniform(number + 0.1, len(requests))
            placed.append((place, replace(first, request=contradiction)))
    return [request for _, request in sorted(placed, key=lambda pair: pair[0])]


def counterfact_requests() -> list[StreamRequest]:
    """CounterFact's evaluation split, whose records are known to differ in their subject alone."""
    records = read_records(locate(official_files()[COUNTERFACT]))
    return [
        StreamRequest(record.case_id, record.request, record.paraphrases, group="")
        for record in records
    ]


def triple_requests() -> list[StreamRequest]:
    """Packaged facts of relations with templates: the first cloze edits, the other wordings paraphrase."""
    return with_other_answers(packaged_known_facts())


def packaged_known_facts() -> list[KnownFact]:
    """The packaged facts of relations with templates, those of one subject and relation as one."""
    templates = packaged_templates()
    answers: dict[tuple[str, str], list[str]] = defaultdict(list)
    for fact in packaged_triples():
        if fact.relation in templates:
            answers[fact.relation, fact.subject].append(fact.object)
    known_facts = []
    for (relation, subject), answers_of_subject in answers.items():
        prompt, *others = templates[relation].all
        paraphrases = tuple(template.replace("{}", subject) for template in others[:2])
        known_facts.append(
            KnownFact(subject, relation, tuple(answers_of_subject), prompt, paraphrases)
        )
    return known_facts


def recalled_requests() -> list[StreamRequest]:
    """The links of what a model recalls: the cloze edits, the question paraphrases."""
    answers: dict[tuple[str, str], list[str]] = defaultdict(list)
    questions: dict[tuple[str, str], str] = {}
    for graph in load_edited_graphs(RECALLED):
        for fact in graph.facts:
            about = (fact.prompt, fact.subject)
            questions.setdefault(about, fact.question)
            if fact.object not in answers[about]:
                answers[about].append(fact.object)
    known_facts = [
        KnownFact(subject, prompt, tuple(objects), prompt, (questions[prompt, subject],))
        for (prompt, subject), objects in answers.items()
    ]
    return with_other_answers(known_facts)


def with_other_answers(known_facts: Sequence[KnownFact], seed: int = 0) -> list[StreamRequest]:
    """For each fact a request with an answer of another subject of its group, drawn by ``seed``.

    A fact of which every other answer is true, or has been given away ``MOST_PER_ANSWER`` times, is excluded.
    """
    generator = random.Random(seed)
    comparable_answers: dict[str, dict[str, str]] = defaultdict(
        dict
    )  # of each group, by the answer
    for fact in known_facts:
        for answer in fact.answers:
            comparable_answers[fact.group][answer] = comparable(answer)
    times_given: Counter[tuple[str, str]] = Counter()
    requests = []
    for number, fact in enumerate(known_facts, start=1):
        true_answers = {comparable(answer) for answer in fact.answers}
        other_answers = [
            answer
            for answer, comparable_answer in comparable_answers[fact.group].items()
            if comparable_answer not in true_answers
            and times_given[fact.group, answer] < MOST_PER_ANSWER
        ]
        if not other_answers:
            continue
        target = generator.choice(other_answers)
        times_given[fact.group, target] += 1
        request = EditRequest(
            fact.subject, fact.prompt, target, correct=fact.answers, record=str(number)
        )
        requests.append(StreamRequest(number, request, fact.paraphrases, fact.group))
    return requests


STREAMS: Mapping[str, Callable[[], list[StreamRequest]]] = {
    "counterfact": counterfact_requests,
    "triples": triple_requests,
    "recalled": recalled_requests,
    CONFLICTS: triple_requests,
}
