"""Localisation with a ceiling: which facts and layers are edited, what is located and kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from helpers import UserError
from helpers.klob import ceiling
from helpers.klob.ceiling import (
    edited_layers,
    facts_by_pairs,
    layer_mass_of_facts,
    publication,
    variants,
)
from helpers.klob.examples import ConsistencyExample
from helpers.locating.locators import ActivationMagnitude, make_locator
from helpers.models import LanguageModel
from helpers.results.archive import Archive
from helpers.results.publish import publish_parts
from helpers.results.store import ResultsStore

Tiny = Callable[..., LanguageModel]


def fact(subject: str, relation: str, answer: str) -> ConsistencyExample:
    return ConsistencyExample(
        (f"{subject} is in _", f"The place of {subject} is _", f"Where {subject} lies is _"),
        (subject, relation, answer),
    )


FACTS = dict(
    enumerate(
        [
            *(fact(f"Town{index}", "country", answer) for index, answer in enumerate("ABCCBD")),
            *(fact(f"Lake{index}", "region", answer) for index, answer in enumerate("EFGG")),
            fact("Moon", "orbit", "Earth"),  # of a relation without two other answers
        ]
    )
)


def test_facts_are_drawn_by_relation_and_in_pairs_of_one_answer() -> None:
    chosen = facts_by_pairs(FACTS, 6, seed=3)
    relations = [FACTS[number].fact[1] for number in chosen]
    assert sorted(relations) == ["country"] * 4 + ["region"] * 2
    # Both pairs of the one relation, and the pair of the other.
    assert sorted(FACTS[number].fact[2] for number in chosen) == list("BBCCGG")
    assert chosen == sorted(chosen) == facts_by_pairs(FACTS, 6, seed=3)
    assert set(facts_by_pairs(FACTS, 4, seed=3)) < set(chosen)
    assert facts_by_pairs(FACTS, 10) == list(range(10))
    with pytest.raises(UserError, match="10 facts can be edited to 2 new answers"):
        facts_by_pairs(FACTS, 11)


def test_layers_are_every_third_with_the_presets_and_without_the_last() -> None:
    assert edited_layers(30, 5, 3) == [2, 5, 8, 11, 14, 17, 20, 23, 26]
    assert edited_layers(4, 1, 1) == [0, 1, 2]


def test_locators_come_on_their_own_tokens_and_then_at_the_subject() -> None:
    names = ["causal-tracing", "fisher", "activation", "random"]
    forms = [(name, locator.scored_tokens) for name, locator in variants(names, 7)]
    assert forms == [
        ("causal-tracing", "subject"),
        ("fisher", "all"),
        ("activation", "last"),
        ("random", "none"),
        ("fisher", "subject"),
        ("activation", "subject"),
    ]
    # Keys of scores on a locator's own tokens do not change.
    assert "at_subject" not in make_locator("activation").settings()
    assert make_locator("activation", at_subject=True).settings()["at_subject"] is True


def test_mass_is_the_mean_score_of_a_layer_on_the_edits_prompt(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny("llama")
    store = ResultsStore(tmp_path)
    read: list[str] = []
    score = ActivationMagnitude.scores

    def counted(self: ActivationMagnitude, lm: LanguageModel, queries: Sequence[Any]) -> Any:
        read.extend(query.text for query in queries)
        return score(self, lm, queries)

    monkeypatch.setattr(ActivationMagnitude, "scores", counted)
    locator = make_locator("activation", at_subject=True)
    table = layer_mass_of_facts(model, FACTS, [0, 3], locator, store=store)
    assert read == ["Town0 is in _", "Town3 is in _"]
    assert table["example"].tolist() == [0] * 4 + [3] * 4
    assert table["layer"].tolist() == [0, 1, 2, 3] * 2
    queries = [
        query
        for number in (0, 3)
        for query in ceiling.encode(
            model, [ceiling.Sentence(FACTS[number].prompts[0], "C", f"Town{number}")]
        )
    ]
    by_layer = score(locator, model, queries).reshape(2, 4, -1).mean(axis=2)
    assert table["mass"].to_numpy() == pytest.approx(by_layer.ravel(), rel=1e-4)
    read.clear()
    more = layer_mass_of_facts(model, FACTS, [0, 3, 4], locator, store=store)
    assert read == ["Town4 is in _"]
    assert more.query("example != 4").reset_index(drop=True).equals(table)


def test_the_run_holds_edits_to_both_answers_and_mass_at_both_tokens(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, list[int]]] = []

    def edits(
        lm: LanguageModel, facts: object, chosen: Sequence[int], *, target: int, **options: Any
    ) -> pd.DataFrame:
        asked.append((target, options["layers"]))
        return pd.DataFrame({"example": chosen, "layer": 0, "wording": 0, "new": 0.0, "old": 0.0})

    model = tiny("llama")
    monkeypatch.setattr(ceiling, "load_named", lambda _: model)
    monkeypatch.setattr(ceiling, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(ceiling, "edit_settings", lambda *_, **__: {"preset": "tuned"})
    monkeypatch.setattr(ceiling, "read_hyperparameters", lambda *_: SimpleNamespace(layers=(1,)))
    monkeypatch.setattr(ceiling, "edit_every_layer", edits)
    params = {
        **{"model": "tiny", "source": "klob-mini", "seed": 0, "preset": "tuned", "corpus": "self"},
        **{"located_edits": 4, "layer_step": 1, "locators": ["activation"]},
    }
    archive = Archive(tmp_path / "out")
    publish_parts(publication(params), archive)
    publish_parts(publication(params), archive)  # what is there is not made again
    assert asked == [(0, [0, 1, 2]), (1, [0, 1, 2])]
    (run,) = archive.runs()
    assert list(run.tables) == ["edits", "layers: activation", "layers: activation, subject"]
    stored = run.tables["edits"]
    assert stored["target"].tolist() == [0] * 4 + [1] * 4
    assert stored["relation"].notna().all()
    assert stored["answer"].notna().all()
    assert run.about.settings["edits"]["preset_layer"] == 1
    assert run.about.settings["layers: activation, subject"]["tokens"] == "subject"
