"""Read questions, statements and triplets out of a model's free text."""

from __future__ import annotations

import re

from helpers.thinkedit.graph import Triplet

_BULLET = re.compile(r"^\s*(?:[-*•]|\(?\d{1,2}[.)])\s+")
# A full stop ends a sentence only before white space and not after an initial or a common title.
_SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!\b[A-Z]\.)(?<!\bMr\.)(?<!\bMs\.)(?<!\bDr\.)(?<!\bSt\.)(?<!\bMrs\.)(?<!\bProf\.)\s+"
)
_OPENING = re.compile(r"^(?:so|therefore|thus|the answer is|answer)\b[:,]?\s*", re.IGNORECASE)
_MAX_WORDS = 8  # a longer subject, relation or object is a sentence, not an entity


def question_of(text: str) -> str:
    """The first question in the text, or an empty string."""
    for line in text.splitlines():
        found = re.search(r"[^?]*\?", line.removeprefix("Question:"))
        if found and found.group().strip(" ?"):
            return _BULLET.sub("", found.group()).strip()
    return ""


def fallback_question(triplet: Triplet) -> str:
    """A question made from the cloze, for models that do not write one."""
    return f"{triplet.prompt.replace('{}', triplet.subject)} what?"


def statements(text: str) -> list[str]:
    """Split reasoning into statements: one per line and sentence, without bullets, each once."""
    found: dict[str, None] = {}
    for line in text.splitlines():
        for sentence in _SENTENCE_END.split(_BULLET.sub("", line).strip()):
            statement = sentence.strip()
            if len(statement.split()) >= 3 and not _OPENING.match(statement):
                found.setdefault(statement)
    return list(found)


def triplets_of(text: str) -> list[Triplet]:
    """Triplets written as ``a | b | c`` or ``(a, b, c)``, each once.

    Lines with other than three parts, empty or overlong parts, or the same subject and object are
    left out: they are not facts.
    """
    found: dict[tuple[str, str, str], Triplet] = {}
    for line in text.splitlines():
        for parts in _parts(_BULLET.sub("", line).strip()):
            triplet = Triplet(*(_bare(part) for part in parts))
            if _is_atomic(triplet):
                found.setdefault(triplet.key, triplet)
    return list(found.values())


def _parts(line: str) -> list[tuple[str, str, str]]:
    if line.count("|") == 2:
        subject, relation, goal = line.split("|")
        return [(subject, relation, goal)]
    groups = [group.split(",") for group in re.findall(r"\(([^()]*)\)", line)]
    return [(parts[0], parts[1], parts[2]) for parts in groups if len(parts) == 3]


def _bare(part: str) -> str:
    """Without blanks, full stops, brackets and quotes around it; the apostrophe of 's stays."""
    bare = part.strip(' ."`()')
    quoted = len(bare) > 1 and bare.startswith("'") and bare.endswith("'")
    return bare.strip("'").strip(" .") if quoted else bare


def _is_atomic(triplet: Triplet) -> bool:
    parts = (triplet.subject, triplet.relation, triplet.object)
    sized = all(1 <= len(part.split()) <= _MAX_WORDS for part in parts)
    return sized and triplet.key[0] != triplet.key[2]
