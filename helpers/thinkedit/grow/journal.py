"""A JSON-lines journal of every prompt, response and decision: resume and exact replay.

The pipeline is deterministic given the model's responses and the reviewer's decisions, so the journal
is one sequence. When it is read again, each step must ask for what the next record holds. Anything
else means another model, other settings or another version, and is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from helpers import UserError
from helpers.models.tokens import Prompt
from helpers.paths import in_one_line
from helpers.results.store import settings_key


class Respondent(Protocol):
    """The model as the pipeline sees it."""

    @property
    def fingerprint(self) -> str:
        """Identity of whatever determines the responses besides the request."""
        ...

    def respond(
        self, prompts: Sequence[Prompt], *, n: int, seed: int, **changes: Any
    ) -> list[list[str]]:
        """``n`` responses per prompt, each independent of the other prompts.

        ``changes`` are fields of ``Sampling`` that differ from the respondent's usual ones.
        """
        ...


class Journal:
    """Append-only record of a run, replayed from its beginning.

    Args:
        path: the file; created when absent.
        model: fingerprint of the model.
        settings: whatever determines the run besides the model; JSON values.

    Raises:
        UserError: the file was written with another model or other settings, or is damaged.
    """

    def __init__(self, path: Path, *, model: str, settings: Mapping[str, Any]) -> None:
        self.path = path
        self._records, self._size = read_journal(path)
        if path.exists() and path.stat().st_size > self._size:
            warnings.warn(f"{path}: dropped an unfinished last line", stacklevel=2)
            os.truncate(path, self._size)
        self._next = 0
        self.record("run", {"model": model, "settings": dict(settings)}, True)

    @classmethod
    def kept_in(
        cls, folder: Path, name: str, *, model: str, settings: Mapping[str, Any]
    ) -> Journal:
        """The journal of this model and these settings in a folder; others have their own files."""
        key = settings_key({"model": model, "settings": dict(settings)})
        return cls(folder / f"{name}-{key}.jsonl", model=model, settings=settings)

    def recall(self, kind: str, request: Mapping[str, Any]) -> Any:
        """The recorded outcome of the next step, or None at the end of the record.

        Raises:
            UserError: the next record is about something else.
        """
        if self._next == len(self._records):
            return None
        stored = self._records[self._next]
        if (stored["kind"], stored["request"]) != (kind, _plain(request)):
            raise UserError(
                f"{self.path}, line {self._next + 1}: holds {stored['kind']} {stored['request']},"
                f" the run asks for {kind} {_plain(request)}: another model, other settings or another"
                " version wrote it; use the same or start a new journal"
            )
        self._next += 1
        return stored["outcome"]

    def record(self, kind: str, request: Mapping[str, Any], outcome: Any) -> None:
        """Write one step, unless it is recorded."""
        if self.recall(kind, request) is None:
            step = _plain({"kind": kind, "request": request, "outcome": outcome})
            self._append({**step, "digest": _digest(step)})
            self._records.append(step)
            self._next += 1

    def ask(
        self, model: Respondent, prompts: Sequence[Prompt], *, n: int, seed: int, **changes: Any
    ) -> list[list[str]]:
        """Responses to the prompts: recorded ones as they were, the others from the model."""
        requests = [{"prompt": prompt, "n": n, "seed": seed, **changes} for prompt in prompts]
        answered: list[list[str]] = []
        for request in requests:
            if (outcome := self.recall("responses", request)) is None:
                break
            answered.append(outcome)
        if missing := list(prompts)[len(answered) :]:
            fresh = model.respond(missing, n=n, seed=seed, **changes)
            for request, responses in zip(requests[len(answered) :], fresh, strict=True):
                self.record("responses", request, responses)
            answered += fresh
        return answered

    def _append(self, record: Mapping[str, Any]) -> None:
        line = (json.dumps(record, ensure_ascii=False) + "\n").encode()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.path.open("ab") as stream:
                if stream.tell() != self._size:
                    raise UserError(
                        f"{self.path}: another session writes to it; end one and open the journal again"
                    )
                stream.write(line)
        except OSError as error:  # reading drops an unfinished line
            raise UserError(in_one_line(error, self.path)) from error
        self._size += len(line)


def read_journal(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The records (kind, request, outcome), and the bytes they take without an unfinished last line.

    Raises:
        UserError: a line that is not as it was written.
    """
    content = path.read_bytes() if path.exists() else b""
    complete = content[: content.rfind(b"\n") + 1]
    records = []
    for number, line in enumerate(complete.split(b"\n")[:-1], start=1):
        try:
            record = json.loads(line)
            if record.pop("digest") != _digest(record):
                raise ValueError("not the line that was written")
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path}, line {number}: no journal record ({error!r}); restore the file, or delete it"
                " from this line on and decide again"
            ) from error
        records.append(record)
    return records, len(complete)


def _digest(step: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(step).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """The value as JSON gives it back: tuples become lists, dataclasses objects."""
    return json.loads(json.dumps(value, default=asdict))
