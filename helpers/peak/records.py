"""PEAK records: one fact with a list of answers, one answer to append (PEAK, Section 5).

The files' own keys are kept on disk, misspellings included; records use the paper's terms.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, AliasPath, Field, Strict, TypeAdapter

from helpers import UserError
from helpers.fetch import NotHereError, locate, official_files
from helpers.kept import file_digest
from helpers.params import check_range
from helpers.paths import PACKAGED
from helpers.records import comparable, read_all, read_json, read_text
from helpers.samples.design import stratified
from helpers.scoring.naming import mentions

OFFICIAL = {name: official_files()[name] for name in ("peak-cf", "peak-t")}
MINI = {name: PACKAGED / "peak" / f"{name}.json" for name in ("peak-mini-cf", "peak-mini-t")}
STRICT = "names compared without case, Unicode form and outer blanks"
_SLICE = re.compile(r"(?P<name>.+)\[(?P<start>\d*):(?P<stop>\d*)\]")
_NAME = {"target": "appended", "correct": "correct", "hard": "hard false", "random": "random false"}


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be blank")
    return value


def _one_slot(prompt: str) -> str:
    if (slot_count := prompt.count("{}")) != 1:
        raise ValueError(f"must hold one {{}} for the subject, has {slot_count}")
    return prompt


def _rewrite(*path: str) -> Any:
    return Field(validation_alias=AliasPath("requested_rewrite", *path))


Text = Annotated[str, AfterValidator(_not_blank)]
Texts = tuple[Text, ...]


@dataclass(frozen=True)
class PeakRecord:
    """One answer to append to the answers of a fact, with what should not change by it.

    In the paper's words ``target_new`` is o*, ``correct`` O (``target_true`` is one of them), ``hard_false``
    O_h, related to o*, and ``random_false`` O_r. ``prompt`` holds one ``{}`` for the subject, which is
    filled in in ``paraphrases``; ``locality`` are prompts of other facts with their original answers.
    ``"re_"`` before a relation such as ``"P47"`` marks the inverse.
    """

    case_id: Annotated[int, Strict()]
    relation: Annotated[Text, _rewrite("relation_id")]
    prompt: Annotated[Text, AfterValidator(_one_slot), _rewrite("prompt")]
    subject: Annotated[Text, _rewrite("subject")]
    target_new: Annotated[Text, _rewrite("target_new", "str")]
    target_true: Annotated[Text, _rewrite("target_true", "str")]
    correct: Annotated[Texts, Field(min_length=1, validation_alias="postive_list")]
    hard_false: Annotated[Texts, Field(min_length=1, validation_alias="negtive_list")]
    random_false: Annotated[Texts, Field(min_length=1, validation_alias="negtive_random_list")]
    paraphrases: Annotated[Texts, Field(validation_alias="para_add_prompts")]
    locality: Annotated[
        tuple[tuple[Text, Text], ...], Field(validation_alias="neighborhood_prompts")
    ]

    @property
    def lists(self) -> dict[str, tuple[str, ...]]:
        """The answers asked at the record's own prompts, by the list they are from."""
        return {
            "target": (self.target_new,),
            "correct": self.correct,
            "hard": self.hard_false,
            "random": self.random_false,
        }

    @property
    def edit_prompt(self) -> str:
        """The edit prompt with the subject filled in."""
        return self.prompt.replace("{}", self.subject)

    def with_strict_lists(self) -> PeakRecord:
        """The record without o* among the other answers, or correct answers among the false ones.

        Names are ``compared``: "nile" is "Nile". A name twice in one list stays; no list may be left empty.
        """
        appended_key = {comparable(self.target_new)}
        true_keys = appended_key.union(map(comparable, self.correct))

        def others(
            list_key: str, answers: Iterable[str], excluded_keys: set[str]
        ) -> tuple[str, ...]:
            left = tuple(answer for answer in answers if comparable(answer) not in excluded_keys)
            if left:
                return left
            raise ValueError(
                f"{list_key} holds nothing beyond contradictions (strict_lists=False keeps them)"
            )

        return replace(
            self,
            correct=others("postive_list", self.correct, appended_key),
            hard_false=others("negtive_list", self.hard_false, true_keys),
            random_false=others("negtive_random_list", self.random_false, true_keys),
        )

    def to_json(self) -> dict[str, object]:
        """The record in the published schema."""
        return {
            "case_id": self.case_id,
            "requested_rewrite": {
                "prompt": self.prompt,
                "relation_id": self.relation,
                "target_new": {"str": self.target_new},
                "target_true": {"str": self.target_true},
                "subject": self.subject,
            },
            "postive_list": list(self.correct),
            "negtive_list": list(self.hard_false),
            "para_add_prompts": list(self.paraphrases),
            "neighborhood_prompts": [list(pair) for pair in self.locality],
            "negtive_random_list": list(self.random_false),
        }


@dataclass(frozen=True)
class PeakData:
    """Records of one PEAK file."""

    name: str  # of the data set, or the file's stem
    path: Path
    checksum: str  # SHA-256 of the whole file
    records: tuple[PeakRecord, ...]
    strict_lists: bool = True  # whether contradictions between the lists were dropped

    def counts(self) -> dict[str, int]:
        """Sizes of the set as in PEAK, Table 2."""
        fields_by_title = {
            "correct answers": "correct",
            "paraphrase prompts": "paraphrases",
            "locality prompts": "locality",
            "hard false answers": "hard_false",
            "random false answers": "random_false",
        }
        counts_by_title = {"records": len(self.records)}
        for title, field_name in fields_by_title.items():
            sizes = [len(getattr(record, field_name)) for record in self.records]
            counts_by_title[title] = sum(sizes)
        return counts_by_title


def load_peak(
    name_or_path: str | Path,
    *,
    strict_lists: bool = True,
    limit: int | None = None,
    keep: int | None = None,
    seed: int = 0,
) -> PeakData:
    """Load a PEAK data set; a ``UserError`` names each record that breaks the schema, and the fault.

    Args:
        name_or_path: ``"peak-cf"`` or ``"peak-t"`` (official), ``"peak-mini-cf"``, ``"peak-mini-t"``
            (packaged), or a file in the same schema; ``"peak-cf[100:200]"`` is a slice of its
            records, which counts as a part of the same data set.
        strict_lists: see ``PeakRecord.with_strict_lists``; False keeps the lists as published.
        limit: read as many only: the first ones, or ``keep`` first ones and others ``stratified``, with
            0 all of them. The first records of an official file are no random sample of its relations.
    """

    def read(item: object) -> PeakRecord:
        record = _SCHEMA.validate_python(item)
        return record.with_strict_lists() if strict_lists else record

    if limit is not None:
        check_range("records", limit, 1)
    dataset_name, record_slice = _sliced(str(name_or_path))
    data_name, path = _find(dataset_name)
    json_items = read_json(read_text(path), str(path))
    if not isinstance(json_items, list) or not json_items:
        raise UserError(f"{path}: expected a non-empty JSON list of records")
    named_items = _placed(json_items, path)[record_slice]
    if keep is None:
        named_items = named_items[:limit]
    records = read_all(named_items, read)
    if keep is not None:
        records = [*records[:keep], *stratified(records[keep:], seed)][:limit]
    if not records:
        raise UserError(f"{name_or_path}: the slice is empty, {path} has {len(json_items)} records")
    return PeakData(
        name=data_name,
        path=path,
        checksum=file_digest(path),
        records=tuple(records),
        strict_lists=strict_lists,
    )


def record_count(name_or_path: str, *, limit: int | None = None, download: bool = True) -> int:
    """How many records ``load_peak`` would give; as published, of a file that is not here and may not be
    downloaded.
    """
    dataset_name, record_slice = _sliced(name_or_path)
    if dataset_name in OFFICIAL and not download:
        official_file = OFFICIAL[dataset_name]
        try:
            locate(official_file, download=False)
        except NotHereError:
            published_indices = range(official_file.records or 0)
            if not published_indices[record_slice]:
                raise UserError(
                    f"{name_or_path}: the slice is empty, {dataset_name} has"
                    f" {len(published_indices)} records"
                ) from None
            return len(published_indices[record_slice][:limit])
    return len(load_peak(name_or_path, limit=limit, strict_lists=False).records)


def save_peak(records: Iterable[PeakRecord], path: Path) -> None:
    """Write records in the PEAK schema, so that ``load_peak`` reads them back."""
    json_text = json.dumps([record.to_json() for record in records], indent=1, ensure_ascii=False)
    path.write_text(json_text + "\n", "utf-8")


def part_name(name: str, start: int, stop: int) -> str:
    """The name of some records of a data set, which may be a slice itself.

    >>> part_name("peak-cf[100:200]", 10, 20)
    'peak-cf[110:120]'
    """
    dataset_name, outer_slice = _sliced(name)
    outer_start = outer_slice.start or 0
    return f"{dataset_name}[{outer_start + start}:{outer_start + stop}]"


def contradictions(record: PeakRecord) -> dict[str, list[str]]:
    """What a record holds against itself: names and prompts by kind.

    A name in two lists, or twice in one, is reported by its first place: ``appended answer among hard
    false``, ``correct answer repeated``. Names are compared by ``comparable``, as in strict lists.
    """
    first_place = {comparable(record.subject): "subject"}
    by_kind: dict[str, list[str]] = defaultdict(list)
    for list_name, answers in record.lists.items():
        place_of_list = f"{_NAME[list_name]} answer"
        for answer in answers:
            earlier_place = first_place.get(comparable(answer), "")
            if earlier_place == place_of_list:
                by_kind[f"{place_of_list} repeated"].append(answer)
            elif earlier_place:
                by_kind[f"{earlier_place} among {_NAME[list_name]}"].append(answer)
            else:
                first_place[comparable(answer)] = place_of_list
    correct_keys = set(map(comparable, record.correct))
    for prompt, answer in record.locality:
        if comparable(answer) not in correct_keys:
            by_kind["locality answer not correct"].append(answer)
        if prompt in (record.edit_prompt, *record.paraphrases):
            by_kind["locality prompt in scope"].append(prompt)
    if mentions(record.edit_prompt, [record.target_new]):
        by_kind["edit prompt gives o* away"].append(record.target_new)
    return dict(by_kind)


_SCHEMA = TypeAdapter(PeakRecord)


def _sliced(name: str) -> tuple[str, slice]:
    """``name[start:stop]`` as the name and the slice; a plain name means all records."""
    match = _SLICE.fullmatch(name)
    if match is None:
        return name, slice(None)
    bounds = (int(match[bound]) if match[bound] else None for bound in ("start", "stop"))
    return match["name"], slice(*bounds)


def _find(name: str) -> tuple[str, Path]:
    if name in OFFICIAL:
        return name, locate(OFFICIAL[name])
    path = MINI.get(name, Path(name))
    if not path.is_file():
        known_names = ", ".join([*OFFICIAL, *MINI])
        raise UserError(f"{name}: neither a file nor a PEAK data set; known names: {known_names}")
    return path.stem, path


def _placed(json_items: Sequence[Any], path: Path) -> list[tuple[str, Any]]:
    """All items by their place. Tables name records by number: one that is used twice is refused."""
    named_items = []
    first_index: dict[int, int] = {}  # by number
    for index, json_item in enumerate(json_items):
        case_number = json_item.get("case_id") if isinstance(json_item, dict) else None
        record_name = f"{path}, record {index}"
        if isinstance(case_number, int):
            earlier_index = first_index.setdefault(case_number, index)
            if earlier_index != index:
                raise UserError(
                    f"{record_name}: case_id {case_number} is taken by record {earlier_index};"
                    " give each its own"
                )
            record_name += f", case_id {case_number}"
        named_items.append((record_name, json_item))
    return named_items
