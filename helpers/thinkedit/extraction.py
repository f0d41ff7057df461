"""Read questions, statements and triplets out of a model's free text."""

from __future__ import annotations

import re

from helpers.scoring.naming import mentions
from helpers.thinkedit.graph import Triplet
from helpers.thinkedit.wordings import Wordings

_BULLET = re.compile(r"^\s*(?:[-*•]|\(?\d{1,2}[.)])\s+")
# A full stop ends a sentence only before white space and not after an initial or a common title.
_SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!\b[A-Z]\.)(?<!\bMr\.)(?<!\bMs\.)(?<!\bDr\.)(?<!\bSt\.)(?<!\bMrs\.)(?<!\bProf\.)\s+"
)
# A conclusion is no fact, and a pronoun names nothing.
_OPENING = re.compile(
    r"(?:so|therefore|thus|however|the answer is|answer|it|he|she|they|this|that|these|there)\b",
    re.IGNORECASE,
)
_NAME_AT_END = re.compile(
    r"(?P<relation>[a-z](?:.*?[a-z])?)\s+(?:the\s+)?"
    r"(?P<name>[^\W\d_a-z][^\s,]*(?:\s+(?:(?:of|and|the|de|la|du|von|van)\s+)*[^\W\d_a-z][^\s,]*)*)"
)
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


def triplets_of(text: str, statement: str, wordings: Wordings | None = None) -> list[Triplet]:
    """The triplets that a model wrote for a statement, as ``a | b | c`` or ``(a, b, c)``, each once.

    A line that words a known relation is read by it, however it is split. One of two parts,
    ``a | b c``, is split before the name at its end.

    Args:
        text: what the model wrote.
        statement: what it was asked about; a triplet with an entity that is not in it is left out.
        wordings: the known relations, and the names that stand for their entities' aliases.

    Left out, too, are lines of other shapes, empty or overlong parts, and an entity's relation to itself:
    they are not facts.
    """
    found: dict[tuple[str, str, str], Triplet] = {}
    for line in text.splitlines():
        for parts in _parts(_BULLET.sub("", line).strip(), wordings):
            subject, relation, goal = (_bare(part).removeprefix("the ") for part in parts)
            if not all(mentions(statement, (entity,)) for entity in (subject, goal)):
                continue
            if wordings is not None:
                subject, goal = wordings.name(subject), wordings.name(goal)
            triplet = Triplet(subject, relation, goal)
            if _is_atomic(triplet):
                found.setdefault(triplet.key, triplet)
    return list(found.values())


def _parts(line: str, wordings: Wordings | None) -> list[tuple[str, str, str]]:
    groups = [group.split(",") for group in re.findall(r"\(([^()]*)\)", line)]
    if listed := [(parts[0], parts[1], parts[2]) for parts in groups if len(parts) == 3]:
        return listed
    parts = [part.strip() for part in line.split("|")]
    if wordings is not None and (worded := wordings.read(" ".join(parts))):
        return [worded]
    if len(parts) == 2 and (named := _NAME_AT_END.fullmatch(parts[1])):
        return [(parts[0], named["relation"], named["name"])]
    return [(parts[0], parts[1], parts[2])] if len(parts) == 3 else []


def _bare(part: str) -> str:
    """Without blanks, full stops, brackets and quotes around it; the apostrophe of 's stays."""
    bare = part.strip(' ."`()')
    quoted = len(bare) > 1 and bare.startswith("'") and bare.endswith("'")
    return bare.strip("'").strip(" .") if quoted else bare


def _is_atomic(triplet: Triplet) -> bool:
    parts = (triplet.subject, triplet.relation, triplet.object)
    sized = all(1 <= len(part.split()) <= _MAX_WORDS for part in parts)
    return sized and triplet.key[0] != triplet.key[2]
