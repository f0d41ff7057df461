"""The streamed evaluation against the plain one, resuming, and controls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest

from helpers.kept import read_kept
from helpers.klob import evaluation, evaluation_tables, summary
from helpers.klob import publish as publishing
from helpers.klob import questions as benchmark
from helpers.klob import run as published
from helpers.klob.evaluation_tables import score_rows
from helpers.klob.examples import ConsistencyExample, RelevanceExample, save_examples
from helpers.klob.metrics import (
    candidate_similarity,
    pairwise_baseline,
    relative_similarity,
    similarity_matrix,
)
from helpers.klob.questions import Examples, Subtask, load_examples
from helpers.klob.summary import Summary
from helpers.klob.tables import edits_of, made_of
from helpers.klob.unit_sets import located
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
from helpers.paths import run_name
from helpers.results.archive import Archive, ArchiveError
from helpers.results.store import ResultsStore

Tiny = Callable[..., LanguageModel]
LANDS = ("Utopia", "Laputa", "Lilliput", "Brobdingnag", "Atlantis", "Erewhon")


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
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
        path = tmp_path / f"{subtask}.jsonl"
        save_examples(examples, path)
        monkeypatch.setitem(benchmark_files(), subtask, path)
    return "klob-mini"


def benchmark_files() -> dict[str, Path]:
    from helpers.klob import examples as klob

    return klob.MINI


def plain_tables(
    model: LanguageModel, locator: Locator, examples: Examples, granularity: str, share: float
) -> pd.DataFrame:
    """Sim_cand and both Sim_all with all scores in memory."""
    queries = encode(model, [s for group in examples.groups for s in group])
    shape = locator.shape(model.layout)
    scores = pool(locator.scores(model, queries), shape, granularity)  # type: ignore[arg-type]
    sets = np.concatenate([located(row, (share,)) for row in scores])
    table = np.arange(len(queries)).reshape(len(examples.groups), -1)
    kind = "relevance" if examples.subtask == "relevance" else "consistency"
    similarities = similarity_matrix(sets)
    (mean,) = located(scores.mean(axis=0, dtype=np.float64), (share,))
    return pd.DataFrame(
        {
            "candidate": candidate_similarity(similarities, table, kind),
            "mean_scores": ((sets & mean).sum(axis=1) / mean.sum())[table].mean(axis=1),
            "pairwise": pairwise_baseline(similarities, table),
        }
    )


@pytest.mark.parametrize("kept_units", [1 << 20, 100])
@pytest.mark.parametrize("subtask", ["consistency", "relevance"])
def test_streamed_tables_equal_plain_ones(
    subtask: str, kept_units: int, source: str, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few units kept, whole sets come from the second pass."""
    monkeypatch.setattr(summary, "KEPT_UNITS", kept_units)
    model, examples = tiny("llama"), load_examples(subtask, source)  # type: ignore[arg-type]
    for locator in (ActivationMagnitude(), Fisher()):
        result = evaluation.evaluate(
            model, locator, examples, shares=(0.05, 0.3), permutations=2, chunk=4
        )
        for granularity, found in result.similarities.query("share == 0.3").groupby("granularity"):
            plain = plain_tables(model, locator, examples, str(granularity), 0.3)
            for column in plain:
                assert found[column].to_numpy() == pytest.approx(plain[column], abs=1e-6)


def test_sentences_and_layers(source: str, tiny: Tiny) -> None:
    model, examples = tiny("gpt2"), load_examples("consistency", source, count=4, seed=1)
    locator = ActivationMagnitude()
    result = evaluation.evaluate(model, locator, examples, permutations=2)
    queries = encode(model, [s for group in examples.groups for s in group])
    scores = locator.scores(model, queries)
    neurons = result.sentences.query("granularity == 'neuron'")
    assert neurons["deviation"].to_numpy() == pytest.approx(scores.std(axis=1), rel=1e-4)
    assert neurons["magnitude"].to_numpy() == pytest.approx(scores.mean(axis=1), rel=1e-4)
    assert sorted(set(neurons["example"])) == list(examples.numbers)
    mass = pool(scores, locator.shape(model.layout), "layer").reshape(4, 3, -1).mean(axis=1)
    found = result.layers.pivot(index="example", columns="layer", values="mass").to_numpy()
    assert found == pytest.approx(mass, rel=1e-5)


def test_controls_score_nothing(source: str, tiny: Tiny) -> None:
    model, examples = tiny("llama"), load_examples("consistency", source)
    constant = evaluation.evaluate(model, ConstantScores(), examples, permutations=2).similarities
    rsim = relative_similarity(constant["candidate"], constant["pairwise"])
    assert (rsim == 0).all()
    random = evaluation.evaluate(
        model, RandomScores(), examples, shares=(0.3,), permutations=200
    ).null
    row = random.query("granularity == 'neuron' and shuffled == 'all'").iloc[0]
    assert abs(row["observed"] - row["mean"]) < 4 * row["standard_deviation"]


def test_sentences_without_answers_use_the_models_own(source: str, tiny: Tiny) -> None:
    examples = load_examples("unbiasedness", source)
    result = evaluation.evaluate(tiny("llama"), Fisher(), examples)
    assert result.similarities.empty
    assert (result.sentences["deviation"] > 0).all()
    assert set(result.sentences["granularity"]) == {"layer", "neuron", "parameter"}


class Interrupted(ActivationMagnitude):
    """Fails after some sentences, and counts what it was asked for."""

    def __init__(self, allowed: int) -> None:
        self._allowed = allowed

    def scores(self, language_model: LanguageModel, queries: Sequence[Query]) -> np.ndarray:
        self._allowed -= len(queries)
        if self._allowed < 0:
            raise KeyboardInterrupt
        return super().scores(language_model, queries)


def test_an_interrupted_subtask_goes_on_with_its_chunks(
    source: str, tiny: Tiny, tmp_path: Path
) -> None:
    model, examples = tiny("llama"), load_examples("consistency", source)
    options = {"checkpoints": tmp_path / "chunks", "chunk": 2, "permutations": 2}
    with pytest.raises(KeyboardInterrupt):
        evaluation.evaluate(model, Interrupted(13), examples, **options)
    resumed = evaluation.evaluate(model, Interrupted(6), examples, **options)  # 12 are there
    smaller = evaluation.evaluate(model, ActivationMagnitude(), examples, **{**options, "chunk": 1})
    pd.testing.assert_frame_equal(smaller.similarities, resumed.similarities)
    other = load_examples("consistency", source, count=4, seed=1)
    found, expected = (
        evaluation.evaluate(model, ActivationMagnitude(), other, **how)
        for how in (options, {"permutations": 2})
    )
    pd.testing.assert_frame_equal(found.sentences, expected.sentences)
    whole = evaluation.evaluate(model, ActivationMagnitude(), examples, permutations=2)
    pd.testing.assert_frame_equal(resumed.similarities, whole.similarities)
    pd.testing.assert_frame_equal(resumed.sentences, whole.sentences)


def test_plan_runs_resumes_and_saves(
    source: str, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, store = tiny("llama"), ResultsStore(tmp_path / "store")
    counts = {"consistency": 4, "relevance": 3, "unbiasedness": None}
    plan = published.Plan(("activation", "random"), source, counts, permutations=9)  # type: ignore[arg-type]
    tables = published.run(model, plan, store=store)
    assert set(tables["sentences"]["locator"]) == {"activation", "random"}
    assert tables["similarities"].groupby("subtask")["example"].nunique().to_dict() == {
        "consistency": 4,
        "relevance": 3,
    }
    assert (tables["cost"]["cpu_seconds"] > 0).all()
    monkeypatch.setattr(published, "evaluate", pytest.fail)  # nothing may be computed again
    again = published.run(model, plan, store=store)
    archive = Archive(tmp_path / "out")
    archive.put("tiny_klob-mini", again, published.about(model, plan), by=["locator"])
    read = archive.get("tiny_klob-mini")
    pd.testing.assert_frame_equal(read.tables["null"], tables["null"])
    assert "4 consistency, 3 relevance, all unbiasedness" in made_of(read)


def test_a_mended_example_costs_its_chunk_alone(
    source: str, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, store = tiny("llama"), ResultsStore(tmp_path / "store")
    counts = {"consistency": None, "relevance": 0, "unbiasedness": 0}
    plan = published.Plan(("activation",), source, counts, permutations=3)  # type: ignore[arg-type]
    examples = load_examples("consistency", source)
    given = {"examples": examples}
    monkeypatch.setattr(published, "load_examples", lambda *_, **__: given["examples"])
    monkeypatch.setattr(published, "cost", lambda *_: pd.DataFrame())
    monkeypatch.setattr(published, "evaluate", partial(evaluation.evaluate, chunk=1))
    scored: list[int] = []
    add = evaluation._add

    def noted(*args: Any, **kwargs: Any) -> None:
        scored.append(len(args[2]))
        add(*args, **kwargs)

    monkeypatch.setattr(evaluation, "_add", noted)
    published.run(model, plan, store=store)
    every = len(examples.groups)
    chunks = list(scored)
    scored.clear()
    last = examples.groups[-1]
    mended = (replace(last[0], cloze=f"Today {last[0].cloze}"), *last[1:])
    given["examples"] = replace(examples, groups=(*examples.groups[:-1], mended))
    published.run(model, plan, store=store)
    assert len(scored) < len(chunks)
    assert len(scored) * every == len(chunks)


def test_layers_of_edited_facts_are_added(source: str, tiny: Tiny, tmp_path: Path) -> None:
    model, name = tiny("llama"), "tiny_klob-mini"
    counts = {"consistency": 3, "relevance": 3, "unbiasedness": 1}
    plan = published.Plan(("activation",), source, counts, permutations=3)  # type: ignore[arg-type]
    tables = published.run(model, plan, store=ResultsStore(tmp_path / "store"))
    archive, about = Archive(tmp_path), published.about(model, plan)
    archive.put(name, tables, about)
    with pytest.raises(ArchiveError, match="edited_facts"):
        published.located_layers(model, ["random"], archive.get(name))
    every = load_examples("consistency", source).numbers
    archive.put(name, {"edits": pd.DataFrame({"example": every})}, about)
    layers = published.located_layers(model, ["activation", "random"], archive.get(name))
    assert not layers.duplicated(["locator", "subtask", "example", "layer"]).any()
    facts = layers.query("subtask == 'consistency'").groupby("locator")["example"].unique()
    assert {locator: set(numbers) for locator, numbers in facts.items()} == {
        "activation": set(every),
        "random": set(every),
    }
    before = tables["layers"].query("subtask == 'consistency'").set_index(["example", "layer"])
    after = layers.query("locator == 'activation' and subtask == 'consistency'").set_index(
        ["example", "layer"]
    )
    np.testing.assert_array_equal(after["mass"].reindex(before.index), before["mass"])


def test_summaries_merge_and_survive_the_disk(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(6, 50)).astype(np.float32)
    whole, parts = Summary(50, (0.1, 0.5)), [Summary(50, (0.1, 0.5)) for _ in range(2)]
    for i, row in enumerate(rows):
        whole.add(row)
        parts[i // 3].add(row)
    for number, part in enumerate(parts):
        part.save(tmp_path / f"{number}.npz")
    merged, other = (read_kept(tmp_path / f"{number}.npz", Summary.read) for number in (0, 1))
    merged.merge(other)
    assert len(merged) == 6
    assert np.array_equal(merged.sets(1), whole.sets(1))
    assert np.array_equal(merged.counts, whole.counts)
    assert np.array_equal(merged.located_mean(), whole.located_mean())
    assert merged.deviations == whole.deviations


def test_a_sample_of_the_units_holds_its_share_of_a_located_set(monkeypatch) -> None:
    monkeypatch.setattr(summary, "KEPT_UNITS", 100)
    assert Summary(1_000, (0.1,)).set_size(0) == 10
    assert Summary(100, (0.1,)).set_size(0) == 10


def test_the_mean_located_set_is_of_the_highest_scores_not_the_largest() -> None:
    found = Summary(4, (0.25, 0.5))
    for scores in ([1, -9, 4, 2], [3, -9, -4, 4]):  # means 2, -9, 0, 3
        found.add(np.array(scores, dtype=np.float32))
    assert found.located_mean().tolist() == [
        [False, False, False, True],
        [True, False, False, True],
    ]


def test_examples_are_chosen_by_seed(source: str) -> None:
    first, again, other = (
        load_examples("consistency", source, count=3, seed=seed) for seed in (0, 0, 1)
    )
    assert first == again != other
    assert load_examples("relevance", source).groups[0][3].subject == "Port Utopia"
    with pytest.raises(ValueError, match="7 examples"):
        load_examples("relevance", source, count=7)
    assert benchmark.load_examples("unbiasedness", source).groups[0][0].answer is None


def test_every_locator_has_a_name() -> None:
    assert [make_locator(name).granularity for name in LOCATORS].count("parameter") == 2
    with pytest.raises(LocatorError, match="knowledge-neurons"):
        make_locator("telepathy")


def test_scores_are_streamed_one_by_one(source: str, tiny: Tiny) -> None:
    model = tiny("llama")
    examples = load_examples("consistency", source)
    queries = encode(model, [s for group in examples.groups for s in group])
    locator = ActivationMagnitude()
    locator.at_a_time = 4
    streamed = np.stack(list(score_rows(model, locator, queries)))
    assert streamed == pytest.approx(
        ActivationMagnitude().scores(model, queries), rel=1e-3, abs=1e-5
    )


PARAMS = {
    **{"dtype": "float32", "device": "cpu", "source": "klob-mini", "seed": 0, "masked": False},
    **{"counts": [3, 2, 2], "permutations": 9, "edited_facts": 0, "layers_only": []},
    **{"preset": "tuned", "corpus": "self"},
}


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    monkeypatch.setattr(publishing, "RUNS", tmp_path / "runs")
    return Archive(tmp_path / "out")


def test_a_masked_model_is_published_locator_by_locator(
    tiny_masked: LanguageModel, tmp_path: Path, runs: Archive
) -> None:
    folder = tmp_path / "tiny-bert"
    tiny_masked.model.save_pretrained(folder)
    tiny_masked.tokenizer.save_pretrained(folder)
    params = {**PARAMS, "model": str(folder), "masked": True, "edited_facts": 2}
    for locator in ("activation", "gradient-activation"):
        publishing.publish({**params, "locators": [locator]}, runs)
    stored = runs.get(run_name(str(folder), "klob-mini"))
    assert set(stored.tables["similarities"]["locator"]) == {"activation", "gradient-activation"}
    assert set(stored.tables["sentences"]["subtask"]) == set(get_args(Subtask))
    assert "edits" not in stored.tables  # such a model is not edited
    with pytest.raises(ArchiveError, match="seed 0, now 1"):
        publishing.publish({**params, "locators": ["random"], "seed": 1}, runs)


def test_edits_and_slow_locators_are_published_beside(
    source: str, tiny: Tiny, runs: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny("llama")
    monkeypatch.setattr(publishing, "load", lambda *a, **k: model)

    def edits(
        model: LanguageModel, examples: object, chosen: list[int], **_: object
    ) -> pd.DataFrame:
        return pd.DataFrame({"example": chosen, "layer": 0, "wording": 0, "new": 0.0, "old": 0.0})

    monkeypatch.setattr(publishing, "edit_every_layer", edits)
    monkeypatch.setattr(publishing, "edit_settings", lambda *a, **k: {"preset": "tuned"})
    params = {**PARAMS, "model": "tiny", "source": source, "locators": ["activation"]}
    publishing.publish({**params, "edited_facts": 2, "layers_only": ["random"]}, runs)
    run = runs.get(run_name("tiny", source))
    assert set(run.tables["layers"]["locator"]) == {"activation", "random"}
    assert set(run.tables["similarities"]["locator"]) == {"activation"}
    assert run.about.settings["edits"] == {"preset": "tuned"}


def test_the_null_keeps_a_bounded_number_of_sentences(
    source: str, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny("llama")
    examples = load_examples("consistency", source)
    whole = evaluation.evaluate(model, Fisher(), examples, permutations=9)
    kept: list[int] = []
    null = evaluation.null_table

    def counted(views: evaluation_tables.Views, *rest: object) -> pd.DataFrame:
        kept.extend(len(view.bits) for view in views.values() if not view.complete)
        return null(views, *rest)

    monkeypatch.setattr(evaluation, "null_table", counted)
    monkeypatch.setattr(evaluation_tables, "NULL_SENTENCES", 6)
    monkeypatch.setattr(summary, "KEPT_UNITS", 64)
    few = evaluation.evaluate(model, Fisher(), examples, permutations=9)
    assert len(examples.groups) > 2
    assert kept
    assert max(kept) <= 6
    pd.testing.assert_frame_equal(few.similarities, whole.similarities)
    pd.testing.assert_frame_equal(few.sentences, whole.sentences)
    assert few.null["observed"].notna().all()


def test_skipped_facts_are_counted_where_facts_are_edited(
    source: str, tiny: Tiny, tmp_path: Path, runs: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "load", lambda *a, **k: tiny("llama"))
    edited: list[int] = []

    def edits(model: LanguageModel, examples: object, chosen: list[int], **_: object) -> Any:
        edited.extend(chosen)
        return pd.DataFrame({"example": chosen, "layer": 0, "wording": 0, "new": 0.0, "old": 0.0})

    monkeypatch.setattr(publishing, "edit_every_layer", edits)
    monkeypatch.setattr(publishing, "edit_settings", lambda *a, **k: {"preset": "tuned"})
    facts = tmp_path / "c.jsonl"
    lines = facts.read_text("utf-8").splitlines()
    facts.write_text("\n".join([lines[0], lines[1].replace(" _", " _ "), *lines[2:]]), "utf-8")
    params = {**PARAMS, "model": "tiny", "source": source, "locators": ["activation"]}
    params |= {"counts": [0, 2, 2], "edited_facts": 6}
    with pytest.raises(ValueError, match=r"c\.jsonl, line 2: .*skip_bad_records"):
        publishing.publish(params, runs)
    publishing.publish({**params, "skip_bad_records": True}, runs)
    assert edited
    assert 1 not in edited
    run = runs.get(run_name("tiny", source))
    assert edits_of(run, facts=5).endswith("5 facts (1 skipped)")
    assert made_of(run).endswith("2 unbiasedness (1 skipped)")
