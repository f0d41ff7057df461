"""Scores under edits, resuming, and publishing: on a tiny random model."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from helpers import UserError
from helpers.editing.editor import Editor
from helpers.editing.interventions import LowRank
from helpers.editing.moments import SecondMoment
from helpers.editing.presets import Hyperparameters
from helpers.editing.weight_edit import WeightEdit, apply
from helpers.editing.without_key import without_subject_keys
from helpers.params import defaults_of
from helpers.paths import NOTEBOOKS
from helpers.results.archive import Archive, ArchiveError
from helpers.results.publish import publish_parts
from helpers.results.store import ResultsStore, settings_key
from helpers.scoring.answers import Question, exclusive, score_answers
from helpers.scoring.naming import fold, log_naming, starts
from helpers.scoring.responses import Sampling, sample_responses
from helpers.thinkedit import publish
from helpers.thinkedit.metrics import Known
from helpers.thinkedit.modes import (
    MODES,
    SEQUENCES,
    WHITENED,
    WITHOUT_KEY,
    WITHOUT_OTHER_KEY,
)
from helpers.thinkedit.probes import kinds_of, probes_of, request_of
from helpers.thinkedit.run import ThinkEditRun
from helpers.thinkedit.scores import ESTIMATORS, exact_scores, sampled_scores, text_scores
from helpers.thinkedit.tables import terms_of_runs


class RandomEditor(Editor):
    """Adds a random rank-one delta that depends on the request; counts how often it edits."""

    name = "random"
    app = None
    hyperparameters = Hyperparameters()

    def __init__(self, lm, scale=0.3, spoil=None):
        self.lm = lm
        self.scale = scale
        self.spoil = spoil  # what becomes of a call's first update
        self.calls = 0

    def edit(self, requests):
        self.calls += 1
        layout = self.lm.layout
        updates = []
        for request in requests:
            generator = torch.Generator().manual_seed(len(request.text) + ord(request.target[0]))
            left = torch.randn(layout.hidden_size, 1, generator=generator) * self.scale
            right = torch.randn(layout.intermediate_size, 1, generator=generator) * self.scale
            updates.append(WeightEdit({layout.mlp_out(1): LowRank(left, right)}))
        return [self.spoil(updates[0]), *updates[1:]] if self.spoil else updates


@pytest.fixture
def run_of(tiny, edits, tmp_path):
    def made(**changes):
        options = {"store": ResultsStore(tmp_path), "chunk": 2, **changes}
        chosen = options.pop("edits", edits)
        return ThinkEditRun(tiny("llama"), chosen, edits, {}, **options)

    return made


def test_exact_scores_are_those_of_score_answers_under_each_edit(tiny, edits):
    lm = tiny("llama")
    kinds = kinds_of(edits)
    probes = [probe for edit in edits for probe in probes_of(edit, edits, kinds)]
    updates = RandomEditor(lm).edit([request_of(edit, {}) for edit in edits])
    owners = [edits.index(next(e for e in edits if e.case_id == p.case_id)) for p in probes]
    table = exact_scores(lm, probes, {}, updates, owners)
    for index in (0, 5, len(probes) - 1):
        probe = probes[index]
        answers = (probe.original, *([probe.other] if probe.other else []), *probe.rivals)
        with apply(lm, updates[owners[index]]):
            plain = score_answers(lm, [Question(probe.prompt, answers)])
        row = table.iloc[index]
        assert row["original_sum"] == pytest.approx(plain["sum"][0], abs=1e-4)
        assert np.isnan(row["other_sum"]) == (probe.other is None)
        if probe.rivals:
            best = plain["mean"][len(plain) - len(probe.rivals) :].max()
            assert row["rival"] == pytest.approx(best, abs=1e-4)


def test_exact_scores_add_up_the_accepted_names(tiny, edits):
    lm = tiny("llama")
    probes = probes_of(edits[0], edits, kinds_of(edits))
    aliases = {"rome": ("Roma", "Rome, Italy"), "oslo": ("Kristiania",)}
    plain, more = (exact_scores(lm, probes, names) for names in ({}, aliases))
    same = ["original_sum", "other_sum", "rival", "rival_sum"]
    assert np.allclose(plain[same], more[same], atol=1e-4, equal_nan=True)
    assert np.allclose(plain["original_named"], plain["original_sum"])
    names = Question(probes[0].prompt, ("Rome", "Roma", "Oslo", "Kristiania"))
    sums = score_answers(lm, [names])["sum"]
    assert more["original_named"][0] == pytest.approx(np.logaddexp(sums[0], sums[1]), abs=1e-4)
    assert more["other_named"][0] == pytest.approx(np.logaddexp(sums[2], sums[3]), abs=1e-4)


def test_exact_is_the_share_of_responses_that_begin_so(word_model):
    """Within the sampling error of 1,000 responses, by one name, several, and names of two words."""
    prompt, n = "w1 w2 w3", 1_000
    drawn = Sampling(temperature=1.0, max_new_tokens=3, chat=False)
    (texts,) = sample_responses(word_model, [prompt], n=n, sampling=drawn)
    common = [" ".join(text.split()[:2]) for text in texts]
    pair = max(set(common), key=common.count)
    for names in (("w5",), ("w5", "w9", "w11"), (pair,), (pair, "w5", "w5 w6")):
        sums = score_answers(word_model, [Question(prompt, names)])["sum"].to_numpy()
        exact = np.exp(log_naming(sums[exclusive(word_model, names)]))
        assert exact > 1e-3
        begun = [any(0 in starts(fold(t), name) for name in names) for t in texts]
        assert abs(np.mean(begun) - exact) / np.sqrt(exact * (1 - exact) / n) < 4


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
    assert set(run.evaluation(editor, mode).read("edits")["failure"]) == {""}


def asking(edit, kind):
    """An edit whose own question asks for another kind of object."""
    direct, *others = edit.chains
    fact = replace(direct.facts[0], question=f"Which {kind} does {edit.subject} live in?")
    return replace(edit, chains=(replace(direct, facts=(fact,)), *others))


def test_a_placebo_is_the_edit_of_another_record(run_of, tiny, edits):
    pair = [edits[0], asking(edits[1], "country")]
    run = run_of(edits=pair)
    editor = RandomEditor(tiny("llama"))
    assert [run.foreign[edit.case_id] for edit in pair] == pair[::-1]
    table = run.after(editor, "placebo")
    (update,) = editor.edit([request_of(pair[1], run.kinds)])
    probes = probes_of(pair[0], edits, run.kinds)
    wanted = exact_scores(tiny("llama"), probes, {}, [update], [0] * len(probes))
    mine = table[table["case_id"] == 1].reset_index(drop=True)
    pd.testing.assert_frame_equal(mine, wanted, atol=1e-4)
    calls = editor.calls
    run.after(editor, "placebo")
    assert editor.calls == calls
    other = replace(pair[1], new="Turin")  # the update that the first record is scored under
    run_of(edits=[pair[0], other]).after(editor, "placebo")
    assert editor.calls == calls + 2


def test_an_edit_without_a_key_is_scored_without_what_it_does_there(run_of, tiny, edits):
    lm, editor = tiny("llama"), RandomEditor(tiny("llama"))
    pair = [edits[0], asking(edits[1], "country")]
    run = run_of(edits=pair)
    request, foreign_request = (request_of(edit, run.kinds) for edit in pair)
    (update,) = editor.edit([request])
    for mode, of_key in ((WITHOUT_KEY, request), (WITHOUT_OTHER_KEY, foreign_request)):
        table = run.after(editor, mode)
        mine = table[table["case_id"] == 1].reset_index(drop=True)
        probes = probes_of(pair[0], edits, run.kinds)
        changed = without_subject_keys(lm, [update], [of_key])
        wanted = exact_scores(lm, probes, {}, changed, [0] * len(probes))
        pd.testing.assert_frame_equal(mine, wanted, atol=1e-4)
    whole = run.after(editor, "independent")
    assert not np.allclose(whole["original_sum"], table["original_sum"], atol=1e-3)


def test_keys_are_whitened_by_the_models_own_second_moments(run_of, tiny, edits, monkeypatch):
    """Where C is the identity, C⁻¹k is k."""
    editor = RandomEditor(tiny("llama"))
    run = run_of(edits=edits[:1], corpus="self-8x16")
    asked_of = []

    def moments_of(lm, layers, corpus):
        asked_of.append((list(layers), corpus.name))
        identity = torch.eye(lm.layout.intermediate_size)
        return {layer: SecondMoment(identity, 9, layer, "", "") for layer in layers}

    monkeypatch.setattr("helpers.thinkedit.run.second_moments", moments_of)
    table = run.after(editor, WHITENED)
    assert asked_of == [([1], "self-8x16-seed0")]
    pd.testing.assert_frame_equal(table, run.after(editor, WITHOUT_KEY), atol=1e-4)


def test_independent_runs_resume_where_they_stopped(run_of, tiny, edits):
    editor = RandomEditor(tiny("llama"))
    run_of(edits=edits[:2]).after(editor, "independent")
    made = editor.calls
    whole = run_of().after(editor, "independent")
    assert editor.calls == made + 1
    assert set(whole["case_id"]) == {1, 2, 3}


def test_sequential_edits_accumulate(run_of, tiny, edits):
    """The end of a sequence is under all of its edits; the first of a sequence is alone."""
    editor = RandomEditor(tiny("llama"))
    end, alone = (run_of().after(editor, mode) for mode in ("sequential", "independent"))
    first = run_of(edits=edits[:1]).after(editor, "sequential")
    sums = [table[table["case_id"] == 1]["original_sum"] for table in (end, alone, first)]
    assert not np.allclose(sums[0], sums[1], atol=1e-3)
    assert np.allclose(sums[1], sums[2], atol=1e-4)


def test_a_further_order_is_the_sequence_of_the_same_edits_in_that_order(run_of, tiny, edits):
    """Only the order in which edits are made differs; the set's own order keeps its key."""

    class Growing(RandomEditor):
        def edit(self, requests):
            self.scale += 0.1  # later edits are larger, so that their order matters
            return super().edit(requests)

    run = run_of()
    order = run.in_order("sequential 2", edits)
    assert [edit.case_id for edit in order] != [1, 2, 3]
    assert run.in_order("sequential", edits) == list(edits)
    assert run.mode("sequential").settings == {"sequence": [1, 2, 3]}
    drawn_order = [edit.case_id for edit in order]
    assert run.mode("sequential 2").settings == {"sequence": drawn_order}
    drawn = run.after(Growing(tiny("llama")), "sequential 2")
    first = run.after(Growing(tiny("llama")), "sequential")
    given = run_of(edits=order).after(Growing(tiny("llama")), "sequential")
    pd.testing.assert_frame_equal(drawn, given, atol=1e-5)
    assert not np.allclose(drawn["original_sum"], first["original_sum"], atol=1e-3)


def test_sampled_scores_count_mentions(tiny, monkeypatch, edits):
    replies = {"In which town does Ada live?": ["It is ROME.", "Oslo!", "romeo", "Roma", "-"]}
    monkeypatch.setattr(
        "helpers.thinkedit.scores.sample_responses",
        lambda model, prompts, *a, n, **k: [
            next((v for q, v in replies.items() if q in prompt), ["x"] * n) for prompt in prompts
        ],
    )
    one, aliases = edits[:1], {"rome": ("Roma",)}
    table = sampled_scores(tiny("llama"), one, aliases, n=5, sampling=Sampling())
    assert table.iloc[0].tolist() == [1, 0, 2, 1, 5]
    assert table["hits"].tolist() == [2, 0, 0]


def test_runs_of_the_other_estimators(run_of, tiny, tmp_path):
    run = run_of(estimator="sampled", samples=2, sampling=Sampling(max_new_tokens=4))
    table = run.after(RandomEditor(tiny("llama")), "independent")
    assert (table["n"] == 2).all()
    assert len(table) == len(run.before()) == 9
    one_by_one = run_of(estimator="texts", samples=1, chunk=1).before()
    assert one_by_one["consistency"].between(0, 1).all()
    others = {"samples": 1, "chunk": 3, "store": ResultsStore(tmp_path / "other")}
    pd.testing.assert_frame_equal(one_by_one, run_of(estimator="texts", **others).before())


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


def test_other_ways_to_ask_have_other_results(run_of, tiny, edits):
    run = run_of(estimator="sampled")
    changes = (
        {},
        {"aliases": {"rome": ("Roma",)}},
        {"samples": 4},
        {"sampling": Sampling(temperature=0.1)},
        {"layout": "latest"},
        {"universe": [replace(edits[0], new="Turin"), *edits[1:]]},
        {"lm": tiny("llama", 1)},
        *({"estimator": estimator} for estimator in ("exact", "texts")),
    )
    keys = {settings_key(replace(run, **change).evaluation().source) for change in changes}
    assert len(keys) == len(changes)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_mode_has_results_of_its_own(run_of, tiny, edits, estimator):
    """By mode and editor; by the seed where it draws; by all edits where rows depend on them all."""
    editor = RandomEditor(tiny("llama"))
    run = run_of(estimator=estimator)

    def keys(run, modes=MODES, editor=editor):
        return [settings_key(run.evaluation(editor, mode).settings) for mode in modes]

    other_editor = RandomEditor(tiny("llama"))
    other_editor.name = "other"
    everything = [
        settings_key(run.evaluation().settings),
        *keys(run),
        *keys(run, editor=other_editor),
    ]
    assert len(set(everything)) == 1 + 2 * len(MODES)
    other_seed = dict(zip(MODES, keys(replace(run, seed=1)), strict=True))
    changed = {mode for mode, key in other_seed.items() if key not in keys(run)}
    by_seed = {"deep", "placebo", WHITENED, WITHOUT_OTHER_KEY}
    assert by_seed <= changed <= {*by_seed, *SEQUENCES[1:]}
    fewer = dict(zip(MODES, keys(replace(run, edits=edits[:2])), strict=True))
    assert {mode for mode, key in fewer.items() if key not in keys(run)} == set(SEQUENCES)
    layout = dict(zip(MODES, keys(replace(run, layout="latest")), strict=True))
    by_set = MODES if estimator == "texts" else ("deep", *SEQUENCES)
    assert {mode for mode, key in layout.items() if key not in keys(run)} == set(by_set)


def test_unknown_names_and_edits_that_cannot_be_asked_are_refused(run_of, tiny, edits):
    editor = RandomEditor(tiny("llama"))
    with pytest.raises(UserError, match="none of independent, sequential, sequential 2"):
        run_of().after(editor, "parallel")
    for prompt in ("{} " + "word " * 3000, "{} lives in "):  # overlong, or ends in a blank
        wrong = replace(edits[1], prompt=prompt)
        with pytest.raises(UserError, match=r"case_id 2: .*nothing was edited yet"):
            run_of(edits=[edits[0], wrong]).after(editor, "independent")
    assert editor.calls == 0


def given_up(update):
    return WeightEdit({}, {"failure": "non-finite loss"})


def not_finite(update):
    ((name, delta),) = update.items()
    return WeightEdit({name: LowRank(delta.left * float("nan"), delta.right)})


def test_a_deep_edit_without_all_its_requests_is_given_up(run_of, tiny, monkeypatch):
    editor = RandomEditor(tiny("llama"), spoil=lambda u: given_up(u) if editor.calls == 2 else u)
    run = run_of()
    run.after(editor, "deep")
    failures = run.evaluation(editor, "deep").read("edits").set_index("case_id")["failure"]
    assert sum(failures != "") == 1
    assert "requests failed, the first with: non-finite loss" in failures.max()


@pytest.fixture
def publishing(tiny, edits, tmp_path, monkeypatch):
    """Publish edits of an editor into an archive, by parameters of notebook 06."""
    defaults = defaults_of(NOTEBOOKS / "06_thinkedit_case_study.ipynb")
    into = Archive(tmp_path / "archive")
    monkeypatch.setattr(publish, "RUNS", tmp_path)
    monkeypatch.setattr(publish, "load_edited_graphs", lambda layout: edits)
    monkeypatch.setattr(publish, "load_aliases", lambda layout: {})

    def published(editor, *, from_store_only=False, **given):
        monkeypatch.setattr(publish, "load_named", lambda *_, **__: editor.lm)
        monkeypatch.setattr(publish, "build_editor", lambda *a, **k: editor)
        asked = {
            **defaults,
            "rivals": False,
            "methods": ["rome"],
            "modes": ["independent"],
            **given,
        }
        publish_parts(publish.publication(asked), into, from_store_only=from_store_only)
        return into.runs()[0]

    return published


def test_every_estimator_looks_at_the_same_edits_and_what_is_published_stays(tiny, publishing):
    editor = RandomEditor(tiny("llama"))
    ways = {"modes": ["sequential", "independent"], "estimators": ["exact", "texts"], "samples": 1}
    run = publishing(editor, **ways)
    assert editor.calls == 3 + 2  # in sequence, and in chunks of 1 and 2; texts make no edit again
    assert run.kinds == ["exact", "texts", "chains"]
    assert run.about.caption["preset"].startswith("tuned")
    assert set(run.joined("texts")["mode"]) == {"before", "sequential", "independent"}
    assert "samples" in run.about.settings["texts: rome, independent"]
    assert "samples" not in run.about.settings["exact: rome, independent"]
    again = publishing(editor, **ways)
    assert editor.calls == 3 + 2
    pd.testing.assert_frame_equal(again.joined("exact"), run.joined("exact"))
    more = publishing(editor, methods=["memit"], modes=["independent"])
    assert set(more.joined("exact")["method"]) == {"none", "rome", "memit"}
    with pytest.raises(ArchiveError, match="preset 'tuned', now 'paper'"):
        publishing(editor, preset="paper")


def test_publishing_fewer_edits_keeps_what_more_are_compared_with(tiny, publishing):
    editor = RandomEditor(tiny("llama"))
    publishing(editor)
    run = publishing(editor, modes=["sequential"], first=2)
    counts = run.joined("exact").groupby("mode")["case_id"].nunique()
    assert counts.to_dict() == {"before": 3, "independent": 3, "sequential": 2}
    found = terms_of_runs((run,), rule=Known(threshold=0.0))
    edits = found.groupby("mode")["edit"].nunique()
    assert edits.to_dict() == {"independent": 3, "sequential": 2}


def test_placebos_make_no_edit_again(tiny, publishing, edits, monkeypatch):
    editor = RandomEditor(tiny("llama"))
    with pytest.raises(UserError, match="case_id 1: no edit of another relation"):
        publishing(editor, modes=["placebo"])
    kinds = ("town", "country", "street")
    asked = [asking(edit, kind) for edit, kind in zip(edits, kinds, strict=True)]
    monkeypatch.setattr(publish, "load_edited_graphs", lambda layout: asked)
    run = publishing(editor, modes=["independent", "placebo"])
    assert editor.calls == 2  # the chunks of the edits themselves
    assert set(run.joined("exact")["mode"]) == {"before", "independent", "placebo"}
    assert terms_of_runs((run,), rule=Known(threshold=0.0)).query("mode == 'placebo'").size


def test_where_responses_are_drawn_the_unedited_model_is_drawn_twice(tiny, publishing):
    ways = {"estimators": ["exact", "sampled"], "samples": 1, "max_new_tokens": 2}
    run = publishing(RandomEditor(tiny("llama")), modes=[], **ways)
    settings = run.about.settings
    assert settings["sampled: none, again"]["seed"] == settings["sampled: none, before"]["seed"] + 1
    assert len(run.tables["sampled: none, again"]) == len(run.tables["sampled: none, before"])
    assert "exact: none, again" not in run.tables


def test_what_is_finished_is_published_without_an_edit(tiny, publishing):
    editor = RandomEditor(tiny("llama"))
    run = publishing(editor, from_store_only=True)
    assert set(run.joined("exact")["mode"]) == {"before"}
    publishing(editor, first=1)
    made = editor.calls
    run = publishing(editor, from_store_only=True)
    assert editor.calls == made
    assert run.tables["exact: rome, independent"]["case_id"].nunique() == 1


@pytest.mark.parametrize("spoilt", [given_up, not_finite])
def test_edits_that_cannot_be_scored_are_left_out(tiny, publishing, spoilt):
    editor = RandomEditor(tiny("llama"), spoil=spoilt)
    run = publishing(editor, estimators=["exact", "sampled"], max_new_tokens=2, samples=1)
    for kind in ("exact", "sampled"):  # chunks of 1 and 2 edits: the first of each is spoilt
        assert set(run.tables[f"{kind}: rome, independent"]["case_id"]) == {3}
        assert set(run.tables[f"{kind}: none, before"]["case_id"]) == {1, 2, 3}


def test_responses_may_go_beyond_their_first_line(tiny, publishing):
    how = {"estimators": ["sampled"], "samples": 1, "first_line": False, "max_new_tokens": 3}
    run = publishing(RandomEditor(tiny("llama")), modes=[], **how)
    made = run.about.settings["sampled: none, before"]
    assert (made["first_line"], made["max_new_tokens"]) == (False, 3)
