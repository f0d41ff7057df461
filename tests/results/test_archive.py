"""The archive keeps tables to the last bit, notices damage, and refuses rows of another source."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from helpers.results.archive import DATA, About, Archive, ArchiveError, TableKey

SOURCE = {"model": "tiny", "dtype": "float32"}
ROWS = pd.DataFrame({"case_id": [1, 2, 3], "sum": [0.1, 1 / 3, -2.5e-17], "list": ["a", "b", "a"]})


@pytest.fixture
def archive(tmp_path):
    return Archive(tmp_path / "peak")


def test_what_is_put_is_what_is_got(archive):
    about = About(SOURCE, {"ROME": {"layers": (1, 2)}}, {"preset": "tuned"})
    folder = archive.put("tiny_data", {"ROME": ROWS, "empty": ROWS[:0]}, about)
    assert {path.name for path in folder.iterdir()} == {"about.json", "rome.parquet"}
    run = archive.get("tiny_data")
    pd.testing.assert_frame_equal(run.tables["ROME"], ROWS, check_exact=True)
    assert run.about == About(SOURCE, {"ROME": {"layers": [1, 2]}}, {"preset": "tuned"})
    assert (archive.names(), list(run.tables)) == (["tiny_data"], ["ROME"])


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("exact: rome, deep", TableKey("exact", "rome", "deep")),
        ("ability: rome, alone", TableKey("ability", "rome", "alone")),
        ("ability: rome, in sequence: 10", TableKey("ability", "rome", "in sequence", 10)),
        ("rome+app after 10", TableKey("", "rome+app", edits=10)),
        ("named by unedited", TableKey("named by", "unedited")),
        ("named by unedited, again", TableKey("named by", "unedited", "again")),
        ("locality: rome+app", TableKey("locality", "rome+app")),
        ("rome+app@alpha=0.5x", TableKey("", "rome+app@alpha=0.5x")),
        ("chains", TableKey("", "chains")),
    ],
)
def test_a_tables_name_is_parsed_and_built(name, key):
    assert TableKey.parse(name) == key
    assert str(key) == name


def test_every_published_tables_name_is_the_text_of_its_key():
    names = {
        name
        for path in DATA.glob("*/*/about.json")
        for name in json.loads(path.read_text("utf-8"))["tables"]
    }
    assert len(names) > 100
    assert {str(TableKey.parse(name)) for name in names} == names


def test_tables_of_a_kind_are_read_together(archive):
    tables = dict.fromkeys(("exact: rome, deep", "exact: none, before", "chains"), ROWS)
    archive.put("r", tables, About(SOURCE))
    run = archive.get("r")
    assert run.kinds == ["exact", "chains"]
    assert [key.method for key in run.keys] == ["rome", "none", "chains"]
    assert len(run.joined("exact")) == 2 * len(ROWS)
    assert len(run.joined("chains")) == len(ROWS)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({**SOURCE, "dtype": "bfloat16"}, "dtype 'float32', now 'bfloat16'"),
        ({**SOURCE, "seed": 1}, "seed 'unknown', now 1"),
    ],
)
def test_rows_of_another_source_are_refused_and_nothing_changes(archive, source, words):
    archive.put("r", {"ROME": ROWS}, About(SOURCE))
    before = {path: path.read_bytes() for path in archive.root.rglob("*.*")}
    with pytest.raises(ArchiveError, match=words) as error:
        archive.put("r", {"KN": ROWS}, About(source))
    assert "use the stored settings, or publish under --name NAME" in str(error.value)
    assert {path: path.read_bytes() for path in archive.root.rglob("*.*")} == before


@pytest.mark.parametrize("paper", ["ablations", "klob", "peak", "scorers", "thinkedit"])
def test_every_published_table_states_what_it_depends_on(paper):
    assert all(r.tables.keys() <= r.about.settings.keys() for r in Archive(DATA / paper).runs())


@pytest.mark.parametrize("layer", [1, 2])
def test_a_table_never_loses_rows(archive, layer):
    archive.put("r", {"ROME": ROWS}, About(SOURCE, {"ROME": {"layer": 1}}))
    with pytest.raises(ArchiveError, match="holds 3 rows of ROME, this run has 1"):
        archive.put("r", {"ROME": ROWS[:1]}, About(SOURCE, {"ROME": {"layer": layer}}))


def test_damaged_files_are_named_with_the_remedy(archive):
    folder = archive.put("r", {"ROME": ROWS}, About(SOURCE))
    path = folder / "rome.parquet"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArchiveError, match=r"rome\.parquet is not the table that .*git checkout"):
        archive.get("r").tables["ROME"]
    path.unlink()
    with pytest.raises(ArchiveError, match=r"rome\.parquet is missing"):
        archive.get("r").tables["ROME"]
    (folder / "about.json").write_text("{", "utf-8")
    with pytest.raises(ArchiveError, match=r"about\.json cannot be read"):
        archive.get("r")


def test_an_unknown_run_names_those_that_are_stored(archive):
    archive.put("one", {"t": ROWS}, About(SOURCE))
    with pytest.raises(
        ArchiveError, match=r"no run 'two' .* there are: one; make it with python -m"
    ):
        archive.get("two")


@pytest.mark.parametrize("paper", sorted({p.parts[-3] for p in DATA.glob("*/*/about.json")}))
def test_every_committed_table_is_intact(paper):
    archive = Archive(DATA / paper)
    tables = [table for run in archive.runs() for table in run.tables.values()]
    assert len(tables) == len(set(archive.root.rglob("*.parquet"))) > 0
    assert all(map(len, tables))
