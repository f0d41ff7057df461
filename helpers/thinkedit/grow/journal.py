"""A JSON-lines journal of every prompt, response and decision: resume and exact replay.

The pipeline is deterministic given the model's responses and the reviewer's decisions. When it runs again,
what the journal holds is neither asked nor decided a second time.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from helpers import UserError
from helpers.models.tokens import Prompt
from helpers.paths import digest_of, in_one_line
from helpers.thinkedit.grow.language import ModelRespondent


class Journal:
    """Append-only record of a run; its ``header``, the model's fingerprint and the settings, is all that
    determines it (None: the file's).
    """

    def __init__(self, path: Path, header: Mapping[str, Any] | None = None) -> None:
        self.path = path
        content = path.read_bytes() if path.exists() else b""
        complete = content[: content.rfind(b"\n") + 1]
        lines = enumerate(complete.splitlines(), start=1)
        records = [_read(line, f"{path}, line {number}") for number, line in lines]
        if len(content) > len(complete):
            warnings.warn(f"{path}: dropped an unfinished last line", stacklevel=2)
            os.truncate(path, len(complete))
        self._size = len(complete)
        self._outcomes = {_text([r["kind"], r["request"]]): r["outcome"] for r in records}
        if not records:
            if header is None:
                raise UserError(f"{path}: no journal of a run; give a file that a run wrote")
            self.record("run", header, True)
        elif header is not None and self.recall("run", header) is None:
            raise UserError(
                f"{path}: holds a run of {records[0]['request']}, not of {_text(header)}: another model or"
                " other settings wrote it; use the same or start a new journal"
            )
        self.header = header or records[0]["request"]

    def recall(self, kind: str, request: Mapping[str, Any]) -> Any:
        """The recorded outcome of a step, or None."""
        return self._outcomes.get(_text([kind, request]))

    def record(self, kind: str, request: Mapping[str, Any], outcome: Any) -> None:
        """Write a step that the record lacks."""
        step = {"kind": kind, "request": request, "outcome": outcome}
        line = (_text({**step, "digest": _digest(step)}) + "\n").encode()
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
        self._outcomes[_text([kind, request])] = outcome

    def ask(
        self, model: ModelRespondent | None, prompts: Sequence[Prompt], *, n: int, **how: Any
    ) -> list[list[str]]:
        """Responses to the prompts: recorded ones as they were, the others from the model."""
        requests = [{"prompt": prompt, "n": n, **how} for prompt in prompts]
        missing = [each for each in requests if self.recall("responses", each) is None]
        if missing and model is None:
            raise UserError(
                f"{self.path} does not answer {missing[0]['prompt']!r}: the pipeline has changed since;"
                " grow it again, by python -m tools.grow or at notebook 06's panel"
            )
        if model and missing:
            fresh = model.respond([each["prompt"] for each in missing], n=n, **how)
            for request, responses in zip(missing, fresh, strict=True):
                self.record("responses", request, responses)
        return [self.recall("responses", request) for request in requests]


def _read(line: bytes, place: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
        if record.pop("digest") != _digest(record):
            raise ValueError("not the line that was written")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(
            f"{place}: no journal record ({error!r}); restore the file, or delete it from this line on and"
            " decide again"
        ) from error
    return record


def _digest(step: Mapping[str, Any]) -> str:
    return digest_of(json.dumps(step, default=asdict).encode())


def _text(value: Any) -> str:
    return json.dumps(value, default=asdict, ensure_ascii=False)
