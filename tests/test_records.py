"""All wrong records of a file are named at once; a record by its number, or the numbers there are."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from pydantic import BaseModel

from helpers import UserError
from helpers.editing.corpus import corpus_named
from helpers.editing.presets import content_of
from helpers.klob.examples import read_examples
from helpers.models.shapes import byte_tokenizer
from helpers.params import read_params
from helpers.paths import PACKAGED, PARAMS
from helpers.peak.records import PeakRecord, load_peak, save_peak
from helpers.records import by_case_id, comparable, read_all, read_json, read_text, read_yaml
from helpers.sweeps.matrix import read_sweep
from helpers.thinkedit.knowgic import load_edited_graphs, write_edits
from helpers.triples.sources import read_facts


class Fact(BaseModel):
    subject: str
    year: int


def test_all_wrong_records_are_named_in_one_line():
    good, bad = {"subject": "Oslo", "year": 1048}, {"year": "soon"}
    assert read_all([("f.json, 0", good)], Fact.model_validate) == [Fact(**good)]
    items = [("f.json, 0", good), ("f.json, 1", bad), *((f"f.json, {n}", {}) for n in range(2, 8))]
    with pytest.raises(UserError) as error:
        read_all(items, Fact.model_validate)
    (line,) = str(error.value).splitlines()
    assert "f.json, 1: subject: field required" in line
    assert "year: input should be a valid integer" in line
    assert "f.json, 5: " in line
    assert line.endswith("; and 2 more: nothing was edited yet; correct the file")


def test_what_is_not_json_is_named():
    with pytest.raises(UserError, match=r"f\.json, line 3: not JSON"):
        read_json("{", "f.json, line 3")


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("Côte d’Ivoire ", "CÔTE D'IVOIRE", True),
        ("Peru", "Peru\u200b", True),
        ("New  York", "New\u00a0York", True),
        ("ﬁnch", "FINCH", True),
        ("Perú", "Peru", False),  # an accent makes another name
        ("Guinea-Bissau", "Guinea Bissau", False),
        ("\ufeff", "", True),
    ],
)
def test_names_are_compared_as_people_do(one, other, equal):
    assert (comparable(one) == comparable(other)) == equal


def test_the_record_or_the_numbers_there_are():
    records = load_peak("peak-mini-cf", limit=8).records
    assert by_case_id(records, records[3].case_id) is records[3]
    with pytest.raises(UserError, match=r"no case_id -1; there are 0, 1, .*, … 7"):
        by_case_id(records, -1)
    with pytest.raises(UserError, match=r"there are 0, 1$"):
        by_case_id(records[:2], 9)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12:30", "12:30"),  # by YAML 1.1 the number 750
        ("12:30:45.5", "12:30:45.5"),
        ("010", "010"),  # 8
        ("0x1F", "0x1F"),
        ("12", 12),
        ("-3", -3),
        ("0", 0),
        ("1_000", 1000),
        ("2.5", 2.5),
        (".5", 0.5),
        ("-1.", -1.0),
        ("1e-3", 0.001),  # a word
        ("2.5E+3", 2500.0),
        (".inf", float("inf")),
        ("yes", True),
        ("null", None),
        ("1.2.3", "1.2.3"),
        ("1e", "1e"),
        ("e5", "e5"),
        ("-", [None]),
    ],
)
def test_numbers_in_yaml_are_those_that_people_write(tmp_path, text, value):
    (tmp_path / "file.yaml").write_text(text)
    found = read_yaml(tmp_path / "file.yaml")
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("text", ["a: 1\nb: 2\n\na: 3\n", "c:\n  d: 1\n\n\n  d: 1\n"])
def test_a_name_that_yaml_has_twice_is_refused_with_both_lines(tmp_path, text):
    (tmp_path / "file.yaml").write_text(text)
    match = r"file.yaml is not valid YAML: '[ad]' is given in lines (1 and 4|2 and 5): remove one$"
    with pytest.raises(UserError, match=match):
        read_yaml(tmp_path / "file.yaml")
    (tmp_path / "file.yaml").write_text("a: &x {b: 1}\nc: {<<: *x, b: 2}")  # meant
    assert read_yaml(tmp_path / "file.yaml")["c"] == {"b": 2}


def test_the_projects_own_yaml_reads_as_ever():
    files = [*PARAMS.rglob("*.yaml"), *PACKAGED.rglob("*.yaml")]
    assert len(files) > 20
    for file in files:
        read, usual = read_yaml(file), yaml.safe_load(file.read_text("utf-8"))
        assert as_numbers(read) == as_numbers(usual)


def as_numbers(value):
    """With words that are numbers, such as 1e-3 by YAML 1.1, as numbers."""
    if isinstance(value, dict):
        return {name: as_numbers(each) for name, each in value.items()}
    if isinstance(value, list):
        return [as_numbers(each) for each in value]
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


RECORD = PeakRecord(
    case_id=1,
    relation="P47",
    prompt="{} shares a border with",
    subject="Curaçao",
    target_new="Perú",
    target_true="Aruba",
    correct=("Aruba", "Chad"),
    hard_false=("Laos",),
    random_false=("Oman",),
    paraphrases=("Next to Curaçao is",),
    locality=(("Perú borders", "Chile"),),
)


def peak_text(folder: Path) -> str:
    save_peak([RECORD], folder / "made.json")
    return (folder / "made.json").read_text("utf-8")


def edits_text(folder: Path) -> str:
    edit = load_edited_graphs("mini")[0]
    write_edits([replace(edit, prompt=f"{edit.prompt} à")], folder / "made.json")
    return (folder / "made.json").read_text("utf-8")


def corpus_documents(path: Path) -> list[list[int]]:
    corpus = corpus_named(str(path))
    model = SimpleNamespace(tokenizer=byte_tokenizer())
    return list(corpus.documents(model))


# How a user's file is read, and one with letters beyond ASCII on its second line or later.
FILES = {
    "peak.json": (lambda path: load_peak(path).records, lambda folder: "\n" + peak_text(folder)),
    "edits.json": (
        lambda path: load_edited_graphs(str(path)),
        lambda folder: "\n" + edits_text(folder),
    ),
    "facts.tsv": (read_facts, lambda _: "subject\trelation\tobject\nCuraçao\tP47\tAruba\n"),
    "klob.jsonl": (
        lambda path: read_examples("unbiasedness", path),
        lambda _: '"Oslo is in _"\n"Curaçao is in _"\n',
    ),
    "03_editing_runs.yaml": (read_params, lambda _: "seed: 3\nmodel: curaçao/x\n"),
    "preset.yaml": (content_of, lambda _: "layers: [3]\nnote: Curaçao\n"),
    "sweep.yaml": (
        read_sweep,
        lambda _: "models: [a]\ndatasets: [curaçao.json]\neditors: [rome]\n",
    ),
    "corpus.txt": (corpus_documents, lambda _: "Oslo.\nCuraçao.\n"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_users_file_is_utf_8_with_or_without_a_mark(name, tmp_path):
    read, text_in = FILES[name]
    path, text = tmp_path / name, text_in(tmp_path)
    path.write_text(text, "utf-8")
    expected = read(path)
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    found = read(path)
    assert found == expected


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
@pytest.mark.parametrize("name", FILES)
def test_another_encoding_is_named_with_file_line_and_remedy(name, encoding, tmp_path):
    read, text_in = FILES[name]
    path, text = tmp_path / name, text_in(tmp_path)
    path.write_text(text, encoding)
    before = text[: next(i for i, letter in enumerate(text) if letter > "\x7f")]
    line = before.count("\n") + 1 if encoding == "latin-1" else 1
    match = (
        rf"{re.escape(str(path))}, line {line}: byte 0x\w\w is no UTF-8; save the file as UTF-8$"
    )
    with pytest.raises(UserError, match=match):
        read(path)


def test_utf_16_without_a_mark_is_told_by_its_zeros(tmp_path):
    (tmp_path / "file.txt").write_bytes("one\ntwo\n".encode("utf-16-le"))
    with pytest.raises(UserError, match=r"file.txt, line 1: a zero byte, as in UTF-16; save"):
        read_text(tmp_path / "file.txt")
