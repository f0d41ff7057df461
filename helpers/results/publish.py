"""One loop publishes every paper's run: check its source, skip what is there, make the rest, store it.

Each paper's room lists the parts of its run in ``publish.py``, as ``publication(params)``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import UserError
from helpers.results.archive import About, Archive, ArchiveError, Run, as_read

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Part:
    """One table of a run; ``Run.joined`` reads those whose names are alike up to a colon as one."""

    name: str  # such as "ROME+APP" or "exact: rome, deep"
    settings: Mapping[str, Any]  # what its rows depend on besides the run's source
    make: Callable[[], pd.DataFrame]  # the whole table; resumes through the results store
    stored: Callable[[], pd.DataFrame] | None = None  # the rows that are finished
    cases: Collection[int] = ()  # values of ``case_id``; a table with all of them is not made again


@dataclass(frozen=True)
class Publication:
    """A run to be published."""

    name: str
    about: About
    parts: Sequence[Part]  # in the order in which they are made
    # What captions report, from the names of all tables that the run will have; None: what ``about`` has.
    caption: Callable[[Collection[str]], Mapping[str, Any]] | None = None


def publish_parts(publication: Publication, into: Archive, *, finished: bool = False) -> Path:
    """Make the parts that are not published with these settings and cases; each is stored at once.

    Where the published run has another source or preset, or more records, nothing is made. If
    ``finished``, nothing is computed, and what is finished is stored. Gives the run's folder.
    """
    name, about, parts = publication.name, publication.about, publication.parts
    into.check(name, about)
    known = into.known(name)
    if known:
        _check_caption(into.root / known.name, known.about.caption, about.caption)
    missing = [part for part in parts if not (known and is_published(known, part))]
    stored = len(parts) - len(missing)
    for part in missing:
        make = part.stored if finished else part.make
        if make and len(table := make()):
            names = dict.fromkeys([*(known.tables if known else ()), part.name])
            caption = publication.caption(names) if publication.caption else about.caption
            made = About(about.source, {part.name: part.settings}, caption)
            into.put(name, {part.name: table}, made)
            known = into.known(name)
            stored += 1
    if not stored:
        raise UserError(f"nothing of {name} is finished; nothing was stored")
    return into.folder(name)


def is_published(run: Run, part: Part) -> bool:
    """Whether a run has a part's table, made with the same settings and holding all of its cases."""
    made = run.about.settings.get(part.name, {})
    if part.name not in run.tables or made != as_read(part.settings):
        return False
    return not part.cases or set(part.cases) <= set(run.tables[part.name]["case_id"])


def _check_caption(place: Path, known: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Refuse another preset, or records without those that are there: captions state those of all tables."""
    for name, there in known.items():
        here = as_read(new).get(name, {})
        words = ""
        if isinstance(there, dict) and not there.keys() <= here.keys():
            words = "has records that this run lacks: draw the same"
        presets = [str(each).partition(" (")[0] for each in (there, here)]
        if name == "preset" in new and presets[0] != presets[1]:
            words = f"is of preset {presets[0]}, this run of {presets[1]}: give the former"
        if words:
            raise ArchiveError(f"{place} {words}, or publish under --name NAME")
