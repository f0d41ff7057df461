"""One loop publishes every paper's run: check its source, skip what is there, make the rest, store it.

Each paper's room lists the parts of its run in ``publish.py``, as ``publication(params)``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import UserError
from helpers.processes import tell_nothing
from helpers.results.archive import About, Archive, ArchiveError, Run, as_read

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Part:
    """One table of a run; ``Run.joined`` reads those whose names are alike up to a colon as one."""

    name: str  # such as "ROME+APP" or "exact: rome, deep"
    settings: Mapping[str, Any]  # what its rows depend on in addition to the run's source
    make: Callable[[], pd.DataFrame]  # the whole table; resumes through the results store
    from_store: Callable[[], pd.DataFrame] | None = None  # its rows that are finished
    cases: Collection[int] = ()  # values of ``case_id``; a table with all of them is not made again


@dataclass(frozen=True)
class Publication:
    """A run to be published."""

    name: str
    about: About
    parts: Sequence[Part]  # in the order in which they are made
    # What captions report, from the names of all tables that the run will have; None: what ``about`` has.
    caption: Callable[[Collection[str]], Mapping[str, Any]] | None = None


def publish_parts(
    publication: Publication,
    into: Archive,
    *,
    from_store_only: bool = False,
    tell: Callable[[str], None] = tell_nothing,
) -> Path:
    """Make the parts that are not published with these settings and cases; each is stored at once.

    Where the published run has another source or preset, or more records, nothing is made. If
    ``from_store_only``, nothing is computed, and what the results store has is published. ``tell`` gets a
    line before each table that is made. Gives the run's folder.
    """
    name = publication.name
    about = publication.about
    into.check(name, about)
    published_run = into.known(name)
    if published_run:
        _check_caption(into.root / published_run.name, published_run.about.caption, about.caption)
    missing_parts = [
        part
        for part in publication.parts
        if not (published_run and is_published(published_run, part))
    ]
    published_count = len(publication.parts) - len(missing_parts)
    for number, missing_part in enumerate(missing_parts, 1):
        if not from_store_only:
            tell(f"{name}: making {missing_part.name}, table {number} of {len(missing_parts)}")
        make = missing_part.from_store if from_store_only else missing_part.make
        table = make() if make else None
        if table is None or not len(table):
            continue
        table_names_before = published_run.tables if published_run else ()
        table_name = missing_part.name
        table_names = dict.fromkeys([*table_names_before, table_name])
        caption = publication.caption(table_names) if publication.caption else about.caption
        about_table = About(about.source, {table_name: missing_part.settings}, caption)
        into.put(name, {table_name: table}, about_table)
        published_run = into.known(name)
        published_count += 1
    if not published_count:
        raise UserError(f"nothing of {name} is finished; nothing was stored")
    return into.folder(name)


def is_published(run: Run, part: Part) -> bool:
    """Whether a run has a part's table, made with the same settings and holding all of its cases."""
    settings = run.about.settings.get(part.name, {})
    if part.name not in run.tables or settings != as_read(part.settings):
        return False
    return not part.cases or set(part.cases) <= set(run.tables[part.name]["case_id"])


def _check_caption(folder: Path, stored: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Refuse another preset, or records without those that are there: captions state those of all tables."""
    new_values = as_read(new)
    for name, stored_value in stored.items():
        new_value = new_values.get(name, {})
        fault = ""
        if isinstance(stored_value, dict) and not stored_value.keys() <= new_value.keys():
            fault = "has records that this run lacks: draw the same"
        if name == "preset" and name in new:
            stored_preset, new_preset = _preset_name(stored_value), _preset_name(new_value)
            if stored_preset != new_preset:
                fault = f"is of preset {stored_preset}, this run of {new_preset}: give the former"
        if fault:
            raise ArchiveError(f"{folder} {fault}, or publish under --name NAME")


def _preset_name(words: object) -> str:
    """A preset's name from its words in captions, "tuned" of "tuned (its sources)"."""
    return str(words).partition(" (")[0]
