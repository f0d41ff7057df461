"""KnowGIC: both layouts, the graph facts, statistics of the published files, and bad records."""

import copy
import json
from collections import Counter

import pytest

from helpers import UserError
from helpers.thinkedit import knowgic
from helpers.thinkedit.knowgic import Chain, ChainFact, EditedGraph


def chain_lengths(edits):
    return Counter(len(chain) for edit in edits for chain in edit.chains)


REWRITE = {
    "prompt": "{} lives in",
    "subject": "Ada",
    "target_true": {"str": "Narnia"},
    "target_new": {"str": "Oz"},
}
DIRECT = {
    "questions": ["Where does Ada live?"],
    "answers": ["Narnia"],
    "prompts": ["{} lives in"],
    "subjects": ["Ada"],
}
INDIRECT = {
    "questions": ["Who is Ada's friend?", "Where does Ben live?"],
    "answers": ["Ben", "narnia"],
    "prompts": ["{}'s friend is", "{} lives in"],
    "subjects": ["Ada", "Ben"],
}


def nested() -> list[dict]:
    record = {"case_id": 7, "requested_rewrite": [REWRITE], "chains": [DIRECT, INDIRECT]}
    return [copy.deepcopy(record)]


def flat() -> list[dict]:
    shared = {"case_id": 7, "requested_rewrite": [REWRITE]}
    return copy.deepcopy([shared | {"chain": DIRECT}, shared | {"chain": INDIRECT}])


def read(tmp_path, records):
    path = tmp_path / "chains.json"
    path.write_text(json.dumps(records))
    return knowgic.read_edits(path)


def test_both_layouts_give_the_same_edit(tmp_path):
    (edit,) = read(tmp_path, nested())
    assert read(tmp_path, flat()) == (edit,)
    assert (edit.case_id, edit.subject, edit.original, edit.new) == (7, "Ada", "Narnia", "Oz")
    assert [chain.nodes for chain in edit.chains] == [("Ada", "Narnia"), ("Ada", "Ben", "narnia")]


def test_written_edits_read_back(tmp_path):
    edits = read(tmp_path, flat())
    path = tmp_path / "written.json"
    knowgic.write_edits(edits, path)
    assert knowgic.load_edited_graphs(str(path)) == edits
    assert knowgic.load_aliases(str(path)) == {}
    assert chain_lengths(edits) == {1: 1, 2: 1}


def at(*path, value):
    """A change of a record: the value at a path."""

    def spoil(record):
        for key in path[:-1]:
            record = record[key]
        record[path[-1]] = value

    return spoil


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (at("chains", 1, "answers", value=["Ben"]), r"chains\.1: .*lists of different length"),
        (at("chains", 1, "subjects", 1, value="Cat"), r"chains\.1: .* does not follow"),
        (at("chains", 1, "answers", 1, value="Oz"), r"chains\.1 must lead from 'ada' to 'narnia'"),
        (at("chains", 1, "answers", 1, value="Ada"), "a cycle"),
        (at("chains", 1, "prompts", 1, value="Ben lives in"), r"prompts\.1: .*exactly one \{\}"),
        (at("requested_rewrite", 0, "target_new", value={}), r"target_new\.str: field required"),
        (at("case_id", value="7"), r"case_id: .*valid integer"),
    ],
)
def test_bad_records_name_file_record_and_field(tmp_path, spoil, message):
    records = nested()
    spoil(records[0])
    with pytest.raises(UserError, match=f"(?i)chains.json, record 0: .*{message}"):
        read(tmp_path, records)


def test_a_file_that_is_not_json_and_an_unknown_layout(tmp_path):
    path = tmp_path / "chains.json"
    path.write_text("{")
    with pytest.raises(UserError, match="not JSON"):
        knowgic.read_edits(path)
    with pytest.raises(UserError, match=r"choose from 2025-06, latest, mini"):
        knowgic.load_edited_graphs("2024")
    with pytest.raises(UserError, match="or give a JSON file"):
        knowgic.load_edited_graphs(str(tmp_path / "missing.json"))


@pytest.mark.usefixtures("data_folder")
def test_published_files_have_the_known_statistics():
    june, latest = knowgic.load_edited_graphs("2025-06"), knowgic.load_edited_graphs("latest")
    assert chain_lengths(june) == {1: 21, 2: 75, 3: 102, 4: 159, 5: 201}
    assert (len(latest), sum(chain_lengths(latest).values())) == (26, 1406)
    potter = next(edit for edit in june if edit.subject == "Harry Potter")
    assert chain_lengths([potter]) == {1: 1, 2: 20, 3: 30, 4: 35, 5: 14}


def test_two_edits_under_one_number_are_refused(tmp_path):
    other = nested()[0]
    other["requested_rewrite"][0]["target_new"] = {"str": "Utopia"}
    with pytest.raises(UserError, match=r"share a case_id \(7\)"):
        read(tmp_path, [*nested(), other])


def test_facts_are_in_the_order_of_their_last_appearance_as_first_worded():
    a, b = ChainFact("a", "{} r", "b", "A?"), ChainFact("b", "{} r", "c", "B?")
    again = ChainFact("A", "{} r", "B", "Which A?")
    edit = EditedGraph(1, "a", "{} r", "c", "d", (Chain((a, b)), Chain((again,))))
    assert [fact.question for fact in edit.facts] == ["B?", "A?"]
