"""An evaluation against the plain one, its controls, resumption, and the published parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from helpers.klob import examples as klob
from helpers.klob import publish as publishing
from helpers.klob import run as running
from helpers.klob.examples import ConsistencyExample, Examples, RelevanceExample, load_examples
from helpers.klob.metrics import (
    candidate_similarity,
    located_units,
    pairwise_baseline,
    relative_similarity,
    similarity_matrix,
)
from helpers.klob.run import evaluate_locator, run_locators
from helpers.klob.tables import made_of
from helpers.locating.locators import (
    LOCATORS,
    ActivationMagnitude,
    ConstantScores,
    Fisher,
    Locator,
    RandomScores,
    make_locator,
    pool,
)
from helpers.locating.query import LocatorError, Query, encode
from helpers.models import LanguageModel
from helpers.results.archive import Archive, ArchiveError
from helpers.results.publish import publish_parts
from helpers.results.store import ResultsStore
from tools.klob_mini import save_examples

Tiny = Callable[..., LanguageModel]
LANDS = ("Utopia", "Laputa", "Lilliput", "Brobdingnag", "Atlantis", "Erewhon")
COUNTS: Any = {"consistency": 4, "relevance": 3, "unbiasedness": None}


@pytest.fixture(autouse=True)
def _source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six facts, chains and random sentences in the published schema, as "klob-mini"."""
    facts = [
        ConsistencyExample(
            (f"{land} speaks _", f"The tongue of {land} is _", f"In {land} they speak _"),
            (land, "language_(P37)" if i % 2 else "tongue_(P1412)", f"language{i}"),
        )
        for i, land in enumerate(LANDS)
    ]
    chains = [
        RelevanceExample(
            (f"Port {land}", "capital_(P1376)", land),
            (f"Port {land}", "capital_(P1376)", land, "language_(P37)", f"language{i}"),
            (f"Port {land} rules _", f"Port {land}, seat of _", f"From Port {land} one rules _"),
            f"The tongue of the land of Port {land} is _",
        )
        for i, land in enumerate(LANDS)
    ]
    nonsense = [f"zot {land[::-1]} qua _" for land in LANDS]
    for subtask, examples in (("c", facts), ("r", chains), ("u", nonsense)):
        save_examples(examples, tmp_path / f"{subtask}.jsonl")
        monkeypatch.setitem(klob.MINI, subtask, tmp_path / f"{subtask}.jsonl")


def plain_tables(
    lm: LanguageModel, locator: Locator, examples: Examples, granularity: Any, share: float
) -> pd.DataFrame:
    """Sim_cand and both Sim_all with all sets in memory."""
    queries = encode(lm, examples.sentences)
    scores = pool(locator.scores(lm, queries), locator.shape(lm.layout), granularity)
    sets = [located_units(row, (share,))[0] for row in scores]
    table = np.arange(len(queries)).reshape(len(examples.groups), -1)
    similarities = similarity_matrix(sets)
    (mean,) = located_units(scores.mean(axis=0, dtype=np.float64), (share,))
    to_mean = np.array([len(np.intersect1d(units, mean)) / len(mean) for units in sets])
    return pd.DataFrame(
        {
            "candidate": candidate_similarity(similarities, table, examples.subtask),
            "mean_scores": to_mean[table].mean(axis=1),
            "pairwise": pairwise_baseline(similarities, table),
        }
    )


@pytest.mark.parametrize("subtask", ["consistency", "relevance"])
def test_an_evaluation_equals_the_plain_one(subtask: Any, tiny: Tiny) -> None:
    model, examples = tiny("llama"), load_examples(subtask)
    for locator in (ActivationMagnitude(), Fisher()):
        found = evaluate_locator(model, locator, examples, shares=(0.05, 0.3), permutations=2)
        for granularity, part in found["similarities"].query("share == 0.3").groupby("granularity"):
            plain = plain_tables(model, locator, examples, granularity, 0.3)
            for column in plain:
                assert part[column].to_numpy() == pytest.approx(plain[column], abs=1e-6)
        scores = locator.scores(model, encode(model, examples.sentences))
        finest = found["sentences"].query("granularity == @locator.granularity")
        assert finest["deviation"].to_numpy() == pytest.approx(scores.std(axis=1), rel=1e-3)
        mass = pool(scores, locator.shape(model.layout), "neuron")
        mass = pool(mass, locator.shape(model.layout)[:2], "layer")
        mean = mass.reshape(len(examples.groups), -1, mass.shape[1]).mean(axis=1)
        layers = found["layers"].pivot(index="example", columns="layer", values="mass")
        assert layers.to_numpy() == pytest.approx(mean, rel=1e-4)


def test_controls_score_nothing(tiny: Tiny) -> None:
    model, examples = tiny("llama"), load_examples("consistency")
    constant = evaluate_locator(model, ConstantScores(), examples, permutations=2)["similarities"]
    assert (relative_similarity(constant["candidate"], constant["pairwise"]) == 0).all()
    random = evaluate_locator(model, RandomScores(), examples, shares=(0.3,), permutations=200)[
        "null"
    ]
    row = random.query("granularity == 'neuron' and shuffled == 'all'").iloc[0]
    assert abs(row["observed"] - row["mean"]) < 4 * row["standard_deviation"]


def test_random_words_are_not_compared_and_have_the_models_own_answers(tiny: Tiny) -> None:
    found = evaluate_locator(tiny("llama"), Fisher(), load_examples("unbiasedness"))
    assert set(found) == {"sentences", "layers"}
    assert (found["sentences"]["deviation"] > 0).all()
    assert set(found["sentences"]["granularity"]) == {"layer", "neuron", "parameter"}


def test_a_null_of_few_sentences_and_units_leaves_the_similarities_as_they_are(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, examples = tiny("llama"), load_examples("consistency")
    whole = evaluate_locator(model, Fisher(), examples, permutations=9)
    monkeypatch.setattr(running, "NULL_SENTENCES", 6)
    monkeypatch.setattr(running, "NULL_UNITS", 64)
    few = evaluate_locator(model, Fisher(), examples, permutations=9)
    pd.testing.assert_frame_equal(few["similarities"], whole["similarities"])
    assert few["null"]["observed"].notna().all()
    assert not few["null"]["observed"].equals(whole["null"]["observed"])


def test_a_plan_resumes_inside_a_subtask_and_reads_what_is_finished(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, store, left = tiny("llama"), ResultsStore(tmp_path / "store"), [10]
    scores = ActivationMagnitude.scores

    def limited(
        self: ActivationMagnitude, lm: LanguageModel, queries: Sequence[Query]
    ) -> np.ndarray:
        left[0] -= len(queries)
        if left[0] < 0:
            raise KeyboardInterrupt
        return scores(self, lm, queries)

    monkeypatch.setattr(ActivationMagnitude, "scores", limited)
    plan = ("activation", "random"), "klob-mini", COUNTS
    how: Any = {"store": store, "permutations": 9}
    with pytest.raises(KeyboardInterrupt):
        run_locators(model, *plan, **how)
    assert run_locators(model, *plan, **how, from_store_only=True)["sentences"].empty
    left[0] = 7 + 12 + 6  # 5 of the 12 sentences of c are there; 12 of r, 6 of u
    tables = run_locators(model, *plan, **how)
    left[0] = 0  # nothing may be computed again
    again = run_locators(model, *plan, **how)
    for name, table in tables.items():
        pd.testing.assert_frame_equal(again[name], table)
    left[0] = 1_000
    fresh = run_locators(model, *plan, **how | {"store": ResultsStore(tmp_path / "fresh")})
    for name, table in tables.items():
        pd.testing.assert_frame_equal(fresh[name], table)
    counted = tables["similarities"].groupby("subtask")["example"].nunique()
    assert counted.to_dict() == {"consistency": 4, "relevance": 3}
    assert set(tables["sentences"]["locator"]) == {"activation", "random"}
    assert not list(tmp_path.glob("**/scores-*"))  # they are large


def test_every_locator_has_a_name() -> None:
    assert [make_locator(name).granularity for name in LOCATORS].count("parameter") == 2
    assert [make_locator(n, 3).settings().get("seed") for n in LOCATORS].count(3) == 3
    with pytest.raises(LocatorError, match="knowledge-neurons"):
        make_locator("telepathy")


PARAMS = {
    **{"dtype": "float32", "device": "cpu", "source": "klob-mini", "seed": 0, "masked": False},
    "dequantise": False,
    **{"counts": [3, 2, 2], "permutations": 9, "edited_facts": 2, "model": "tiny"},
    **{"preset": "tuned", "corpus": "self", "locators": ["activation"]},
}


@pytest.mark.parametrize("masked", [False, True])
def test_a_published_run_takes_further_locators(
    masked: bool,
    tiny: Tiny,
    tiny_masked: LanguageModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_masked if masked else tiny("llama")
    monkeypatch.setattr(publishing, "load_named", lambda *_, **__: model)
    monkeypatch.setattr(publishing, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(publishing, "edit_settings", lambda *_, **__: {"preset": "tuned"})
    edited: list[Sequence[int]] = []

    def edits(lm: LanguageModel, facts: object, chosen: Sequence[int], **_: object) -> Any:
        edited.append(chosen)
        return pd.DataFrame({"example": chosen, "layer": 0, "wording": 0, "new": 0.0, "old": 0.0})

    monkeypatch.setattr(publishing, "edit_every_layer", edits)
    archive, params = Archive(tmp_path / "out"), {**PARAMS, "masked": masked}
    publish_parts(publishing.publication(params), archive)
    more = {**params, "locators": ["gradient-activation"], "counts": [2, 2, 2]}
    publish_parts(publishing.publication(more), archive)
    (published,) = archive.runs()
    assert set(published.joined("similarities")["locator"]) == {"activation", "gradient-activation"}
    assert set(published.joined("sentences")["subtask"]) == set(COUNTS)
    assert made_of(published).endswith(
        "3 consistency, 2 relevance, 2 unbiasedness; gradient-activation: 2 consistency,"
        " 2 relevance, 2 unbiasedness"
    )
    assert ("edits" in published.tables) is not masked  # a masked model is not edited
    assert set(map(len, edited)) <= {2}
    with pytest.raises(ArchiveError, match="seed 0, now 1"):
        publish_parts(publishing.publication({**params, "seed": 1}), archive)
