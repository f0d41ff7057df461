"""Facts edited at every layer: what is asked, stored and not computed again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from helpers.editing.build import build_editor
from helpers.editing.weight_edit import WeightEdit
from helpers.klob import layers
from helpers.klob.examples import ConsistencyExample
from helpers.klob.layers import edit_every_layer, edit_requests, score_edits
from helpers.results.store import ResultsStore

FACTS = {
    number: ConsistencyExample(
        (f"{land} speaks _", f"The tongue of {land} is _", f"In {land} they speak _"),
        (land, "language_(P37)", answer),
    )
    for number, (land, answer) in enumerate(
        (("Utopia", "Latin"), ("Laputa", "Greek"), ("Lilliput", "Norse"))
    )
}


def test_requests_take_another_answer_of_the_relation() -> None:
    requests = edit_requests(FACTS, [0, 2], seed=1)
    assert [request.text for request in requests.values()] == ["Utopia speaks", "Lilliput speaks"]
    assert [request.correct for request in requests.values()] == [("Latin",), ("Norse",)]
    assert requests[0].target in {"Greek", "Norse"}
    assert requests == edit_requests(FACTS, [0, 2], seed=1)


def test_a_facts_new_answers_are_drawn_without_repetition() -> None:
    first, second = (edit_requests(FACTS, [0, 1, 2], seed=4, target=target) for target in (0, 1))
    assert first == edit_requests(FACTS, [0, 1, 2], seed=4)
    for number, fact in FACTS.items():
        targets = {first[number].target, second[number].target}
        assert targets == {"Latin", "Greek", "Norse"} - {fact.fact[2]}
    assert edit_requests(FACTS, [0, 1, 2], target=2) == {}  # of three answers two are new


def test_facts_that_cannot_be_edited_are_left_out() -> None:
    alone = ConsistencyExample(("A plays _", "A does _", "As _"), ("A", "play_(P413)", "goal"))
    reworded = ConsistencyExample(
        ("In utopia they speak _", "b _", "c _"), ("Utopia", "language_(P37)", "Latin")
    )
    assert list(edit_requests(FACTS | {3: alone, 4: reworded}, range(5))) == [0, 1, 2]


def test_scores_hold_every_wording_and_mark_failed_edits(tiny: Callable[..., Any]) -> None:
    model, requests = tiny("llama"), edit_requests(FACTS, [2, 1])
    before = score_edits(model, FACTS, requests, None)
    places = before[["example", "wording"]].to_numpy().tolist()
    assert places == [[fact, wording] for fact in (2, 1) for wording in (0, 1, 2)]
    assert (before[["new", "old"]] < 0).all(axis=None)
    failed = score_edits(model, FACTS, requests, [WeightEdit({}, {"failure": "none"})] * 2)
    assert failed[["new", "old"]].isna().all(axis=None)


@pytest.fixture
def edit_layers(
    tiny: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> partial[Any]:
    """``edit_every_layer`` of the facts by a tiny model, with a store in *store*."""
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path / "cache"))
    model = replace(tiny("llama"), name="smollm2-135m")  # whose presets are used
    store = ResultsStore(tmp_path / "store")
    options: dict[str, Any] = {"store": store, "preset": "tuned", "corpus": "self-32x64", "seed": 0}
    return partial(edit_every_layer, model, FACTS, **options)


@pytest.mark.slow
def test_every_layer_is_edited_once(
    edit_layers: partial[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = edit_layers([0, 2])
    assert set(table["example"]) == {0, 2}
    assert sorted(set(table["layer"])) == [-1, 0, 1, 2, 3]
    assert len(table) == 5 * 2 * 3
    edited = table.query("wording == 0").pivot(index="example", columns="layer", values="new")
    # The last block's change at the subject no longer reaches the token that predicts.
    assert edited[[0, 1, 2]].gt(edited[-1], axis=0).all(axis=None)
    (folder,) = (tmp_path / "store").iterdir()
    made: dict[str, Any] = {"preset": "tuned", "corpus": "self-32x64", "overrides": {"layers": [1]}}
    rome = build_editor("rome", edit_layers.args[0], **made)
    assert (
        json.loads((folder / "settings.json").read_text())["versions"]
        == rome.settings()["versions"]
    )
    more = edit_layers([0, 1])
    kept = table.query("example == 0").reset_index(drop=True)
    assert more.query("example == 0").reset_index(drop=True).equals(kept)
    monkeypatch.setattr(layers, "build_editor", pytest.fail)
    assert edit_layers([0, 2]).equals(table)


def test_chosen_layers_are_edited_to_a_further_answer(
    edit_layers: partial[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [edit_layers([0, 1], layers=[0, 2], target=target) for target in (0, 1)]
    assert [sorted(set(table["layer"])) for table in tables] == [[-1, 0, 2]] * 2
    before = [table.query("layer == -1 and wording == 0") for table in tables]
    assert before[0]["old"].tolist() == before[1]["old"].tolist()
    assert (before[0]["new"].to_numpy() != before[1]["new"].to_numpy()).all()
    monkeypatch.setattr(layers, "build_editor", pytest.fail)  # both are kept, each by its answer
    again = edit_layers([0, 1], layers=[0, 2], target=1)
    assert again.equals(tables[1])
