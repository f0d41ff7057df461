"""PEAK files load into records; anomalies are told, broken files are refused."""

import json
import os
from collections import Counter
from copy import deepcopy
from pathlib import Path

import pytest

from helpers import UserError
from helpers.peak.records import (
    MINI,
    PeakData,
    PeakRecord,
    contradictions,
    load_peak,
    part_name,
    save_peak,
)

needs_data = pytest.mark.skipif(
    not os.environ.get("HELPERS_DATA"), reason="HELPERS_DATA does not name a folder with PEAK"
)

ITEM = {
    "case_id": 7,
    "requested_rewrite": {
        "prompt": "{} has rivers called",
        "relation_id": "P1",
        "target_new": {"str": "Nile"},
        "target_true": {"str": "Rhine"},
        "subject": "Utopia",
    },
    "postive_list": ["Rhine", "Elbe", "rhine"],
    "negtive_list": ["Volta", "Niger"],
    "para_add_prompts": ["Among the rivers of Utopia is the"],
    "neighborhood_prompts": [["The Lorelei stands above the", "Rhine"]],
    "negtive_random_list": ["chess", "tin"],
}


def write(folder: Path, *items: object) -> Path:
    path = folder / "records.json"
    path.write_text(json.dumps(items), encoding="utf-8")
    return path


def changed(**changes: object) -> dict:
    """The example with some keys replaced; keys of requested_rewrite work too."""
    item: dict = deepcopy(ITEM)
    for key, value in changes.items():
        (item["requested_rewrite"] if key in item["requested_rewrite"] else item)[key] = value
    return item


def kinds(data: PeakData) -> Counter[str]:
    return Counter(kind for record in data.records for kind in contradictions(record))


def test_fields(tmp_path: Path) -> None:
    data = load_peak(write(tmp_path, ITEM))
    assert data.name == "records"
    (record,) = data.records
    assert record == PeakRecord(
        case_id=7,
        relation="P1",
        prompt="{} has rivers called",
        subject="Utopia",
        target_new="Nile",
        target_true="Rhine",
        correct=("Rhine", "Elbe", "rhine"),
        hard_false=("Volta", "Niger"),
        random_false=("chess", "tin"),
        paraphrases=("Among the rivers of Utopia is the",),
        locality=(("The Lorelei stands above the", "Rhine"),),
    )
    assert record.edit_prompt == "Utopia has rivers called"


def test_strict_lists_drop_contradictions(tmp_path: Path) -> None:
    lists = {"postive_list": ["Rhine", "Nile", "Rhône", "rhine"]}
    lists["negtive_list"] = ["RHINE ", "nile", "Niger", "Rho\u0302ne"]
    lists["negtive_random_list"] = ["chess", "NILE", "rhine"]
    path = write(tmp_path, changed(**lists))
    strict, published = load_peak(path), load_peak(path, strict_lists=False)
    assert strict.records[0].correct == ("Rhine", "Rhône", "rhine")
    assert strict.records[0].hard_false == ("Niger",)
    assert strict.records[0].random_false == ("chess",)
    assert [list(answers) for answers in list(published.records[0].lists.values())[1:]] == [
        *lists.values()
    ]
    assert contradictions(published.records[0]) == {
        "appended answer among correct": ["Nile"],
        "correct answer repeated": ["rhine"],
        "correct answer among hard false": ["RHINE ", "Rho\u0302ne"],
        "appended answer among hard false": ["nile"],
        "appended answer among random false": ["NILE"],
        "correct answer among random false": ["rhine"],
    }
    assert set(contradictions(strict.records[0])) == {"correct answer repeated"}


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"postive_list": ["Rhine", "Utopia"]}, "subject among correct"),
        ({"target_new": {"str": "Rivers"}}, "edit prompt gives o* away"),
        ({"para_add_prompts": ["The Lorelei stands above the"]}, "locality prompt in scope"),
        ({"neighborhood_prompts": [["Cairo lies on the", "Nile"]]}, "locality answer not correct"),
    ],
)
def test_each_contradiction_is_found(tmp_path: Path, change: dict, kind: str) -> None:
    sound = {"postive_list": ["Rhine", "Elbe"]}
    assert kinds(load_peak(write(tmp_path, changed(**sound)))) == {}
    assert kinds(load_peak(write(tmp_path, changed(**{**sound, **change})))) == {kind: 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"prompt": "{} and {}"},
            "requested_rewrite.prompt: must hold one {} for the subject, has 2",
        ),
        ({"subject": " "}, "requested_rewrite.subject: must not be blank"),
        ({"target_new": {}}, "requested_rewrite.target_new.str: "),
        ({"postive_list": []}, "postive_list: "),
        ({"negtive_list": ["Niger", 3]}, "negtive_list.1: "),
        ({"neighborhood_prompts": [["alone"]]}, "neighborhood_prompts.0.1: "),
        ({"negtive_list": ["Elbe"]}, "negtive_list holds nothing beyond contradictions"),
        ({"case_id": "7"}, "case_id: "),
    ],
)
def test_broken_records_are_named(tmp_path: Path, changes: dict, message: str) -> None:
    path = write(tmp_path, changed(case_id=1), changed(**changes))
    with pytest.raises(UserError) as caught:
        load_peak(path)
    assert message in str(caught.value)
    assert f"{path}, record 1" in str(caught.value) or f"{path}, case_id 7" in str(caught.value)
    assert str(caught.value).endswith("nothing was edited yet; correct the file")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b'[{"case_id": 0', b"", b"\xff\xfe", b"{}", b"[]", b"[3]"])
def test_broken_files_are_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "records.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"records\.json"):
        load_peak(path)
    with pytest.raises(UserError, match="peak-cf, peak-t, peak-mini-cf, peak-mini-t"):
        load_peak("peak-x")


def test_case_ids_are_unique(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="record 1: case_id 7 is taken by record 0"):
        load_peak(write(tmp_path, ITEM, ITEM))


@pytest.mark.parametrize("name", sorted(MINI))
def test_schema_round_trip(name: str, tmp_path: Path) -> None:
    data = load_peak(name)
    assert data.name == name
    save_peak(data.records, tmp_path / "copy.json")
    copied = load_peak(tmp_path / "copy.json")
    assert copied.records == data.records


COUNTED = ("records", "correct answers", "paraphrase prompts", "locality prompts")
COUNTED += ("hard false answers", "random false answers")


@needs_data
def test_official_counterfactual_counts() -> None:
    data = load_peak("peak-cf", strict_lists=False)
    assert [data.counts()[name] for name in COUNTED] == [1962, 26512, 3344, 10760, 24043, 19619]
    relations = Counter(record.relation for record in data.records)
    assert len(relations) == 32
    assert sum(count for relation, count in relations.items() if relation.startswith("re_")) == 1282
    assert relations["P47"] == 295
    assert kinds(data) == {
        "correct answer among hard false": 35,
        "appended answer among correct": 7,
        "appended answer among hard false": 101,
        "correct answer repeated": 418,
        "hard false answer repeated": 341,
        "subject among correct": 18,
        "subject among hard false": 5,
        "edit prompt gives o* away": 1,
    }


@pytest.mark.parametrize(
    ("written", "positions"),
    [("[1:3]", (1, 2)), ("[:2]", (0, 1)), ("[3:]", (3,)), ("[:]", (0, 1, 2, 3)), ("[2:9]", (2, 3))],
)
def test_a_slice_is_a_part_of_the_same_data_set(tmp_path, written, positions) -> None:
    path = write(tmp_path, *({**ITEM, "case_id": case_id} for case_id in range(4)))
    whole, part = load_peak(path), load_peak(f"{path}{written}")
    assert part.records == tuple(whole.records[position] for position in positions)
    assert (part.name, part.checksum) == (whole.name, whole.checksum)
    assert load_peak(f"{path}{written}", limit=1).records == part.records[:1]
    assert load_peak(part_name(f"{path}{written}", 0, 1)).records == part.records[:1]


@needs_data
def test_official_temporal_counts() -> None:
    data = load_peak("peak-t")
    assert [data.counts()[name] for name in COUNTED] == [993, 7759, 1995, 6207, 7879, 9929]
    relations = Counter(record.relation for record in data.records)
    assert len(relations) == 9
    assert relations["<playsFor>"] + relations["re_<playsFor>"] == 903
    assert kinds(data) == {}


def test_a_sample_keeps_the_first_records_and_grows_by_relation() -> None:
    whole = load_peak("peak-mini-cf").records
    few, more = (load_peak("peak-mini-cf", limit=n, keep=10, seed=1).records for n in (20, 30))
    assert (few[:10], more[:20]) == (whole[:10], few)
    rest, drawn = (Counter(r.relation for r in part[10:]) for part in (whole, more))
    share = 20 / rest.total()
    assert all(abs(drawn[name] - share * size) <= 1 for name, size in rest.items())


def test_with_no_first_records_all_are_drawn_by_relation() -> None:
    whole = load_peak("peak-mini-cf").records
    drawn, other = (
        load_peak("peak-mini-cf", limit=20, keep=0, seed=seed).records for seed in (1, 2)
    )
    assert drawn not in (other, whole[:20])
    assert load_peak("peak-mini-cf", limit=20, keep=None).records == whole[:20]
    sizes, counts = (Counter(r.relation for r in part) for part in (whole, drawn))
    share = 20 / sizes.total()
    assert all(abs(counts[name] - share * size) <= 1 for name, size in sizes.items())
