"""KnowGIC: both layouts, the graph facts, statistics of the published files, and bad records."""

import copy
import json

import pytest

from helpers import UserError
from helpers.thinkedit import knowgic
from helpers.thinkedit.edits import Chain, Edit, Fact, chain_lengths

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
    assert [fact.cloze for fact in edit.broader_context] == ["Ben lives in"]


def test_facts_are_distinct_whatever_their_question(tmp_path):
    records = nested()
    repeated = copy.deepcopy(INDIRECT)
    repeated["questions"][1] = "In which land does Ben live?"
    repeated["answers"][1] = "Narnia"
    records[0]["chains"].append(repeated)
    (edit,) = read(tmp_path, records)
    assert len(edit.facts) == 3
    assert [fact.question for fact in edit.broader_context] == ["Where does Ben live?"]


def test_written_edits_read_back(tmp_path):
    edits = read(tmp_path, flat())
    path = tmp_path / "written.json"
    knowgic.write_edits(edits, path)
    assert knowgic.read_edits(path) == edits
    assert chain_lengths(edits) == {1: 1, 2: 1}


def spoil_length(record):
    record["chains"][1]["answers"].pop()


def spoil_empty(record):
    record["chains"][0] = {name: [] for name in DIRECT}


def spoil_link(record):
    record["chains"][1]["subjects"][1] = "Cat"


def spoil_end(record):
    record["chains"][1]["answers"][1] = "Oz"


def spoil_cycle(record):
    chain = record["chains"][1]
    for name, values in INDIRECT.items():
        chain[name] = [*values[:1], values[1], *values]
    chain["answers"][:2] = ["Ben", "Ada"]


def spoil_slot(record):
    record["chains"][1]["prompts"][1] = "Ben lives in"


def spoil_rewrite(record):
    record["requested_rewrite"][0].pop("target_new")


def spoil_layout(record):
    record.pop("chains")


def spoil_none(record):
    record["chains"] = []


def spoil_field(record):
    record["chains"][0].pop("subjects")


def spoil_list(record):
    record["chains"][1]["answers"] = "narnia"


def spoil_chain(record):
    record["chains"][0] = None


def spoil_text(record):
    record["chains"][1]["answers"][0] = None


def spoil_target(record):
    record["requested_rewrite"][0]["target_new"]["str"] = " "


@pytest.mark.parametrize("content", [{}, [], None])
def test_a_file_without_records(tmp_path, content):
    with pytest.raises(UserError, match="at least one"):
        read(tmp_path, content)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (spoil_length, r"record 0, chain 1: lists of different length"),
        (spoil_empty, r"record 0, chain 0: an empty chain"),
        (spoil_link, r"does not follow"),
        (spoil_end, r"must lead from 'Ada' to 'Narnia'"),
        (spoil_cycle, r"a cycle"),
        (spoil_slot, r"exactly one \{\}"),
        (spoil_rewrite, r"record 0: no proper .*target_new"),
        (spoil_layout, r"neither 'chains'"),
        (spoil_none, r"record 0: chains must be a list of one or more"),
        (spoil_field, r"lacks the lists subjects"),
        (spoil_list, r"chain 1: lacks the lists answers"),
        (spoil_chain, r"chain 0: lacks the lists questions, answers, prompts, subjects"),
        (spoil_text, r"chain 1: answers must be texts, not None"),
        (spoil_target, r"record 0: subject, prompt and targets must be texts"),
    ],
)
def test_bad_records_name_file_and_remedy(tmp_path, spoil, message):
    records = nested()
    spoil(records[0])
    with pytest.raises(UserError, match=message) as error:
        read(tmp_path, records)
    assert "chains.json" in str(error.value)


def test_a_file_that_is_not_json_and_an_unknown_layout(tmp_path):
    path = tmp_path / "chains.json"
    path.write_text("{")
    with pytest.raises(UserError, match="not JSON"):
        knowgic.read_edits(path)
    with pytest.raises(ValueError, match=r"choose from 2025-06, latest, mini"):
        knowgic.load_edits("2024")
    with pytest.raises(ValueError, match="or give the path of a JSON file"):
        knowgic.load_edits(str(tmp_path / "missing.json"))


def test_a_file_of_ones_own_is_a_layout(tmp_path):
    edits = knowgic.load_edits("mini")
    knowgic.write_edits(edits, tmp_path / "own.json")
    assert knowgic.load_edits(str(tmp_path / "own.json")) == edits
    assert knowgic.load_aliases(str(tmp_path / "own.json")) == {}


@pytest.mark.usefixtures("data_folder")
def test_published_files_have_the_known_statistics():
    june, latest = knowgic.load_edits("2025-06"), knowgic.load_edits("latest")
    assert chain_lengths(june) == {1: 21, 2: 75, 3: 102, 4: 159, 5: 201}
    assert (len(latest), sum(chain_lengths(latest).values())) == (26, 1406)
    potter = next(edit for edit in june if edit.subject == "Harry Potter")
    assert chain_lengths([potter]) == {1: 1, 2: 20, 3: 30, 4: 35, 5: 14}
    assert len(potter.broader_context) == 63


@pytest.mark.usefixtures("data_folder")
def test_published_aliases_are_found_by_case_folded_name():
    aliases = knowgic.load_aliases()
    assert aliases["india"] == ("Bharat", "Hindustan")
    assert aliases["jim butcher"] == ()


def test_the_packaged_edits_load_without_any_download(monkeypatch):
    monkeypatch.delenv("HELPERS_DATA", raising=False)
    edits = knowgic.load_edits("mini")
    assert [edit.subject for edit in edits] == ["Harry Potter", "Eiffel Tower", "Mozart"]
    assert all(len(edit.chains[0]) == 1 for edit in edits)


def test_two_edits_under_one_number_are_refused(tmp_path):
    other = nested()[0]
    other["requested_rewrite"][0]["target_new"] = {"str": "Utopia"}
    with pytest.raises(UserError, match=r"share a case_id \(7\)"):
        read(tmp_path, [*nested(), other])


def test_facts_are_in_the_order_of_their_last_appearance_as_first_worded():
    a, b = Fact("a", "{} r", "b", "A?"), Fact("b", "{} r", "c", "B?")
    again = Fact("A", "{} r", "B", "Which A?")
    edit = Edit(1, "a", "{} r", "c", "d", (Chain((a, b)), Chain((again,))))
    assert [fact.question for fact in edit.facts] == ["B?", "A?"]
