"""Requests that are held out: editors measure on them what must not be measured on what is to be edited.

They are packaged facts (KLoB-mini's simple ones), each with another subject's answer of its relation as the
target. UltraEdit's normalisation, NAS's norm and MEMOIR's threshold are measured on the first of them, on the
unedited model.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

from helpers.editing.request import EditRequest, RequestError
from helpers.kept import file_digest
from helpers.paths import PACKAGED
from helpers.records import comparable, read_text

FILE = PACKAGED / "klob" / "klob-mini-c.jsonl"
_SLOT = " _"  # where a sentence's answer is


@lru_cache(maxsize=1)
def held_out_requests() -> tuple[EditRequest, ...]:
    """All held-out requests, one relation after the other in turn: the first few are of many relations."""
    by_relation: dict[str, list[tuple[str, str, str]]] = {}
    for line in read_text(FILE).splitlines():
        example = json.loads(line)
        subject, relation, answer = example["knowledge"]
        sentence = example["prompts"][0]
        if sentence.endswith(_SLOT) and sentence.count(subject) == 1:
            prompt = sentence.removesuffix(_SLOT).replace(subject, "{}")
            by_relation.setdefault(relation, []).append((subject, prompt, answer))
    placed_requests = []  # of each request: its number in its relation, and the relation's
    for relation_number, facts in enumerate(by_relation.values()):
        answers = list(dict.fromkeys(answer for _, _, answer in facts))
        if len(answers) == 1:
            continue  # no other answer
        for number, (subject, prompt, answer) in enumerate(facts):
            next_answer = answers[(answers.index(answer) + 1) % len(answers)]
            request = EditRequest(subject, prompt, next_answer, record=f"held-out {subject}")
            placed_requests.append((number, relation_number, request))
    return tuple(
        request
        for *_, request in sorted(placed_requests, key=lambda placed_request: placed_request[:2])
    )


def held_out_digest() -> str:
    """Digest of the file that holds the held-out requests."""
    return file_digest(FILE)


def first_held_out(count: int) -> tuple[EditRequest, ...]:
    """The first ``count`` held-out requests; a ``RequestError`` where there are fewer."""
    requests = held_out_requests()
    if count > len(requests):
        raise RequestError(
            f"{count} held-out requests are asked for, {len(requests)} are packaged; lower held_out"
        )
    return requests[:count]


def check_held_out(requests: Sequence[EditRequest], count: int) -> None:
    """Refuse a request that is one of the first ``count`` held-out ones, whatever its target."""
    prompts = {comparable(held_out.text) for held_out in first_held_out(count)}
    for request in requests:
        if comparable(request.text) in prompts:
            raise RequestError(
                f"record {request.record or request.text!r}: its prompt is one of the {count} held-out"
                " requests that the editor's statistics are measured on; drop it, or lower held_out"
            )
