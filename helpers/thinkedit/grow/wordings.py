"""How the relations of recalled graphs are worded, and other names of their entities (packaged YAML)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from helpers import UserError
from helpers.paths import PACKAGED
from helpers.records import load_yaml

WORDINGS = PACKAGED / "thinkedit" / "wordings.yaml"


@dataclass(frozen=True)
class Wording:
    """One relation.

    ``reads`` connects subject and object; ``questions``, in the order they are tried, and ``clozes`` have
    one ``{}`` each. ``unfit`` are subjects that a store has the relation of, but which the wording does
    not fit.
    """

    reads: str
    questions: tuple[str, ...]
    clozes: tuple[str, ...]
    unfit: tuple[str, ...] = ()

    @cached_property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        """Patterns of the relation's sentences: ``reads`` or a cloze, then an object."""
        escaped = (re.escape(text) for text in (f"{{}} {self.reads}", *self.clozes))
        texts = (text.replace(r"\{\}", "(?P<subject>.+?)") for text in escaped)
        return tuple(re.compile(rf"{t} (?:the )?(?P<object>.+?)\.?", re.IGNORECASE) for t in texts)


@dataclass(frozen=True)
class Wordings:
    """All relations, solved (question, answer) examples, and aliases by case-folded entity."""

    relations: dict[str, Wording] = field(default_factory=dict)
    examples: tuple[tuple[str, str], ...] = ()
    aliases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    canonical: dict[str, str] = field(default_factory=dict)  # case-folded alias → preferred name

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

    def questions_about(self, relation: str, subject: str) -> list[str]:
        """Questions about a subject; none where no relation reads so."""
        worded = (w for w in self.relations.values() if w.reads == relation)
        return [q.replace("{}", subject) for w in worded for q in w.questions]


@cache
def read_wordings(path: Path = WORDINGS) -> Wordings:
    """Read a file of wordings.

    Raises:
        UserError: a relation without questions or clozes, or one without exactly one ``{}``.
    """
    content = load_yaml(path.read_text(encoding="utf-8"))
    relations = {}
    for relation, parts in content["relations"].items():
        lists = {name: tuple(parts.get(name, ())) for name in ("questions", "clozes", "unfit")}
        texts = (*lists["questions"], *lists["clozes"])
        fit = "reads" in parts and lists["questions"] and lists["clozes"]
        if not fit or any(text.count("{}") != 1 for text in texts):
            raise UserError(
                f"{path}, {relation}: give reads, and questions and clozes with exactly one {{}} each"
            )
        relations[str(relation)] = Wording(parts["reads"], **lists)
    aliases = content["aliases"]
    return Wordings(
        relations,
        tuple((question, answer) for question, answer in content["examples"]),
        {name.casefold(): tuple(others) for name, others in aliases.items()},
        {other.casefold(): name for name, others in aliases.items() for other in others},
    )
