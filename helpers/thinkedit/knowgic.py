"""KnowGIC's files: edits with the implication chains that lead back to the original fact.

Two published layouts are read: June 2025 (21 edits, 558 chains, a list of ``chains`` per record; the
one nearest to the paper's 566) and the latest (26 edits, 1,406 chains, one ``chain`` per record). A
small set of the same form, written by hand for this suite, is packaged as "mini", and what the embedded
models recall as "recalled-<model>" (``python -m tools.recall`` makes it).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers import UserError
from helpers.fetch import locate, official_files
from helpers.paths import PACKAGED
from helpers.records import Usable, read_json
from helpers.thinkedit.edits import Chain, Edit, Fact
from helpers.thinkedit.grow.wordings import read_wordings

LAYOUTS = {layout: official_files()[f"knowgic-{layout}"] for layout in ("2025-06", "latest")}
ALIASES = official_files()["knowgic-aliases"]
OWN = ("mini", "recalled-smollm2-135m", "recalled-gemma3-270m")  # packaged, not KnowGIC
_Rewrite = tuple[str, str, str, str]  # subject, prompt, original object, new object
_FIELDS = ("questions", "answers", "prompts", "subjects")


class KnowGICError(UserError):
    """A record that cannot be read; the message names file, record and remedy."""


def load_edits(layout: str = "2025-06") -> tuple[Edit, ...]:
    """Load the published edits.

    Args:
        layout: "2025-06" (the paper's scope), "latest", one of ``OWN`` ("mini", written by hand, or
            "recalled-<model>", what that model recalls), or the path of a JSON file that
            ``write_edits`` wrote, e.g. from a graph grown out of a model.

    Raises:
        ValueError: no such layout or file.
        UserError: the file is not here and cannot be downloaded.
        KnowGICError: see ``read_edits``.
    """
    return read_edits(edits_file(layout))


def edits_file(layout: str) -> Path:
    """The file of a layout; errors as for ``load_edits``."""
    if layout in OWN:
        return PACKAGED / "thinkedit" / f"{layout}.json"
    if layout in LAYOUTS:
        return locate(LAYOUTS[layout])
    if layout.endswith(".json") and Path(layout).is_file():
        return Path(layout)
    raise ValueError(
        f"no KnowGIC layout {layout!r}; choose from {', '.join((*LAYOUTS, *OWN))}, or give the"
        " path of a JSON file of edits"
    )


def load_aliases(layout: str = "2025-06") -> dict[str, tuple[str, ...]]:
    """Aliases: case-folded entity → other names; the same for both layouts of KnowGIC.

    Recalled graphs have those of the packaged wordings, other edits none.
    """
    if layout.startswith("recalled-"):
        return dict(read_wordings().aliases)
    if layout not in LAYOUTS:
        return {}
    content = json.loads(locate(ALIASES).read_text(encoding="utf-8"))
    return {entity.casefold(): tuple(entry["answer_alias"]) for entity, entry in content.items()}


def read_edits(path: Path) -> tuple[Edit, ...]:
    """Read edits from a file in either layout, or one written by ``write_edits``.

    Records about the same rewrite are joined, their chains in order.

    Raises:
        KnowGICError: no records; a record lacks a field or holds what is no text; its lists differ in
            length; a chain is empty, passes an entity twice, does not hang together or does not end
            at the original object; or two edits share a case_id.
    """
    return tuple(usable_edits(path).checked().records.values())


def usable_edits(path: Path) -> Usable[Edit]:
    """The edits by the place of their first record, and what is wrong with the other records.

    An edit has the chains of its good records: in the latest layout, a bad record costs one chain.

    Raises:
        KnowGICError: not UTF-8, not JSON, or no list of records.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise KnowGICError(f"{path}: not UTF-8 text ({error}); save it as UTF-8") from error
    records = read_json(text, str(path))
    if not isinstance(records, list) or not records:
        raise KnowGICError(f"{path}: must hold a list of records, at least one")
    case_ids: dict[_Rewrite, int] = {}
    taken: dict[int, _Rewrite] = {}

    def read(number: int, record: Any) -> tuple[_Rewrite, list[Chain]]:
        place = f"{path}, record {number}"
        rewrite = _rewrite(record, place)
        lists = record["chains"] if "chains" in record else [record["chain"]]
        if not isinstance(lists, list) or not lists:
            raise KnowGICError(f"{place}: chains must be a list of one or more, not {lists!r}")
        chains = [_chain(entry, rewrite, f"{place}, chain {i}") for i, entry in enumerate(lists)]
        case_id = case_ids.get(rewrite, record["case_id"])
        if taken.setdefault(case_id, rewrite) != rewrite:
            raise KnowGICError(f"{place}: different edits share a case_id ({case_id}); number them")
        case_ids[rewrite] = case_id
        return rewrite, chains

    found = Usable(dict(enumerate(records))).through(read)
    joined: dict[_Rewrite, list[Chain]] = {}
    places: dict[int, _Rewrite] = {}
    for place, (rewrite, chains) in found.records.items():
        if rewrite not in joined:
            places[place] = rewrite
        joined.setdefault(rewrite, []).extend(chains)
    edits = {p: Edit(case_ids[own], *own, tuple(joined[own])) for p, own in places.items()}
    return Usable(edits, found.wrong)


def write_edits(edits: Sequence[Edit], path: Path) -> None:
    """Write edits in the layout of June 2025, a line per record."""
    records = [
        {
            "case_id": edit.case_id,
            "requested_rewrite": [
                {"prompt": edit.prompt, "subject": edit.subject}
                | {"target_true": {"str": edit.original}, "target_new": {"str": edit.new}}
            ],
            "chains": [_lists(chain.facts) for chain in edit.chains],
            "broader_context": _lists(edit.broader_context),
        }
        for edit in edits
    ]
    lines = ",\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def _rewrite(record: Mapping[str, Any], place: str) -> _Rewrite:
    try:
        (rewrite,) = record["requested_rewrite"]
        values = (
            rewrite["subject"],
            rewrite["prompt"],
            rewrite["target_true"]["str"],
            rewrite["target_new"]["str"],
        )
        if type(record["case_id"]) is not int:
            raise TypeError("case_id must be a whole number")
    except (KeyError, TypeError, ValueError) as error:
        raise KnowGICError(
            f"{place}: no proper case_id and requested_rewrite ({error!r})"
        ) from error
    if "chains" not in record and "chain" not in record:
        raise KnowGICError(f"{place}: neither 'chains' (2025-06) nor 'chain' (latest layout)")
    if not all(map(_is_text, values)):
        raise KnowGICError(f"{place}: subject, prompt and targets must be texts, not {values}")
    if values[1].count("{}") != 1:
        raise KnowGICError(f"{place}: prompt {values[1]!r} must hold exactly one {{}}")
    return values


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _chain(entry: Mapping[str, Any], rewrite: _Rewrite, place: str) -> Chain:
    lists = dict(entry) if isinstance(entry, Mapping) else {}
    missing = [name for name in _FIELDS if not isinstance(lists.get(name), list)]
    if missing:
        raise KnowGICError(f"{place}: lacks the lists {', '.join(missing)}")
    for name in _FIELDS:
        if odd := [value for value in entry[name] if not _is_text(value)]:
            raise KnowGICError(f"{place}: {name} must be texts, not {odd[0]!r}")
    sizes = {name: len(entry[name]) for name in _FIELDS}
    if len(set(sizes.values())) != 1:
        raise KnowGICError(f"{place}: lists of different length {sizes}")
    if not entry["questions"]:
        raise KnowGICError(f"{place}: an empty chain; remove it")
    columns = (entry["subjects"], entry["prompts"], entry["answers"], entry["questions"])
    chain = Chain(tuple(Fact(*values) for values in zip(*columns, strict=True)))
    subject, _, original, _ = rewrite
    _check_path(chain, subject, original, place)
    return chain


def _check_path(chain: Chain, subject: str, original: str, place: str) -> None:
    for fact in chain.facts:
        if fact.prompt.count("{}") != 1:
            raise KnowGICError(f"{place}: prompt {fact.prompt!r} must hold exactly one {{}}")
    names = [name.casefold() for name in chain.nodes]
    for earlier, fact in zip(names[1:], chain.facts[1:], strict=False):
        if fact.subject.casefold() != earlier:
            raise KnowGICError(f"{place}: step about {fact.subject!r} does not follow {earlier!r}")
    if names[0] != subject.casefold() or names[-1] != original.casefold():
        raise KnowGICError(f"{place}: must lead from {subject!r} to {original!r}")
    if len(set(names)) != len(names):
        raise KnowGICError(f"{place}: passes an entity twice (a cycle); chains are simple paths")


def _lists(facts: Sequence[Fact]) -> dict[str, list[str]]:
    return {
        "questions": [fact.question for fact in facts],
        "answers": [fact.object for fact in facts],
        "prompts": [fact.prompt for fact in facts],
        "subjects": [fact.subject for fact in facts],
    }
