"""PEAK records: one fact with a list of answers, one answer to append (PEAK, Section 5).

The files' own keys are kept on disk, misspellings included; records use the paper's terms.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from helpers import UserError
from helpers.fetch import locate, official_files
from helpers.kept import file_digest
from helpers.paths import PACKAGED
from helpers.peak.anomalies import PeakWarning, find_anomalies
from helpers.peak.schema import PeakRecord
from helpers.records import Usable, read_json, skipped_words

OFFICIAL = {name: official_files()[name] for name in ("peak-cf", "peak-t")}
_PACKAGED_NAMES = ("peak-mini-cf", "peak-mini-t")
MINI = {name: PACKAGED / "peak" / f"{name}.json" for name in _PACKAGED_NAMES}
_SLICE = re.compile(r"(?P<name>.+)\[(?P<start>\d*):(?P<stop>\d*)\]")


@dataclass(frozen=True)
class PeakData:
    """Records of one PEAK file.

    Attributes:
        name: data set name, or the file's stem.
        path: the file read.
        checksum: SHA-256 of the whole file.
        records: in file order.
        warnings: anomalies of these records as they stand in the file.
        strict_lists: whether contradictions between the lists were dropped.
        skipped: of each record that was left out, what is wrong with it.
    """

    name: str
    path: Path
    checksum: str
    records: tuple[PeakRecord, ...]
    warnings: tuple[PeakWarning, ...]
    strict_lists: bool = True
    skipped: tuple[str, ...] = ()

    @property
    def described(self) -> str:
        """Name and number of records for a caption."""
        return f"{self.name}, {len(self.records)} records{skipped_words(len(self.skipped))}"

    def counts(self) -> dict[str, int]:
        """``counts`` of the records."""
        return counts(self.records)


def counts(records: Sequence[PeakRecord]) -> dict[str, int]:
    """Sizes of a set as in PEAK, Table 2."""
    return {
        "records": len(records),
        "correct answers": sum(len(record.correct) for record in records),
        "paraphrase prompts": sum(len(record.paraphrases) for record in records),
        "locality prompts": sum(len(record.locality) for record in records),
        "hard false answers": sum(len(record.hard_false) for record in records),
        "random false answers": sum(len(record.random_false) for record in records),
    }


def load_peak(
    name_or_path: str | Path,
    *,
    strict_lists: bool = True,
    limit: int | None = None,
    skip_bad: bool = False,
) -> PeakData:
    """Load a PEAK data set.

    Args:
        name_or_path: ``"peak-cf"`` or ``"peak-t"`` (official, see ``helpers.fetch``),
            ``"peak-mini-cf"``, ``"peak-mini-t"`` (packaged, built from triples by notebook 02),
            or a file in the same schema; ``"peak-cf[100:200]"`` is a slice of its records,
            which counts as a part of the same data set, not as one of its own.
        strict_lists: drop the answer to append from all other answers, and correct answers from the
            false ones, by ``compared`` names; False keeps the lists as published.
        skip_bad: leave out records that break the schema, each named in ``skipped``.

    Raises:
        UserError: not JSON, a record that breaks the schema, or no record is left.
        UserError: the official file is neither here nor downloadable, or not the published one.
        ValueError: a limit below 1.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1 record, or None for all; got {limit}")
    whole, chosen = _sliced(str(name_or_path))
    name, path = _find(whole)
    items = list(enumerate(_read(path)))
    if not items[chosen]:
        raise UserError(f"{name_or_path}: the slice is empty, {path} has {len(items)} records")
    taken = _taken_numbers(items, path)
    if not skip_bad:
        Usable({}, taken).checked()

    def read(position: int, item: object) -> tuple[PeakRecord, PeakRecord]:
        if position in taken:
            raise UserError(taken[position])
        record = PeakRecord.from_json(item, where=f"{path}, record {position}")
        return record, _strict(record, path) if strict_lists else record

    found = Usable(dict(islice(items[chosen], limit))).through(read).checked(skip_bad=skip_bad)
    return PeakData(
        name=name,
        path=path,
        checksum=file_digest(path),
        records=tuple(record for _, record in found.records.values()),
        warnings=tuple(find_anomalies([published for published, _ in found.records.values()])),
        strict_lists=strict_lists,
        skipped=tuple(found.wrong.values()),
    )


def save_peak(records: Iterable[PeakRecord], path: Path) -> None:
    """Write records in the PEAK schema, so that ``load_peak`` reads them back."""
    text = json.dumps([record.to_json() for record in records], indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def part_name(name: str, start: int, stop: int) -> str:
    """The name of some records of a data set, which may be a slice itself.

    >>> part_name("peak-cf[100:200]", 10, 20)
    'peak-cf[110:120]'
    """
    whole, outer = _sliced(name)
    first = outer.start or 0
    return f"{whole}[{first + start}:{first + stop}]"


def _sliced(name: str) -> tuple[str, slice]:
    """``name[start:stop]`` as the name and the slice; a plain name means all records."""
    match = _SLICE.fullmatch(name)
    if match is None:
        return name, slice(None)
    bounds = (int(match[key]) if match[key] else None for key in ("start", "stop"))
    return match["name"], slice(*bounds)


def _find(name_or_path: str | Path) -> tuple[str, Path]:
    """Name and path of a data set."""
    name = str(name_or_path)
    if name in OFFICIAL:
        return name, locate(OFFICIAL[name])
    path = MINI.get(name, Path(name_or_path))
    if not path.is_file():
        known = ", ".join([*OFFICIAL, *MINI])
        raise UserError(f"{name}: neither a file nor a PEAK data set; known names: {known}")
    return path.stem, path


def _read(path: Path) -> list[Mapping[str, object]]:
    """The file's list of records, as JSON objects."""
    try:
        content = read_json(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text ({error}); save it as UTF-8") from error
    if not isinstance(content, list) or not content:
        raise UserError(f"{path}: expected a non-empty JSON list of records")
    return content


def _taken_numbers(items: Sequence[tuple[int, Mapping[str, object]]], path: Path) -> dict[int, str]:
    """Positions whose case_id an earlier record of the file has, and what to say of them.

    Tables name records by it, so two with one number are taken for each other, even if one is read.
    """
    seen: set[object] = set()
    taken = {}
    for position, item in items:
        number = item.get("case_id") if isinstance(item, dict) else None
        if isinstance(number, int) and number in seen:
            taken[position] = (
                f"{path}, record {position}: case_id {number} is taken; number them apart"
            )
        seen.add(number if isinstance(number, int) else None)
    return taken


def _strict(record: PeakRecord, path: Path) -> PeakRecord:
    """The record without contradictions between its lists."""
    strict = record.with_strict_lists()
    for key, values in strict.to_json().items():
        if key in ("postive_list", "negtive_list", "negtive_random_list") and not values:
            raise UserError(
                f"{path}, case_id {record.case_id}: {key} holds nothing beyond contradictions; "
                "mend the record or load with strict_lists=False"
            )
    return strict
