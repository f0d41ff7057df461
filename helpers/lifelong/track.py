"""One editor along a stream, turn by turn, kept so that it resumes where it was interrupted.

Right after its turn every request is asked at its prompt (*at once*), which costs one short pass. The state
of the sequence is kept at every checkpoint, and in between every ``KEPT_EVERY`` seconds. What is made again
after an interruption is equal bit for bit, as nothing else enters.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from helpers import UserError
from helpers.editing.edit import Edit
from helpers.editing.editor import Editor
from helpers.editing.sequence import SequenceState
from helpers.kept import kept_at, kept_whole, load_if_intact, remove
from helpers.lifelong.streams import Stream, StreamRequest
from helpers.models import LanguageModel
from helpers.results.archive import as_read
from helpers.results.store import Results, ResultsStore
from helpers.scoring.answers import Question, score_answers

KEPT_EVERY = 120.0  # seconds
# Kinds of the tables of what was asked at once: by turn, and by checkpoint of editors that see all requests.
TURNS = "turns"
TRAININGS = "trainings"


@dataclass(frozen=True)
class Track:
    """A stream that one editor edits in turns of ``turn_size`` requests.

    An editor that sees all requests at once (FT-BF) is trained anew for each checkpoint, and asked all of
    them then.
    """

    lm: LanguageModel
    editor: Editor
    stream: Stream
    store: ResultsStore
    turn_size: int = 1

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All that the edits depend on; the stream is whole, however much of it is edited."""
        return {
            "benchmark": "lifelong",
            "version": 1,  # raise it when the same settings would give other edits or scores
            **self.lm.identity,
            **self.editor.settings(),
            "stream": {
                "name": self.stream.name,
                "order": self.stream.order,
                "requests": self.stream.digest,
            },
            "turn_size": self.turn_size,
            "scored_by": {"answers": Question.version},
        }

    @cached_property
    def results(self) -> Results:
        """Where everything of this track is kept; a UserError where that is of another track."""
        results = self.store.open(self.settings)
        stored_settings = json.loads((results.folder / "settings.json").read_text("utf-8"))
        if stored_settings != as_read(self.settings):
            raise UserError(
                f"{results.folder} holds the states of another model, editor or stream: remove it, or give"
                " another folder as results"
            )
        return results

    def states(self, checkpoints: Sequence[int]) -> Iterator[tuple[int, Edit, SequenceState]]:
        """Edit along the stream and yield, at each checkpoint, the count, all edits as one, and the state."""
        counts = sorted(set(checkpoints))
        if not counts:
            return
        self.stream.first(counts[-1])  # refuses a stream that is too short
        for count in counts:
            if count % self.turn_size and not self.editor.sees_all:
                raise UserError(
                    f"checkpoint {count} is in the middle of a turn of {self.turn_size} edits: give"
                    " multiples of turn_size"
                )
        for count in counts:
            state = self._state_at(count)
            yield count, self.editor.edit_of(state), state

    def at_once(self, checkpoints: Collection[int] = ()) -> pd.DataFrame:
        """What every request was asked right after its turn: a row each (``asked_requests``).

        An editor that sees all requests has no turns: what each was asked after the first of ``checkpoints``
        that it was edited at.
        """
        if not self.editor.sees_all:
            return self.results.read(TURNS)
        asked = self.results.read(TRAININGS)
        at_checkpoints = asked[asked["case_id"].isin(checkpoints)]
        if not len(at_checkpoints):
            return at_checkpoints
        in_order = at_checkpoints.sort_values(["position", "case_id"], ignore_index=True)
        return in_order.drop_duplicates("position", ignore_index=True)

    def _state_at(self, count: int) -> SequenceState:
        """The sequence's state after ``count`` edits, made from the last kept state before."""
        if count == 0:
            return SequenceState()
        if self.editor.sees_all:
            is_asked = count in self.results.done(TRAININGS)
            kept_state = self._kept(count) if is_asked else None
            return kept_state or self._trained_on(count)
        position, state = self._last_kept(count)
        kept_since = time.monotonic()
        kept_between = 0  # the position of the last state that is no checkpoint's
        while position < count:
            turn = self.stream.requests[position : position + self.turn_size]
            started = time.process_time()
            state = self.editor.after_turn(state, [each.request for each in turn])
            seconds = (time.process_time() - started) / len(turn)
            self._note_turn(turn, self.editor.edit_of(state), position, seconds)
            position += len(turn)
            if position == count or time.monotonic() - kept_since > KEPT_EVERY:
                self._keep(position, state)
                if kept_between:
                    remove(kept_at(self._path(kept_between)))
                kept_between = position if position < count else 0
                kept_since = time.monotonic()
        return state

    def _trained_on(self, count: int) -> SequenceState:
        requests = [each.request for each in self.stream.requests[:count]]
        started = time.process_time()
        state = SequenceState(self.editor.edit_jointly(requests))
        seconds = (time.process_time() - started) / count
        asked = asked_requests(self.lm, self.stream.requests[:count], state.edit)
        table = asked.assign(position=range(1, count + 1), seconds=seconds, case_id=count)
        # All are asked: which of them are new depends on the checkpoints of a run.
        self.results.add({TRAININGS: table}, completes=TRAININGS)
        self._keep(count, state)
        return state

    def _note_turn(
        self, turn: Sequence[StreamRequest], edit: Edit, position: int, seconds: float
    ) -> None:
        asked = asked_requests(self.lm, turn, edit)
        numbers = range(position + 1, position + len(turn) + 1)
        table = asked.assign(position=list(numbers), seconds=seconds)
        # Rows are kept by place in the sequence: a turn that is made again adds none.
        self.results.add({TURNS: table.assign(case_id=list(numbers))}, completes=TURNS)

    def _path(self, count: int) -> Path:
        return self.results.folder / f"state_{count:06d}"

    def _keep(self, count: int, state: SequenceState) -> None:
        with kept_whole(self._path(count)) as scratch:
            state.to("cpu").save(scratch)

    def _kept(self, count: int) -> SequenceState | None:
        stored = load_if_intact(self._path(count), SequenceState.load)
        return None if stored is None else stored.to(self.lm.device)

    def _last_kept(self, count: int) -> tuple[int, SequenceState]:
        """The last place up to ``count`` that is kept and intact, and the state there; else the start."""
        for kept_count in reversed(self._kept_counts()):
            if kept_count <= count:
                state = self._kept(kept_count)
                if state is not None:
                    return kept_count, state
        return 0, SequenceState()

    def _kept_counts(self) -> list[int]:
        names = {path.name.split("-")[0] for path in self.results.folder.glob("state_*")}
        return sorted(int(name.removeprefix("state_")) for name in names)

    def thin(self, checkpoints: Sequence[int]) -> None:
        """Remove what is kept between checkpoints, but the last place."""
        needed = {*checkpoints, *self._kept_counts()[-1:]}
        for count in self._kept_counts():
            if count not in needed:
                remove(kept_at(self._path(count)))


def asked_requests(
    lm: LanguageModel, requests: Sequence[StreamRequest], edit: Edit | None, *, wordings: int = 0
) -> pd.DataFrame:
    """Requests asked of an edited model, a row each, in nats.

    Columns: ``case_id``; ``target`` and ``original``, the log-probabilities of the new answer and of the
    likeliest one it replaces (NaN: none is known); ``matched``, whether every token of the new answer is the
    likeliest; the means of the same over the first paraphrases, as many as there are ``wordings``, as
    ``target_paraphrase`` and ``matched_paraphrase``.
    """
    if not requests:
        raise UserError("no request is asked about")
    questions = []
    for request in requests:
        answers = (request.request.target, *request.request.correct)
        questions.append(Question(request.request.text, answers))
        questions += [
            Question(paraphrase, (request.request.target,))
            for paraphrase in request.paraphrases[:wordings]
        ]
    owners = [0 if edit is not None else -1] * len(questions)
    scores = score_answers(lm, questions, [] if edit is None else [edit], owners)
    by_question = dict(iter(scores.groupby("question")))
    rows = []
    number = 0
    for request in requests:
        at_prompt = by_question[number]
        originals = at_prompt["sum"].iloc[1:]
        row = {
            "case_id": request.case_id,
            "target": float(at_prompt["sum"].iloc[0]),
            "original": float(originals.max()) if len(originals) else np.nan,
            "matched": bool(at_prompt["top"].iloc[0] == at_prompt["tokens"].iloc[0]),
            "target_paraphrase": np.nan,
            "matched_paraphrase": np.nan,
        }
        number += 1
        at_paraphrases = [
            by_question[number + index].iloc[0]
            for index, _ in enumerate(request.paraphrases[:wordings])
        ]
        number += len(at_paraphrases)
        if at_paraphrases:
            row["target_paraphrase"] = float(np.mean([score["sum"] for score in at_paraphrases]))
            row["matched_paraphrase"] = float(
                np.mean([score["top"] == score["tokens"] for score in at_paraphrases])
            )
        rows.append(row)
    return pd.DataFrame(rows)
