"""Scores under edits, the tables made of them, and resuming: on a tiny random model."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

from helpers.editing.editor import Editor
from helpers.editing.presets import Hyperparameters
from helpers.editing.update import LowRank, Update, apply
from helpers.params import notebook_parameters
from helpers.paths import NOTEBOOKS
from helpers.records import Usable
from helpers.results.archive import Archive, ArchiveError
from helpers.results.store import ResultsStore, settings_key
from helpers.scoring.answers import Question, score_answers
from helpers.scoring.responses import Sampling
from helpers.thinkedit import metrics, publish, tables
from helpers.thinkedit.known import BY_MEAN, Known
from helpers.thinkedit.probes import kinds_of, negations_of, probes_of, request_of
from helpers.thinkedit.report_tables import evaluate_scores
from helpers.thinkedit.run import ThinkEditRun
from helpers.thinkedit.scores import ESTIMATORS, exact_scores, sampled_scores, text_scores
from helpers.thinkedit.stored_scores import DRAWN, caption, evaluation, scores_of


class RandomEditor(Editor):
    """Adds a random rank-one delta that depends on the request; counts how often it edits."""

    name = "random"
    app = None
    hyperparameters = Hyperparameters()

    def __init__(self, language_model, scale=0.3):
        self.language_model = language_model
        self.scale = scale
        self.calls = 0

    def edit(self, requests):
        self.calls += 1
        layout = self.language_model.layout
        updates = []
        for request in requests:
            generator = torch.Generator().manual_seed(len(request.text) + ord(request.target[0]))
            left = torch.randn(layout.hidden_size, 1, generator=generator) * self.scale
            right = torch.randn(layout.intermediate_size, 1, generator=generator) * self.scale
            updates.append(Update({layout.mlp_out(1): LowRank(left, right)}))
        return updates


@pytest.fixture
def run_of(tiny, edits, tmp_path):
    def made(**changes):
        options = {"store": ResultsStore(tmp_path), "chunk": 2, **changes}
        chosen = options.pop("edits", edits)
        return ThinkEditRun(tiny("llama"), chosen, edits, {}, **options)

    return made


def test_exact_scores_are_those_of_score_answers_under_each_edit(tiny, edits):
    language_model = tiny("llama")
    kinds = kinds_of(edits)
    probes = [probe for edit in edits for probe in probes_of(edit, edits, kinds)]
    updates = RandomEditor(language_model).edit([_request(edit) for edit in edits])
    owners = [edits.index(next(e for e in edits if e.case_id == p.case_id)) for p in probes]
    table = exact_scores(language_model, probes, {}, updates, owners)
    for index in (0, 5, len(probes) - 1):
        probe = probes[index]
        answers = (probe.original, *([probe.other] if probe.other else []), *probe.rivals)
        with apply(language_model, updates[owners[index]]):
            plain = score_answers(language_model, [Question(probe.prompt, answers)])
        row = table.iloc[index]
        assert row["original_sum"] == pytest.approx(plain["sum"][0], abs=1e-4)
        assert np.isnan(row["other_sum"]) == (probe.other is None)
        if probe.rivals:
            assert row["rival"] == pytest.approx(
                plain["mean"][len(plain) - len(probe.rivals) :].max(), abs=1e-4
            )


def _request(edit):
    from helpers.thinkedit.probes import request_of

    return request_of(edit, {})


@pytest.mark.parametrize("mode", ["independent", "sequential", "deep"])
def test_a_run_resumes_and_changes_nothing_without_an_edit(run_of, tiny, mode):
    editor = RandomEditor(tiny("llama"), scale=0.0)
    run = run_of()
    before, after = run.before(), run.after(editor, mode)
    pd.testing.assert_frame_equal(before, after, atol=1e-4)
    calls = editor.calls
    assert calls > 0
    pd.testing.assert_frame_equal(run.after(editor, mode), after)
    assert editor.calls == calls
    assert set(run.read(editor, mode, "edits")["failure"]) == {""}


def test_independent_runs_go_on_where_they_stopped(run_of, tiny, edits):
    editor = RandomEditor(tiny("llama"))
    run_of(edits=edits[:2]).after(editor, "independent")
    made = editor.calls
    whole = run_of().after(editor, "independent")
    assert editor.calls == made + 1
    assert set(whole["case_id"]) == {1, 2, 3}


def test_sequential_edits_accumulate(run_of, tiny, edits):
    editor = RandomEditor(tiny("llama"))
    run = run_of()
    end, along = run.after(editor, "sequential"), run.read(editor, "sequential", "along")
    assert set(along["form"]) == {"edit", "paraphrase", "neighbour"}
    end = end[end["form"].isin(along["form"])]
    last = end["case_id"] == 3
    assert np.allclose(end[last]["original_sum"], along[along["case_id"] == 3]["original_sum"])
    first = end["case_id"] == 1
    assert not np.allclose(
        end[first]["original_sum"], along[along["case_id"] == 1]["original_sum"], atol=1e-3
    )
    alone = run.after(editor, "independent")
    alone = alone[alone["form"].isin(along["form"])]
    assert np.allclose(
        alone[alone["case_id"] == 1]["original_sum"],
        along[along["case_id"] == 1]["original_sum"],
        atol=1e-4,
    )


def test_exact_scores_add_up_the_accepted_names(tiny, edits):
    language_model = tiny("llama")
    probes = probes_of(edits[0], edits, kinds_of(edits))
    aliases = {"rome": ("Roma", "Rome, Italy"), "oslo": ("Kristiania",)}
    plain, more = (exact_scores(language_model, probes, names) for names in ({}, aliases))
    same = ["original_sum", "other_sum", "rival", "rival_sum"]
    assert np.allclose(plain[same], more[same], atol=1e-4, equal_nan=True)
    assert np.allclose(plain["original_named"], plain["original_sum"])
    first = probes[0]
    assert (first.original, first.other) == ("Rome", "Oslo")
    names = Question(first.prompt, ("Rome", "Roma", "Oslo", "Kristiania"))
    sums = score_answers(language_model, [names])["sum"]
    assert more["original_named"][0] == pytest.approx(np.logaddexp(sums[0], sums[1]), abs=1e-4)
    assert more["other_named"][0] == pytest.approx(np.logaddexp(sums[2], sums[3]), abs=1e-4)


def test_sampled_scores_count_mentions(run_of, tiny, monkeypatch, edits):
    language_model = tiny("llama")
    replies = {"In which town does Ada live?": ["It is ROME.", "Oslo!", "romeo", "Roma", "-"]}
    monkeypatch.setattr(
        "helpers.thinkedit.scores.sample_responses",
        lambda model, prompts, *a, n, **k: [
            next((v for q, v in replies.items() if q in prompt), ["x"] * n) for prompt in prompts
        ],
    )
    table = sampled_scores(language_model, edits[:1], {"rome": ("Roma",)}, n=5, sampling=Sampling())
    assert table.iloc[0].tolist() == [1, 0, 2, 1, 5]
    assert table["hits"].tolist() == [2, 0, 0]


def test_a_sampled_run_counts_and_a_run_of_texts_does_not(run_of, tiny):
    run = run_of(estimator="sampled", samples=2, sampling=Sampling(max_new_tokens=4))
    table = run.after(RandomEditor(tiny("llama")), "independent")
    assert (table["n"] == 2).all()
    assert len(table) == len(run.before()) == 9
    texts = run_of(estimator="texts").after(RandomEditor(tiny("llama")), "independent")
    assert np.allclose(texts["fluency_weighted_sum"], 2 * texts["fluency_averaged"])
    assert texts["consistency"].between(0, 1).all()
    assert len(texts) == 3


def test_a_negated_run_scores_the_edited_fact_alone(run_of, tiny, edits):
    language_model = tiny("llama")
    editor = RandomEditor(language_model)
    run = run_of(estimator="negated")
    table = run.after(editor, "independent")
    assert table.groupby("case_id").size().to_dict() == {1: 6, 2: 6, 3: 6}
    probes = negations_of(edits[1])
    (update,) = editor.edit([request_of(edits[1], kinds_of(edits))])
    questions = [Question(probe.prompt, (probe.original, probe.other)) for probe in probes]
    with apply(language_model, update):
        expected = score_answers(language_model, questions)["sum"].to_numpy()
    own = table[table["case_id"] == 2]
    assert np.allclose(own[["original_sum", "other_sum"]].to_numpy().ravel(), expected, atol=1e-4)
    along = run.after(editor, "sequential")
    assert len(along) == len(table)
    assert run.read(editor, "sequential", "along").empty


def test_texts_do_not_depend_on_what_is_evaluated_together(run_of, tiny, edits, tmp_path):
    one_by_one = run_of(estimator="texts", samples=1, chunk=1).before()
    together = run_of(
        estimator="texts", samples=1, chunk=3, store=ResultsStore(tmp_path / "other")
    ).before()
    pd.testing.assert_frame_equal(one_by_one, together)


def test_results_are_of_the_data_they_were_made_from(run_of, tiny, edits, tmp_path):
    run = run_of()
    renamed = [replace(edits[0], new="Turin"), *edits[1:]]
    other = ThinkEditRun(tiny("llama"), edits, renamed, {}, ResultsStore(tmp_path))
    assert other.settings() != run.settings()
    sampled = run_of(estimator="sampled", sampling=Sampling(seed=1))
    assert sampled.settings() != run_of(estimator="sampled").settings()


def test_a_raised_version_changes_the_keys_of_what_it_scores(run_of, monkeypatch):
    runs = [run_of(estimator=estimator) for estimator in ESTIMATORS]
    before = [settings_key(run.settings()) for run in runs]
    for scorer, expected in (
        (Question, [True, True, False, False]),
        (Sampling, [False, False, True, True]),
    ):
        with monkeypatch.context() as raised:
            raised.setattr(scorer, "version", scorer.version + 1)
            changed = [settings_key(run.settings()) for run in runs]
        assert [old != new for old, new in zip(before, changed, strict=True)] == expected


def test_a_sequence_of_other_edits_has_other_results(run_of, tiny, edits):
    editor = RandomEditor(tiny("llama"))
    runs = [run_of(edits=part) for part in (edits, edits[:2], edits[::-1])]
    assert len({run.results(editor, "sequential").folder for run in runs}) == 3
    assert len({run.results(editor, "independent").folder for run in runs}) == 1


def test_other_ways_to_ask_have_other_results(run_of, tiny):
    run = run_of(estimator="sampled")
    changes = (
        {},
        {"aliases": {"rome": ("Roma",)}},
        {"samples": 4},
        {"sampling": Sampling(temperature=0.1)},
        {"layout": "latest"},
        {"language_model": tiny("llama", 1)},
        {"estimator": "exact"},
        {"estimator": "negated"},
        {"estimator": "texts"},
    )
    keys = {settings_key(replace(run, **change).settings()) for change in changes}
    assert len(keys) == len(changes)


def test_texts_are_compared_with_the_new_fact(tiny, edits, monkeypatch):
    """The reference holds what the graph says of the subject, with the new object in its place."""
    texts = iter(
        ["Ada lives in Oslo. Ada's friend is Bo.", "Ada lives in Rome. Ada's friend is Bo."]
    )
    monkeypatch.setattr(
        "helpers.thinkedit.scores.sample_responses", lambda *_, **__: [[next(texts)]]
    )
    new, old = (
        text_scores(tiny("llama"), edits[:1], edits, sampling=Sampling(), n=1) for _ in range(2)
    )
    assert new["consistency"].item() == pytest.approx(1)
    assert old["consistency"].item() < 0.95


def test_unknown_names_are_refused(run_of, tiny):
    with pytest.raises(ValueError, match="use exact, negated, sampled, texts"):
        run_of(estimator="guess")
    with pytest.raises(ValueError, match="use independent, sequential, deep"):
        run_of().after(RandomEditor(tiny("llama")), "parallel")


def test_every_estimator_looks_at_the_same_edits(tiny, edits, tmp_path, monkeypatch):
    language_model = tiny("llama")
    editor = RandomEditor(language_model)
    monkeypatch.setattr(publish, "load_usable", lambda *_, **__: Usable(dict(enumerate(edits))))
    monkeypatch.setattr(publish, "load_aliases", lambda layout: {})
    monkeypatch.setattr(publish, "build_editor", lambda *a, **k: editor)
    options = {"modes": ["sequential", "independent"], "estimators": ["exact", "texts"]}
    made = publish.evaluate(language_model, ["rome"], store=tmp_path, **options)
    tables = made.tables
    assert editor.calls == 3 + 2  # in sequence, and in chunks of 1 and 2; texts make no edit again
    assert set(tables) == {"exact", "texts", "along", "chains", "edits"}
    assert set(tables["texts"]["mode"]) == {"before", "sequential", "independent"}
    assert set(DRAWN) <= set(made.about.settings["texts"])
    assert not set(DRAWN) & set(made.about.settings["exact"])
    again = publish.evaluate(language_model, ["rome"], store=tmp_path, **options)
    assert editor.calls == 3 + 2
    pd.testing.assert_frame_equal(again.tables["exact"], tables["exact"])


@pytest.fixture
def publishing(edits, tmp_path, monkeypatch):
    """The publishing of random edits of a model into an archive, by parameters of notebook 06."""

    def of_model(language_model, into, **given):
        monkeypatch.setattr(publish, "load", lambda *_, **__: language_model)
        monkeypatch.setattr(publish, "load_usable", lambda *_, **__: Usable(dict(enumerate(edits))))
        monkeypatch.setattr(publish, "load_aliases", lambda layout: {})
        monkeypatch.setattr(publish, "build_editor", lambda *a, **k: RandomEditor(language_model))
        parameters = notebook_parameters(NOTEBOOKS / "06_thinkedit_case_study.ipynb")
        params = {parameter.name: parameter.default for parameter in parameters}
        publish.publish({**params, "rivals": False, **given}, into)

    monkeypatch.setattr(publish, "evaluate", partial(publish.evaluate, store=tmp_path))
    return of_model


def test_publishing_fewer_edits_keeps_what_more_are_compared_with(tiny, tmp_path, publishing):
    into = Archive(tmp_path / "archive")
    publishing(tiny("llama"), into, methods=["rome"], modes=["independent"])
    publishing(tiny("llama"), into, methods=["rome"], modes=["sequential"], first=2)
    (run,) = into.runs()
    scores = run.tables["exact"]
    counts = scores.groupby("mode")["case_id"].nunique()
    assert counts.to_dict() == {"before": 3, "independent": 3, "sequential": 2}
    assert not scores.duplicated(["method", "mode", "case_id", "form", "item"]).any()
    found = evaluation((run,), rule=Known(threshold=0.0))
    assert found.chains.groupby("mode")["edit"].nunique().to_dict() == {
        "independent": 3,
        "sequential": 2,
    }
    lost = scores[(scores["mode"] != "before") | (scores["case_id"] == 1)]
    with pytest.raises(ArchiveError, match="2 edits by rome, independent, have no scores"):
        evaluate_scores(lost.assign(model="m"), run.tables["chains"], estimator="exact")


def test_captions_name_the_extrapolated_coefficients_of_all_methods_published(
    tiny, tmp_path, publishing, monkeypatch
):
    named = replace(tiny("llama"), name="gemma3-270m")  # whose coefficients for ROME are another's
    into = Archive(tmp_path / "archive")
    captions = []
    for method in ("memit", "rome+app", "rect"):
        publishing(named, into, methods=[method], modes=["independent"])
        captions.append(caption(scores_of(into.runs(), "exact")))
    assert "preset tuned, float32" in captions[0]
    words = "preset tuned (APP's coefficients extrapolated: rome), float32"
    assert words in captions[1]
    assert words in captions[2]
    monkeypatch.setattr(publish, "evaluate", lambda *_, **__: pytest.fail("time is spent"))
    with pytest.raises(ArchiveError, match="preset 'tuned', now 'paper'"):
        publishing(named, into, methods=["rome"], preset="paper")


def given_up(update):
    return Update({}, {"failure": "non-finite loss"})


def not_finite(update):
    ((name, delta),) = update.items()
    return Update({name: LowRank(delta.left * float("nan"), delta.right)})


@pytest.mark.parametrize("spoilt", [given_up, not_finite])
def test_edits_that_cannot_be_scored_are_left_out(tiny, edits, tmp_path, monkeypatch, spoilt):
    class Failing(RandomEditor):
        def edit(self, requests):
            first, *others = super().edit(requests)
            return [spoilt(first), *others]

    monkeypatch.setattr(publish, "load_usable", lambda *_, **__: Usable(dict(enumerate(edits))))
    monkeypatch.setattr(publish, "load_aliases", lambda layout: {})
    monkeypatch.setattr(publish, "build_editor", lambda *a, **k: Failing(tiny("llama")))
    ways = {"modes": ["independent"], "estimators": ["exact", "sampled"], "max_new_tokens": 2}
    found = publish.evaluate(tiny("llama"), ["rome"], **ways, samples=1, store=tmp_path)
    for kind in ("exact", "sampled"):
        table = found.tables[kind]
        # Chunks of 1 and 2 edits: the first of each is spoilt.
        assert set(table.loc[table["mode"] == "independent", "case_id"]) == {3}
        assert set(table.loc[table["mode"] == "before", "case_id"]) == {1, 2, 3}
    made = {"model", "fingerprint", "dtype", "device", "layout", "preset", "corpus"}
    assert set(found.about.source) == made


def test_a_deep_edit_without_all_its_requests_is_given_up(run_of, tiny):
    class Failing(RandomEditor):
        def edit(self, requests):
            made = super().edit(requests)
            return [
                Update({}, {"failure": "non-finite loss"}) if self.calls == 2 else u for u in made
            ]

    run, editor = run_of(), Failing(tiny("llama"))
    run.after(editor, "deep")
    failures = run.read(editor, "deep", "edits").set_index("case_id")["failure"]
    assert sum(failures != "") == 1
    assert "requests failed, the first with: non-finite loss" in failures.max()


def test_methods_are_published_one_by_one(tiny, edits, tmp_path, monkeypatch):
    language_model = tiny("llama")
    monkeypatch.setattr(publish, "load_usable", lambda *_, **__: Usable(dict(enumerate(edits))))
    monkeypatch.setattr(publish, "load_aliases", lambda layout: {})
    monkeypatch.setattr(publish, "build_editor", lambda *a, **k: RandomEditor(language_model))
    archive, ways = Archive(tmp_path / "p"), {"modes": ["independent"], "store": tmp_path / "s"}
    for method in ("rome", "memit"):
        run = publish.evaluate(language_model, [method], **ways)
        archive.put(run.name, run.tables, run.about, by=["method", "mode"])
    stored = archive.get(run.name).tables
    assert set(stored["exact"]["method"]) == {"none", "rome", "memit"}
    keys = ["method", "mode", "case_id", "form", "item"]
    assert not stored["exact"].duplicated(keys).any()
    assert len(stored["edits"]) == len(edits)
    before = {path: path.read_bytes() for path in archive.root.rglob("*.*")}
    sampled = {**ways, "estimators": ["sampled"], "samples": 1, "max_new_tokens": 2}
    warm, cold = (
        publish.evaluate(language_model, ["rome"], **sampled, temperature=t) for t in (0.7, 1.0)
    )
    archive.put(run.name, warm.tables, warm.about, by=["method", "mode"])
    with pytest.raises(ArchiveError, match=r"sampled was made otherwise \(temperature 0\.7, now 1"):
        archive.put(run.name, cold.tables, cold.about, by=["method", "mode"])
    other = replace(run.about, source={**run.about.source, "layout": "latest"})
    with pytest.raises(ArchiveError, match="layout '2025-06', now 'latest'"):
        archive.put(run.name, run.tables, other, by=["method", "mode"])
    assert all(path.read_bytes() == before[path] for path in before if "about" not in path.name)


def test_what_is_finished_is_published_without_an_edit(tiny, edits, tmp_path, monkeypatch):
    editor = RandomEditor(tiny("llama"))
    monkeypatch.setattr(publish, "load_usable", lambda *_, **__: Usable(dict(enumerate(edits))))
    monkeypatch.setattr(publish, "load_aliases", lambda layout: {})
    monkeypatch.setattr(publish, "build_editor", lambda *a, **k: editor)
    ways = {"modes": ["independent"], "store": tmp_path}
    nothing = publish.evaluate(editor.language_model, ["rome"], **ways, finished=True)
    assert set(nothing.tables["exact"]["mode"]) == {"before"}
    publish.evaluate(editor.language_model, ["rome"], **ways, first=1)
    made = editor.calls
    found = publish.evaluate(editor.language_model, ["rome"], **ways, finished=True).tables["exact"]
    assert editor.calls == made
    assert found.groupby("mode")["case_id"].nunique().to_dict() == {
        "before": len(edits),
        "independent": 1,
    }


def test_responses_may_go_beyond_their_first_line(tiny, edits, tmp_path, monkeypatch):
    monkeypatch.setattr(publish, "load_usable", lambda *_, **__: Usable(dict(enumerate(edits))))
    monkeypatch.setattr(publish, "load_aliases", lambda layout: {})
    found = publish.evaluate(
        tiny("llama"),
        [],
        estimators=["sampled"],
        samples=1,
        first_line=False,
        max_new_tokens=3,
        store=tmp_path,
    ).about.settings["sampled"]
    (settings,) = (json.loads(path.read_text()) for path in tmp_path.rglob("settings.json"))
    assert (settings["sampling"]["stop"], settings["sampling"]["max_new_tokens"]) == (None, 3)
    assert found["max_new_tokens"] == 3
    assert not found["first_line"]


def test_known_means_first_of_its_kind_or_likely(exact_table):
    before = exact_table(
        (1, "fact", 0, -4.0, 2, -9.0, 3, -2.5),  # mean -2 beats -2.5 and -3: known
        (1, "fact", 1, -8.0, 2, np.nan, np.nan, -1.0),  # a rival is better, and unlikely: not known
        (1, "fact", 2, -4.0, 2, np.nan, np.nan, -0.5),  # a rival is better, but e^-2 > 0.05: known
        (1, "fact", 3, -9.0, 2, np.nan, np.nan, np.nan),  # nothing to compare with: not known
        (1, "fact", 4, -8.0, 2, np.nan, np.nan, -4.0),  # no better than a rival: not known
    )
    after = before.assign(
        original_sum=[-7.0, -8.0, -4.0, -9.0, -7.8],
        other_sum=[-3.0, np.nan, np.nan, np.nan, np.nan],
    )  # now the new object wins: mean -1 against -3.5
    facts = tables.exact_facts(before, after, rule=BY_MEAN)
    assert facts["known_before"].tolist() == [True, False, True, False, False]
    assert facts["known_after"].tolist() == [False, False, True, False, True]
    assert facts["before"][0] == pytest.approx(np.exp(-2))
    assert facts["new_after"][0] == pytest.approx(np.exp(-1))


def test_the_whole_probability_is_of_any_name_and_ranks_names_as_written(exact_table):
    scores = exact_table(
        (1, "fact", 0, -4.0, 4, -9.0, 3, -2.0, -5.0),  # best as a whole, though not token by token
        (1, "fact", 1, -4.0, 4, np.nan, np.nan, -0.5, -3.0),
        (1, "fact", 2, -2.9, 1, np.nan, np.nan, -0.5, -0.5),  # e^-2.9 > 0.05
    )
    scores["original_named"] = [-3.5, -4.0, -2.9]
    whole, mean = Known("named", top=True), BY_MEAN
    assert whole.probability(scores).tolist() == pytest.approx(np.exp([-3.5, -4.0, -2.9]))
    assert whole.of(scores).tolist() == [True, False, True]
    assert mean.of(scores).tolist() == [True, True, True]
    assert replace(whole, top=False).of(scores).tolist() == [False, False, True]
    assert replace(whole, top=False, threshold=0.03).of(scores).tolist() == [True, False, True]


def test_metrics_from_scores_by_hand(edits):
    chains = tables.chain_index(edits[:1])
    assert chains.values.tolist() == [[1, 0, 1, 0, True], [1, 1, 1, 1, True], [1, 1, 2, 2, False]]
    before = pd.DataFrame(
        {"case_id": 1, "item": [0, 1, 2], "hits": [5, 4, 2], "new_hits": 0, "n": 5}
    )
    after = before.assign(hits=[0, 4, 1], new_hits=[5, 0, 4])
    facts = tables.sampled_facts(before, after)
    steps = tables.steps_table(facts, chains)
    folded = metrics.chain_table(steps)
    assert folded["ratio"].tolist() == pytest.approx([0.0, 0.5])
    context = metrics.preservation_per_edit(tables.context_table(facts, chains))
    assert context["value"].tolist() == [0.5]
    new = tables.new_fact_chains(facts, chains)
    assert new["after"].tolist() == pytest.approx([1.0, 0.8 * 0.8])
    assert new["before"].tolist() == [0.0, 0.0]
    assert new["wins_before"].tolist() == [False, False]
    assert new["wins_after"].tolist() == [True, True]


def test_success_compares_in_the_right_direction(exact_table):
    scores = exact_table(
        (1, "edit", 0, -5.0, 1, -6.0, 2, np.nan),  # longer, but likelier token by token
        (1, "paraphrase", 0, -5.0, 1, -1.0, 1, np.nan),
        (1, "paraphrase", 1, -1.0, 1, -5.0, 1, np.nan),
        (1, "neighbour", 0, -1.0, 1, -5.0, 1, np.nan),
        (1, "neighbour", 1, -1.0, 1, -1.0, 1, np.nan),
    )
    values = tables.success(scores).set_index("metric")["value"].to_dict()
    assert values == {"efficacy": 1.0, "generalisation": 0.5, "specificity": 0.5}


def test_other_forms_are_probabilities(exact_table):
    before = exact_table(
        (1, "reverse", 0, -2.0, 2, np.nan, np.nan, np.nan),
        (1, "yes_no", 0, -1.0, 1, -1.0, 1, np.nan),
        (1, "fact", 0, -1.0, 1, -1.0, 1, np.nan),
    )
    forms = tables.other_forms(before, before).set_index("form")["before"]
    # The whole probability of a two-token answer, as for facts; not its mean over tokens.
    assert forms.to_dict() == pytest.approx({"reverse": np.exp(-2), "yes_no": 0.5})
