"""KnowGIC: edits with the implication chains that lead back to the original fact, and their files.

Two published layouts are read: June 2025 (21 edits, 558 chains, a list of ``chains`` per record; the
one nearest to the paper's 566) and the latest (26 edits, 1,406 chains, one ``chain`` per record).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, StrictInt, StringConstraints, model_validator

from helpers import UserError
from helpers.fetch import locate, official_files
from helpers.paths import PACKAGED
from helpers.records import comparable, read_all, read_json, read_text
from helpers.thinkedit.grow.wordings import read_wordings

LAYOUTS = {layout: official_files()[f"knowgic-{layout}"] for layout in ("2025-06", "latest")}
# Packaged in the same form: written by hand, and what a model recalls (``python -m tools.recall``).
OWN = ("mini", "recalled-smollm2-135m", "recalled-gemma3-270m", "recalled-qwen2.5-coder-1.5b")


@dataclass(frozen=True)
class ChainFact:
    """One step: subject, cloze ``prompt`` with one ``{}``, object, and the direct question."""

    subject: str
    prompt: str
    object: str
    question: str

    @property
    def cloze(self) -> str:
        """The prompt about its subject, without a trailing blank."""
        return self.prompt.replace("{}", self.subject).strip()

    @property
    def key(self) -> tuple[str, str, str]:
        """Identity of the fact, whose question's wording varies: case-folded subject, prompt, object."""
        return comparable(self.subject), self.prompt, comparable(self.object)


@dataclass(frozen=True)
class Chain:
    """Facts that lead from the edit's subject to its original object, step by step."""

    facts: tuple[ChainFact, ...]

    def __len__(self) -> int:
        return len(self.facts)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The entities passed, subject first."""
        return (self.facts[0].subject, *(fact.object for fact in self.facts))


@dataclass(frozen=True)
class EditedGraph:
    """A requested edit with its chains; ``original`` and ``new`` are the objects before and after."""

    case_id: int
    subject: str
    prompt: str
    original: str
    new: str
    chains: tuple[Chain, ...]

    @property
    def facts(self) -> tuple[ChainFact, ...]:
        """Distinct facts of the graph, in the order of their *last* appearance on the chains, by which
        stored tables number them (``item``). Of several wordings of a question the first counts.
        """
        distinct = {
            fact.key: fact for chain in reversed(self.chains) for fact in reversed(chain.facts)
        }
        return tuple(reversed(distinct.values()))

    @property
    def direct_fact(self) -> ChainFact | None:
        """The edited fact as its one-step chain words it; a few edits of the latest layout lack one."""
        return next((chain.facts[0] for chain in self.chains if len(chain) == 1), None)


def load_edited_graphs(layout: str = "2025-06") -> tuple[EditedGraph, ...]:
    """Edits of "2025-06" (the paper's scope), "latest", one of ``OWN``, or a JSON file of ``write_edits``."""
    if layout in OWN:
        return read_edits(PACKAGED / "thinkedit" / f"{layout}.json")
    if layout in LAYOUTS:
        return read_edits(locate(LAYOUTS[layout]))
    if layout.endswith(".json") and Path(layout).is_file():
        return read_edits(Path(layout))
    raise UserError(
        f"no KnowGIC layout {layout!r}; choose from {', '.join((*LAYOUTS, *OWN))}, or give"
        " a JSON file of edits"
    )


def load_aliases(layout: str = "2025-06") -> dict[str, tuple[str, ...]]:
    """Case-folded entity → other names: KnowGIC's, for recalled graphs the packaged wordings', else none."""
    if layout.startswith("recalled-"):
        return dict(read_wordings().aliases)
    if layout not in LAYOUTS:
        return {}
    content = json.loads(locate(official_files()["knowgic-aliases"]).read_text("utf-8"))
    return {comparable(entity): tuple(entry["answer_alias"]) for entity, entry in content.items()}


def _checked_prompt(prompt: str) -> str:
    if prompt.count("{}") != 1:
        raise ValueError(f"{prompt!r} must hold exactly one {{}}")
    return prompt


_Text = Annotated[str, StringConstraints(strict=True, pattern=r"\S")]
_Prompt = Annotated[_Text, AfterValidator(_checked_prompt)]


class _Target(BaseModel):
    text: _Text = Field(alias="str")


class _Rewrite(BaseModel):
    subject: _Text
    prompt: _Prompt
    target_true: _Target
    target_new: _Target


class _Lists(BaseModel):
    """A chain as the files have it: what its facts have, list by list."""

    subjects: list[_Text] = Field(min_length=1)
    prompts: list[_Prompt]
    answers: list[_Text]
    questions: list[_Text]

    @model_validator(mode="after")
    def _is_a_path(self) -> _Lists:
        sizes = {name: len(values) for name, values in self}
        if len(set(sizes.values())) != 1:
            raise ValueError(f"lists of different length {sizes}")
        names = [comparable(name) for name in self.chain.nodes]
        for earlier, subject in zip(names[1:], self.subjects[1:], strict=False):
            if comparable(subject) != earlier:
                raise ValueError(f"the step about {subject!r} does not follow {earlier!r}")
        if len(set(names)) != len(names):
            raise ValueError("passes an entity twice (a cycle); chains are simple paths")
        return self

    @property
    def chain(self) -> Chain:
        facts = zip(self.subjects, self.prompts, self.answers, self.questions, strict=True)
        return Chain(tuple(ChainFact(*values) for values in facts))


class _Record(BaseModel):
    """A record of June 2025; one of the latest layout is a record of one chain."""

    case_id: StrictInt
    requested_rewrite: tuple[_Rewrite]
    chains: list[_Lists] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _of_one_chain(cls, record: Any) -> Any:
        if isinstance(record, dict) and "chain" in record:
            return {"chains": [record["chain"]], **record}
        return record

    @model_validator(mode="after")
    def _leads_to_the_object(self) -> _Record:
        ends = comparable(self.edit.subject), comparable(self.edit.original)
        for number, chain in enumerate(self.edit.chains):
            if (comparable(chain.nodes[0]), comparable(chain.nodes[-1])) != ends:
                raise ValueError(f"chains.{number} must lead from {ends[0]!r} to {ends[1]!r}")
        return self

    @property
    def edit(self) -> EditedGraph:
        (own,) = self.requested_rewrite
        objects = own.target_true.text, own.target_new.text
        chains = tuple(lists.chain for lists in self.chains)
        return EditedGraph(self.case_id, own.subject, own.prompt, *objects, chains)


def read_edits(path: Path) -> tuple[EditedGraph, ...]:
    """Read edits of either layout, records of one rewrite joined; a UserError names all bad records."""
    items = read_json(read_text(path), str(path))
    if not isinstance(items, list) or not items:
        raise UserError(f"{path}: must hold a list of records, at least one")
    labelled_items = ((f"{path}, record {number}", item) for number, item in enumerate(items))
    edit_by_rewrite: dict[tuple[str, ...], EditedGraph] = {}
    for edit in (record.edit for record in read_all(labelled_items, _Record.model_validate)):
        rewrite = (edit.subject, edit.prompt, edit.original, edit.new)
        if earlier_edit := edit_by_rewrite.get(rewrite):
            edit = replace(earlier_edit, chains=earlier_edit.chains + edit.chains)
        edit_by_rewrite[rewrite] = edit
    for one, other in pairwise(sorted(edit.case_id for edit in edit_by_rewrite.values())):
        if one == other:
            raise UserError(f"{path}: different edits share a case_id ({one}); number them")
    return tuple(edit_by_rewrite.values())


def write_edits(edits: Sequence[EditedGraph], path: Path) -> None:
    """Write edits in the layout of June 2025, a line per record."""
    lines = []
    for edit in edits:
        objects = {"target_true": {"str": edit.original}, "target_new": {"str": edit.new}}
        rewrite = {"prompt": edit.prompt, "subject": edit.subject, **objects}
        chains = [
            {
                "questions": [fact.question for fact in chain.facts],
                "answers": [fact.object for fact in chain.facts],
                "prompts": [fact.prompt for fact in chain.facts],
                "subjects": [fact.subject for fact in chain.facts],
            }
            for chain in edit.chains
        ]
        record = {"case_id": edit.case_id, "requested_rewrite": [rewrite], "chains": chains}
        lines.append(json.dumps(record, ensure_ascii=False))
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf-8")
