"""Streams: no request contradicts another, probes' subjects stay out, the order is the seed's."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from helpers import UserError
from helpers.editing.held_out import held_out_requests
from helpers.editing.request import EditRequest
from helpers.lifelong import streams
from helpers.lifelong.streams import KnownFact, StreamRequest, stream_named, with_other_answers
from helpers.records import comparable


def fact(subject: str, *answers: str, group: str = "P1") -> KnownFact:
    return KnownFact(subject, group, answers, "{} lies in", (f"Where is {subject}?",))


def test_another_answer_is_of_the_group_and_not_true():
    requests = with_other_answers([fact("Oslo", "Norway"), fact("Rome", "Italy", "Europe")])
    assert [request.request.target for request in requests] in (
        ["Italy", "Norway"],
        ["Europe", "Norway"],
    )
    assert requests[1].request.correct == ("Italy", "Europe")
    assert with_other_answers([fact("Oslo", "Norway"), fact("Bergen", "norway")]) == []


def test_no_answer_becomes_a_prior(monkeypatch):
    monkeypatch.setattr(streams, "MOST_PER_ANSWER", 2)
    facts = [fact(f"Town {number}", "Norway") for number in range(5)] + [fact("Rome", "Italy")]
    targets = Counter(request.request.target for request in with_other_answers(facts))
    assert targets == {"Italy": 2, "Norway": 1}


@pytest.mark.parametrize("name", ["triples", "recalled"])
def test_packaged_streams_have_no_contradictions(name):
    stream = stream_named(name)
    abouts = [request.about for request in stream.requests]
    assert len(abouts) == len(set(abouts)) >= 500
    held_out = {comparable(request.text) for request in held_out_requests()}
    for request in stream.requests:
        assert comparable(request.request.text) not in held_out
        true_answers = {comparable(answer) for answer in request.request.correct}
        assert comparable(request.request.target) not in true_answers


def test_a_twentieth_is_contradicted_later():
    facts = [fact(f"Town {n}", ("Norway", "Italy", "Chile")[n % 3]) for n in range(60)]
    requests = with_other_answers(facts)
    stream = streams.Stream("conflicts", 0, tuple(streams.with_contradictions(requests, 0)))
    positions = stream.contradicting()
    assert len(positions) == 3
    assert len(stream.requests) == 63
    for position in positions:
        later = stream.requests[position - 1]
        [earlier] = [r for r in stream.requests[: position - 1] if r.about == later.about]
        assert later.request.correct == (earlier.request.target,)
        assert later.request.target not in (earlier.request.target, *earlier.request.correct)
        assert stream.requests.index(earlier) + 1 not in stream.holding(position)
        assert position in stream.holding(63)
    assert len(stream.holding(63)) == 60
    assert [r for r in stream.requests if r in requests] == requests


def test_conflicts_are_those_of_the_triples():
    stream, triples = stream_named("conflicts"), stream_named("triples")
    contradicting = {stream.requests[position - 1] for position in stream.contradicting()}
    assert 0.045 < len(contradicting) / len(triples.requests) <= 0.05
    assert [r for r in stream.requests if r not in contradicting] == list(triples.requests)


def test_probes_stay_out_and_the_order_is_the_seeds():
    stream = stream_named("recalled")
    probed = stream.requests[0].request.subject
    without_probe = stream_named("recalled", probe_subjects=[probed.upper()])
    assert probed not in {request.request.subject for request in without_probe.requests}
    assert stream.digest == stream_named("recalled").digest
    other_order = stream_named("recalled", order=1)
    assert other_order.requests != stream.requests
    assert set(other_order.requests) == set(stream.requests)


def test_a_stream_that_is_too_short_is_refused():
    stream = stream_named("recalled")
    assert len(stream.first(3).requests) == 3
    with pytest.raises(
        UserError, match=r"has \d+ requests, a checkpoint is at 9999: lower checkpoints"
    ):
        stream.first(9999)
    with pytest.raises(UserError, match=r"no stream 'recaled'.*recalled"):
        stream_named("recaled")


def test_of_two_requests_about_one_thing_the_first_counts():
    first = with_other_answers([fact("Oslo", "Norway"), fact("Rome", "Italy")])
    again = [StreamRequest(9, first[0].request, (), first[0].group)]
    assert streams.without_contradictions([*first, *again]) == first


def test_counterfact_has_one_request_a_subject(monkeypatch):
    def record(number: int, subject: str, prompt: str) -> SimpleNamespace:
        request = EditRequest(subject, prompt, "Venus", correct=("Rome",))
        return SimpleNamespace(case_id=number, request=request, paraphrases=())

    records = [
        record(1, "Oslo", "{} is near"),
        record(2, "OSLO", "Close to {} is"),
        record(3, "Bergen", "{} is near"),
    ]
    monkeypatch.setattr(streams, "locate", lambda file: file)
    monkeypatch.setattr(streams, "read_records", lambda _: records)
    requests = stream_named("counterfact").requests
    assert sorted(request.case_id for request in requests) == [1, 3]


def test_a_stream_that_edits_a_probes_subject_or_a_held_out_request_is_refused():
    stream = stream_named("recalled")
    streams.check_stream(stream, ["Nobody"])
    subject = stream.requests[3].request.subject
    with pytest.raises(UserError, match=rf"recalled edits '{subject}', the subject of a probe"):
        streams.check_stream(stream, [subject.upper()])
    held_out = StreamRequest(1, held_out_requests()[0], (), "x")
    with pytest.raises(UserError, match=r"is one of the .* held-out requests"):
        streams.check_stream(streams.Stream("by hand", 0, (held_out,)), [])
