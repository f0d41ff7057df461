"""Tracks of tiny models along streams by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from helpers.editing.request import EditRequest
from helpers.lifelong.checkpoints import LifelongRun
from helpers.lifelong.probes import ProbeCounts, ProbedModel, Probes, drawn_probes
from helpers.lifelong.streams import KnownFact, Stream, StreamRequest
from helpers.lifelong.track import Track
from helpers.results.store import ResultsStore
from helpers.scoring.answers import Question
from tests.editing.conftest import make_editor, moments_of  # noqa: F401 - fixtures
from tests.shortened import shortened

SUBJECTS = ("Mars", "Lake Chad", "Bach", "Oslo", "Peru", "Nile", "Etna", "Cuba", "Java", "Crete")
TARGETS = ("Venus", "Peru", "Aida", "Norway", "Chile")
KNOWN = tuple(
    KnownFact(name, "capital", ("Rome",), "{} has the capital", ()) for name in ("Togo", "Mali")
)


def stream_of(count: int) -> Stream:
    requests = []
    for number in range(count):
        subject = f"{SUBJECTS[number % 10]} {number // 10}"
        request = EditRequest(subject, "{} is near", TARGETS[number % 5], correct=("Rome", "Paris"))
        paraphrases = (f"Close to {subject} is", f"A neighbour of {subject} is")
        requests.append(StreamRequest(number, request, paraphrases, "near"))
    return Stream("by hand", 0, tuple(requests))


@pytest.fixture(scope="session")
def probes() -> Probes:
    """Few packaged probes."""
    counts = ProbeCounts(peak_cf=1, peak_t=1, chains=2, known=2, tokens=200)
    packaged = drawn_probes(("peak-mini-cf", "peak-mini-t"), counts)
    first_pool, second_pool = packaged.records
    records = (tuple(map(shortened, first_pool)), tuple(map(shortened, second_pool)))
    return replace(packaged, records=records)


@pytest.fixture
def short_exam(monkeypatch, tmp_path) -> None:
    """Four questions, in the place of 200, and a cache of its own."""
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path / "cache"))
    questions = [Question("One of them is", (f"a{n}", "b", "c")) for n in range(4)]
    monkeypatch.setattr("helpers.lifelong.probes.exam", lambda: {"facts": questions})


@pytest.fixture
def track_of(tiny, make_editor, tmp_path) -> Callable[..., Track]:  # noqa: F811
    def build(name: str, count: int, folder: str = "store", **more: Any) -> Track:
        lm = tiny("llama")
        editor = make_editor(name, lm)
        return Track(lm, editor, stream_of(count), ResultsStore(tmp_path / folder), **more)

    return build


@pytest.fixture
def run_of(track_of, probes, short_exam) -> Callable[..., LifelongRun]:
    """A run of a tiny model, whose known facts are given: it knows none."""

    def build(
        name: str, checkpoints: tuple[int, ...], *, count: int = 0, **more: Any
    ) -> LifelongRun:
        track = track_of(name, count or max(checkpoints), **more)
        probed = ProbedModel(track.lm, probes)
        probed.__dict__["known_facts"] = list(KNOWN)
        return LifelongRun(track, probed, checkpoints)

    return build
