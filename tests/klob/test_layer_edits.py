"""Facts edited at every layer: what is asked, what is stored, what is not computed again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from helpers.editing.build import build_editor
from helpers.editing.update import Update
from helpers.klob import layer_edits
from helpers.klob.examples import ConsistencyExample
from helpers.klob.layer_edits import edit_every_layer, edit_requests, editable, score_edits
from helpers.models import LanguageModel
from helpers.results.store import ResultsStore

EXAMPLES = tuple(
    ConsistencyExample(
        (f"{land} speaks _", f"The tongue of {land} is _", f"In {land} they speak _"),
        (land, "language_(P37)", answer),
    )
    for land, answer in (("Utopia", "Latin"), ("Laputa", "Greek"), ("Lilliput", "Norse"))
)
FACTS = dict(enumerate(EXAMPLES))


def test_requests_take_another_answer_of_the_relation() -> None:
    requests = edit_requests(FACTS, [0, 2], seed=1)
    assert [request.text for request in requests] == ["Utopia speaks", "Lilliput speaks"]
    assert [request.correct for request in requests] == [("Latin",), ("Norse",)]
    assert requests[0].target in {"Greek", "Norse"}
    assert requests == edit_requests(FACTS, [0, 2], seed=1)
    with pytest.raises(ValueError, match="every fact has the answer"):
        edit_requests({0: EXAMPLES[0]}, [0])


def test_facts_that_cannot_be_edited_are_left_out() -> None:
    alone = ConsistencyExample(("A plays _", "A does _", "As _"), ("A", "play_(P413)", "goal"))
    reworded = ConsistencyExample(
        ("In utopia they speak _", "b _", "c _"), ("Utopia", "language_(P37)", "Latin")
    )
    assert editable(FACTS | {3: alone, 4: reworded}, range(5)) == [0, 1, 2]


def test_scores_hold_every_wording_and_mark_failed_edits(
    tiny: Callable[..., LanguageModel],
) -> None:
    model = tiny("llama")
    requests = edit_requests(FACTS, [0, 1])
    before = score_edits(model, EXAMPLES[:2], requests, None)
    assert before[["fact", "wording"]].to_numpy().tolist() == [
        [fact, wording] for fact in (0, 1) for wording in (0, 1, 2)
    ]
    assert (before[["new", "old"]] < 0).all(axis=None)
    failed = score_edits(model, EXAMPLES[:2], requests, [Update({}, {}), Update({}, {})])
    assert failed[["new", "old"]].isna().all(axis=None)


def test_every_layer_is_edited_once(
    tiny: Callable[..., LanguageModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path / "cache"))
    model = replace(tiny("llama"), name="smollm2-135m")  # whose presets are used
    store = ResultsStore(tmp_path / "store")
    options = {"store": store, "corpus": "self-32x64"}
    table = edit_every_layer(model, FACTS, [0, 2], **options)
    assert set(table["example"]) == {0, 2}
    assert sorted(set(table["layer"])) == [-1, 0, 1, 2, 3]
    assert len(table) == 5 * 2 * 3
    edited = table.query("wording == 0").pivot(index="example", columns="layer", values="new")
    # The last block's change at the subject no longer reaches the token that predicts.
    assert edited[[0, 1, 2]].gt(edited[-1], axis=0).all(axis=None)
    (folder,) = store.root.iterdir()
    made = {"preset": "tuned", "corpus": "self-32x64", "overrides": {"layers": [1]}}
    rome = build_editor("rome", model, **made)
    assert (
        json.loads((folder / "settings.json").read_text())["versions"]
        == rome.settings()["versions"]
    )
    monkeypatch.setattr(layer_edits, "build_editor", pytest.fail)
    again = edit_every_layer(model, FACTS, [0, 2], **options)
    assert np.array_equal(again["new"], table["new"])
    monkeypatch.undo()
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path / "cache"))
    more = edit_every_layer(model, FACTS, [0, 1], **options)
    kept = table.query("example == 0").reset_index(drop=True)
    assert more.query("example == 0").reset_index(drop=True).equals(kept)
    assert len(more) == len(table)


def test_a_mended_fact_costs_that_fact_alone(
    tiny: Callable[..., LanguageModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = replace(tiny("llama"), name="smollm2-135m")
    store = ResultsStore(tmp_path / "store")
    edited: list[tuple[int, ...]] = []

    def edit_layer(
        model: LanguageModel, examples: object, numbers: Sequence[int], layer: int, **_: object
    ) -> pd.DataFrame:
        edited.append(tuple(numbers))
        rows = [{"example": n, "wording": 0, "new": float(n), "old": 0.0} for n in numbers]
        return pd.DataFrame(rows).assign(layer=layer)

    monkeypatch.setattr(layer_edits, "_edit_layer", edit_layer)
    monkeypatch.setattr(layer_edits, "second_moment", lambda *_, **__: None)
    before = edit_every_layer(model, FACTS, [0, 2], store=store)
    assert set(edited) == {(0, 2)}
    edited.clear()
    first = EXAMPLES[0]
    mended = FACTS | {0: replace(first, prompts=(*first.prompts[:2], f"{first.prompts[2]} !"))}
    after = edit_every_layer(model, mended, [0, 2], store=store)
    assert set(edited) == {(0,)}
    assert after.equals(before)
