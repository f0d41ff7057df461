"""Samples and weights that come with the package are read only as they were committed."""

from __future__ import annotations

import json
import shutil

import pytest

from helpers import kept
from helpers.kept import DamagedError, file_digest, packaged_digests, read_kept
from helpers.paths import PACKAGED
from helpers.results.published import published_table
from helpers.thinkedit import recalled_tables
from helpers.thinkedit.dataset_tables import base_questions
from helpers.thinkedit.wordings import read_wordings
from helpers.triples.packaged_facts import FACTS, read_facts
from helpers.triples.templates import TEMPLATES, read_templates
from tools.digests import digests


def test_the_list_of_digests_is_complete_and_true():
    """Where it fails: ``python -m tools.digests``."""
    assert packaged_digests() == digests()


def test_what_is_packaged_is_listed_but_for_the_texts_about_it():
    files = {path for path in PACKAGED.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    names = {path.relative_to(PACKAGED).as_posix() for path in files if path.suffix != ".md"}
    assert names - set(packaged_digests()) == {"digests.txt"}


@pytest.mark.parametrize(
    ("read", "name"),
    [
        (lambda: published_table("peak_table_3"), "published/peak_table_3.csv"),
        (lambda: read_facts(FACTS / "compiled.tsv"), "facts/compiled.tsv"),
        (
            lambda: recalled_tables.chains("smollm2-135m"),
            "thinkedit/recalled-smollm2-135m-chains.csv",
        ),
        (
            lambda: recalled_tables.links("smollm2-135m"),
            "thinkedit/recalled-smollm2-135m-links.csv",
        ),
        (base_questions, "thinkedit/base_questions.csv"),
        (read_wordings.__wrapped__, "thinkedit/wordings.yaml"),
        (lambda: read_templates(TEMPLATES), "templates/peak.yaml"),
    ],
)
def test_tables_facts_and_texts_are_read_as_they_were_committed(read, name, monkeypatch):
    read()
    monkeypatch.setitem(packaged_digests(), name, "another")
    with pytest.raises(DamagedError, match=name.rpartition("/")[2]):
        read()


@pytest.fixture
def packaged(tmp_path, monkeypatch):
    """A package with one listed file, another text than a new sample would have."""
    path = tmp_path / "samples" / "sample.json"
    path.parent.mkdir()
    path.write_text(json.dumps(["a text"]))
    (tmp_path / "digests.txt").write_text(f"{file_digest(path)}  samples/sample.json\n")
    monkeypatch.setattr(kept, "PACKAGED", tmp_path)
    packaged_digests.cache_clear()
    yield path
    packaged_digests.cache_clear()


def _read(path):
    return json.loads(path.read_text())


def test_a_flipped_bit_is_refused_with_the_remedy_and_nothing_is_made_in_its_place(packaged):
    assert read_kept(packaged, _read) == ["a text"]
    changed = bytearray(packaged.read_bytes())
    changed[3] ^= 1
    packaged.write_bytes(changed)
    made = []
    with pytest.raises(DamagedError, match=r"git checkout -- .*sample\.json"):
        kept.kept(packaged, _read, made.append)
    assert not made
    assert packaged.read_bytes() == changed


def test_nothing_is_written_beside_a_packaged_file(packaged):
    unlisted = packaged.with_name("mine.json")
    shutil.copy(packaged, unlisted)
    for path in (packaged, unlisted):
        read_kept(path, _read)
    assert sorted(p.name for p in packaged.parent.iterdir()) == ["mine.json", "sample.json"]
