"""How the relations of recalled graphs are worded, and other names of their entities (packaged YAML)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from helpers import UserError
from helpers.paths import PACKAGED
from helpers.records import load_yaml

WORDINGS = PACKAGED / "thinkedit" / "wordings.yaml"


class WordingError(UserError):
    """A file of wordings that cannot be used; the message names file, relation and remedy."""


@dataclass(frozen=True)
class Wording:
    """One relation.

    ``reads`` stands between subject and object; ``questions``, in the order they are tried, and
    ``clozes`` have one ``{}`` each. ``unfit`` are subjects that a store has the relation of, but which
    the wording does not fit.
    """

    reads: str
    questions: tuple[str, ...]
    clozes: tuple[str, ...]
    unfit: tuple[str, ...] = ()

    @cached_property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        """What the relation's sentences look like, an object after it or its clozes."""
        texts = (f"{{}} {self.reads}", *self.clozes)
        return tuple(
            re.compile(
                re.escape(text).replace(r"\{\}", "(?P<subject>.+?)")
                + r" (?:the )?(?P<object>.+?)\.?",
                re.IGNORECASE,
            )
            for text in texts
        )


@dataclass(frozen=True)
class Wordings:
    """All relations, solved (question, answer) examples, and aliases by case-folded entity."""

    relations: dict[str, Wording]
    examples: tuple[tuple[str, str], ...]
    aliases: dict[str, tuple[str, ...]]
    canonical: dict[str, str]  # case-folded alias → the name that stands for it

    def name(self, label: str) -> str:
        """The name an entity has in recalled graphs."""
        return self.canonical.get(label.casefold(), label)

    def read(self, sentence: str) -> tuple[str, str, str] | None:
        """The fact that a sentence words as one of the relations does: subject, ``reads``, object."""
        for wording in self.relations.values():
            for pattern in wording.patterns:
                if found := pattern.fullmatch(sentence):
                    return found["subject"], wording.reads, found["object"]
        return None

    def questions_about(self, relation: str, subject: str) -> tuple[str, ...]:
        """Questions about a subject; none where no relation reads so."""
        worded = (w for w in self.relations.values() if w.reads == relation)
        return tuple(q.replace("{}", subject) for w in worded for q in w.questions)


@cache
def read_wordings(path: Path = WORDINGS) -> Wordings:
    """Read a file of wordings.

    Raises:
        WordingError: a relation without questions or clozes, or one without exactly one ``{}``.
    """
    content = load_yaml(path.read_text(encoding="utf-8"))
    relations = {}
    for relation, lists in content["relations"].items():
        if missing := {"reads", "questions", "clozes"} - set(lists):
            raise WordingError(f"{path}, {relation}: lacks {', '.join(sorted(missing))}")
        parts = (tuple(lists.get(part, ())) for part in ("questions", "clozes", "unfit"))
        wording = Wording(lists["reads"], *parts)
        texts = (*wording.questions, *wording.clozes)
        if not (wording.questions and wording.clozes) or any(t.count("{}") != 1 for t in texts):
            raise WordingError(
                f"{path}, {relation}: give questions and clozes, each with exactly one {{}}"
            )
        relations[str(relation)] = wording
    named = {name: tuple(others) for name, others in content["aliases"].items()}
    return Wordings(
        relations,
        tuple((question, answer) for question, answer in content["examples"]),
        {name.casefold(): others for name, others in named.items()},
        {other.casefold(): name for name, others in named.items() for other in others},
    )
