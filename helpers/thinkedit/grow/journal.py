"""A JSON-lines journal of every prompt, response and decision: resume and exact replay.

The pipeline is deterministic given the model's responses and the reviewer's decisions, so the journal
is one sequence. Reading it again, each step must ask for what the next record holds; anything else
means another model, other settings or another version, and is refused.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock

from helpers import UserError
from helpers.models.tokens import Prompt
from helpers.results.store import settings_key


class JournalError(UserError):
    """A journal that does not belong to this run, or is damaged."""


class Respondent(Protocol):
    """The model as the pipeline sees it."""

    @property
    def fingerprint(self) -> str:
        """Identity of the weights and of everything else that determines the responses."""
        ...

    def respond(
        self, prompts: Sequence[Prompt], *, n: int, seed: int, **changes: Any
    ) -> list[list[str]]:
        """``n`` responses per prompt; each prompt's depend on nothing but itself and what is given.

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
        JournalError: the file was written with another model or other settings, or is damaged.
    """

    def __init__(self, path: Path, *, model: str, settings: Mapping[str, Any]) -> None:
        self.path = path
        self._records, complete = _read(path)
        if path.exists() and path.stat().st_size > complete:
            warnings.warn(f"{path}: dropped an unfinished last line", stacklevel=2)
            os.truncate(path, complete)
        self._next, self._size = 0, complete
        self.record("run", {"model": model, "settings": dict(settings)}, True)

    @classmethod
    def kept_in(
        cls, folder: Path, name: str, *, model: str, settings: Mapping[str, Any]
    ) -> Journal:
        """The journal of this model and these settings in a folder; others have files of their own."""
        key = settings_key({"model": model, "settings": dict(settings)})
        return cls(folder / f"{name}-{key}.jsonl", model=model, settings=settings)

    @property
    def replaying(self) -> bool:
        """Whether there are recorded steps left to follow."""
        return self._next < len(self._records)

    def recall(self, kind: str, request: Mapping[str, Any]) -> Any:
        """The recorded outcome of the next step, or None at the end of the record.

        Raises:
            JournalError: the next record is about something else.
        """
        if not self.replaying:
            return None
        stored = self._records[self._next]
        if (stored["kind"], stored["request"]) != (kind, _plain(request)):
            raise JournalError(self._difference(stored, kind, _plain(request)))
        self._next += 1
        return stored["outcome"]

    def record(self, kind: str, request: Mapping[str, Any], outcome: Any) -> None:
        """Write one step, or check it against the record when replaying.

        Raises:
            JournalError: the record holds another step or another outcome.
        """
        stored = self.recall(kind, request)
        if stored is None:
            step = {"kind": kind, "request": _plain(request), "outcome": _plain(outcome)}
            line = json.dumps({**step, "digest": _digest(step)}, ensure_ascii=False)
            self._append(f"{line}\n".encode())
            self._records.append(step)
            self._next += 1
        elif stored != _plain(outcome):
            raise JournalError(
                f"{self.path}, line {self._next}: {kind} came out as {outcome!r}, recorded was"
                f" {stored!r}; start a new journal"
            )

    def _append(self, line: bytes) -> None:
        """Add one whole line, or none."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path.with_name(f".{self.path.name}.lock")):
            there = self.path.stat().st_size if self.path.exists() else 0
            if there != self._size:
                raise JournalError(
                    f"{self.path}: another session writes to it, too ({there} bytes, here"
                    f" {self._size}); end one of the two and open the journal again"
                )
            try:
                with self.path.open("ab", buffering=0) as stream:
                    written = stream.write(line)
                if written != len(line):
                    raise OSError(errno.ENOSPC, "No space left on device")
            except OSError as error:
                with suppress(OSError):  # there may not even be a file
                    os.truncate(self.path, self._size)
                raise JournalError(
                    f"{self.path}: could not write ({error}); free some space and open the journal"
                    " again: it goes on after its last whole line"
                ) from error
            self._size += len(line)

    def ask(
        self, model: Respondent, prompts: Sequence[Prompt], *, n: int, seed: int, **changes: Any
    ) -> list[list[str]]:
        """Responses to the prompts: recorded ones as they were, the others from the model."""
        requests = [{"prompt": prompt, "n": n, "seed": seed, **changes} for prompt in prompts]
        answered: list[list[str]] = []
        for request in requests:
            outcome = self.recall("responses", request)
            if outcome is None:
                break
            answered.append(outcome)
        missing = list(prompts)[len(answered) :]
        if missing:
            fresh = model.respond(missing, n=n, seed=seed, **changes)
            for request, responses in zip(requests[len(answered) :], fresh, strict=True):
                self.record("responses", request, responses)
            answered += fresh
        return answered

    def _difference(self, stored: Mapping[str, Any], kind: str, request: Any) -> str:
        place = f"{self.path}, line {self._next + 1}"
        if stored["kind"] == kind == "run":
            names = [k for k in request if request[k] != stored["request"].get(k)]
            return (
                f"{place}: written with another {' and '.join(names)}"
                f" ({stored['request']}, now {request}); use the same or start a new journal"
            )
        return (
            f"{place}: holds {stored['kind']} {stored['request']}, the run asks for {kind} {request};"
            " the run has changed since: start a new journal"
        )


def decisions(path: Path) -> list[dict[str, Any]]:
    """The review decisions of a journal, as {"review": …, "decision": …}, in order."""
    return [
        {"review": record["request"], "decision": record["outcome"]}
        for record in _read(path)[0]
        if record["kind"] == "decision"
    ]


def header(path: Path) -> dict[str, Any]:
    """The model and the settings that a journal was written with.

    Raises:
        JournalError: the file holds no run.
    """
    records = _read(path)[0]
    if not records or records[0]["kind"] != "run":
        raise JournalError(f"{path}: no journal of a run; give a file that a run wrote")
    return dict(records[0]["request"])


def _read(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The records, and the bytes they take; an unfinished last line is not read."""
    if not path.exists():
        return [], 0
    content = path.read_bytes()
    complete = content[: content.rfind(b"\n") + 1]
    records = []
    for number, line in enumerate(complete.split(b"\n")[:-1], start=1):
        try:
            records.append(_step(line))
        except (ValueError, KeyError, TypeError) as error:
            raise JournalError(
                f"{path}, line {number}: no journal record ({error!r}); restore the file, or delete it"
                " from this line on and decide again"
            ) from error
    return records, len(complete)


def _step(line: bytes) -> dict[str, Any]:
    """A line's record."""
    record = json.loads(line)
    digest = record.pop("digest", None)
    if set(record) != {"kind", "request", "outcome"} or digest != _digest(record):
        raise ValueError("not the line that was written")
    return dict(record)


def _digest(step: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(step).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """The value as JSON gives it back (tuples become lists)."""
    return json.loads(json.dumps(value))
