"""Every scorer: what is asked, named and stored; batches; measures worked out by hand."""

from __future__ import annotations

import re
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from helpers.behaviour import agreement, figures, publish, scorers
from helpers.behaviour.figures import scorer_marks
from helpers.editing.contexts import ContextTemplates
from helpers.editing.rome import Rome
from helpers.peak.records import load_peak
from helpers.peak.run import PeakRun
from helpers.results.archive import Archive
from helpers.results.publish import publish_parts
from helpers.results.store import ResultsStore


@pytest.fixture
def record():
    lists = {"correct": ("Guinea", "Guinea-Bissau", "Côte d'Ivoire")}
    lists |= {"hard_false": ("Peru", "Papua New Guinea", "chad"), "random_false": ("opera", "Peru")}
    return replace(load_peak("peak-mini-cf", limit=1).records[0], target_new="Chad", **lists)


def test_texts_are_cut_at_a_sentence_and_name_answers(record):
    texts = {"in the U.S. and St. Lucia. It": "in the U.S. and St. Lucia", "3.5\nIt": "3.5"}
    assert [re.split(scorers.SENTENCE, text)[0] for text in texts] == [*texts.values()]
    named = scorers.named_answers
    assert named("Guinea, Chad and Guinea.", record) == [FIRST, TARGET]
    assert named("Guinea\u2011Bissau", record) == [SECOND]  # not Guinea as well
    assert named("Guinea-Conakry, Equatorial-Guinea", record) == []
    bissau = replace(record, subject="Guinea-Bissau")
    assert named("Guinea-Bissau borders Guinea", bissau) == [FIRST]
    assert named("Côte d\u2019Ivoire", record) == [("correct", 2)]
    text = "COTE D'IVOIRE, Peru; papua  new guinea"  # Peru is in two lists
    assert named(text, record) == [("correct", 2), HARD, ("hard", 1)]
    assert named("operas, chads", record) == []
    assert named("Lower Guinea", replace(record, subject="Lower Guinea")) == []


def test_every_answer_of_the_choice_has_every_letter_once(record):
    keys = scorers.scorer_questions(record)[1].query("role == 'choice'")
    orders = keys.groupby("prompt_index")["list"].agg(lambda names: "".join(n[0] for n in names))
    assert set(orders) == {"tch", "cht", "htc"}


@pytest.fixture
def asked(tiny, tmp_path):
    store, data = ResultsStore(tmp_path), load_peak("peak-mini-cf", limit=3)
    run = PeakRun(tiny("llama"), data, store, chunk=3)
    return scorers.Scorers(run, samples=2, sampling=replace(scorers.SAMPLED, max_new_tokens=8))


@pytest.fixture
def editor(tiny, rome_settings):
    return Rome(tiny("llama"), rome_settings, ContextTemplates((("{}",),)))


def test_batched_equals_one_by_one_and_is_stored(asked, editor, tmp_path, monkeypatch):
    scores, named = asked.scores(editor), asked.named(editor)
    alone = {"store": ResultsStore(tmp_path / "alone"), "chunk": 1}
    one_by_one = replace(asked, run=replace(asked.run, **alone))
    pd.testing.assert_frame_equal(one_by_one.named(editor), named)
    pd.testing.assert_frame_equal(one_by_one.scores(editor), scores, rtol=1e-4)
    monkeypatch.setattr(scorers, "sample_responses", None)  # anything sampled again would fail
    pd.testing.assert_frame_equal(asked.named(editor), named)


def test_the_key_has_the_wordings_and_the_sampling(asked, monkeypatch):
    ways = (asked, asked.second_draw(), replace(asked, samples=3))
    folders = [way.evaluation().results.folder for way in ways]
    monkeypatch.setitem(scorers.WORDINGS, "yes", "{prompt} {0}?")
    assert len({*folders, asked.evaluation().results.folder}) == 4


def named(*responses):
    named = [(i, *p) for i, places in enumerate(responses) for p in places or [scorers.NOTHING]]
    rows = [(7, "free", *each) for each in named]
    return pd.DataFrame(rows, columns=scorers.NAMED)


SAMPLES = {"samples": 2, "preset": "tuned", "seed": 0}
TARGET, FIRST, SECOND, HARD = ("target", 0), ("correct", 0), ("correct", 1), ("hard", 0)


def test_lists_in_text_by_hand():
    before = named([SECOND], [FIRST], [FIRST, ("correct", 2)], [HARD])
    after = named([HARD], [FIRST, ("hard", 1)], [HARD], [("hard", 2), TARGET])
    assert agreement.lists_in_text(before, after).loc[7].tolist() == [1 / 2, 2, 1]
    assert np.isnan(agreement.lists_in_text(named([], []), after).loc[7, "recall"])


def test_successes_by_hand():
    keys = [("edit", 0, name, 0) for name in ("target", "correct", "hard", "random")]
    keys += [("choice", turn, name, 0) for turn in range(3) for name in scorers.CHOICE]
    keys += [(role, 0, name, 0) for role in ("yes", "negated") for name in ("yes", "no")]
    table = pd.DataFrame(keys, columns=["role", "prompt_index", "list", "answer_index"])
    before = [-3.0, -1, -2, -2, *[-1] * 13]
    after = [-1.0, -2, -3, -3, *(-1, -2, -2), *(-2, -1, -2), *(-1, -2, -2), *(-1, -2, -1, -2)]
    scores = table.assign(case_id=7, tokens=4, sum_before=before, sum_after=after, top_after=3)
    found = agreement.successes(scores, named([TARGET], [TARGET], [])).loc[7]
    assert found[["ES", "tokens", "yes", "negated"]].tolist() == [1, 3 / 4, 1, 0]
    assert found[["choice", "free, sampled"]].tolist() == pytest.approx([2 / 3, 1 / 2])


def test_methods_change_places_only_where_both_intervals_exclude_zero():
    levels = np.random.default_rng(0).uniform(0.4, 0.6, size=60)
    first = pd.DataFrame({"GS": levels + 0.3, "tokens": levels - 0.3, "choice": levels + 0.01})
    second = pd.DataFrame(dict.fromkeys(first, levels[::-1]))
    found = agreement.agreement({"A": first, "B": second}).table
    assert found["opposite"].tolist() == ["A / B", "none", "none"]


def test_where_no_correlation_is_tested_none_is_detectable():
    relations = pd.MultiIndex.from_product([range(6), ["A", "B"]], names=["case_id", "relation"])
    numbers = pd.Series(range(12), relations, dtype=float)  # of two relations: too few
    table = pd.DataFrame(dict.fromkeys(("AFF_hard", "ANF_hard", "recall", "new_hard"), numbers))
    found = agreement.prediction_table({"unedited": 0 * table, "ROME": table}).table
    assert found[["detectable", "Holm"]].to_numpy().tolist() == 2 * [["–", "–"]]


def test_the_mark_with_app_is_hollow_below_the_plain_one_and_a_state_without_a_scorer_has_none():
    plain = pd.DataFrame({"ES": [0.0, 1.0], "free, greedy": [0.0, 1.0]})
    with_app = pd.DataFrame({"ES": [0.0, 0.0], "free, greedy": [1.0, 1.0]})
    states = {"unedited": plain[["ES"]], "ROME": plain, "ROME+APP": with_app}
    _, panels = plt.subplots(1, 2)
    for axes, scorer in zip(panels, ("ES", "free, greedy"), strict=True):
        figures._draw_scorer(axes, scorer, ["unedited", "ROME"], states)
    marks = [[line for line in axes.lines if line.get_marker() in "ov"] for axes in panels]
    heights = [[line.get_ydata()[0] for line in marks_of_panel] for marks_of_panel in marks]
    assert heights == [[1.15, 0.15, -0.15], [0.15, -0.15]]
    means = [[line.get_xdata()[0] for line in marks_of_panel] for marks_of_panel in marks]
    assert means == [[50, 50, 0], [50, 100]]
    hollow = [[line.get_mfc() == "white" for line in marks_of_panel] for marks_of_panel in marks]
    assert hollow == [[False, False, True], [False, True]]


def test_the_cost_in_text_is_compared_with_the_cost_by_probability():
    """Of ten records ES loses nothing and free text everything; an eleventh has no ES."""
    index = pd.Index(range(11), name="case_id")
    shown = dict.fromkeys(agreement.SCORERS, 1.0)
    plain = pd.DataFrame(shown, index)
    with_app = plain.assign(**{"free, greedy": 0.0})
    plain.loc[10, "ES"] = np.nan
    contrast = agreement.text_against_probability({"ROME": plain, "ROME+APP": with_app})
    assert (contrast.difference.mean, contrast.difference.n) == (1.0, 10)
    assert contrast.p_value < 0.01
    none = agreement.text_against_probability({"ROME": plain, "ROME+APP": plain})
    assert (none.difference.mean, none.p_value) == (0.0, 1.0)


def test_every_scorer_is_published_and_drawn(asked, editor, tmp_path, monkeypatch):
    monkeypatch.setattr(publish, "peak_run", lambda _: asked.run)
    monkeypatch.setattr(publish, "editors_of", lambda *_: {"rome+app": editor})
    made = publish.publication({"scorers": ["rome+app"], **SAMPLES})
    publish_parts(made, into := Archive(tmp_path / "published"))
    states = agreement.by_state(stored := into.runs()[0])
    assert (
        len(agreement.scorer_table(states).table.columns) == len(agreement.SCORERS) - 2
    )  # no chat
    for table in (agreement.list_table(states), agreement.prediction_table(states)):
        assert len(table.table) == 2
    assert "Success under four scorers" in scorer_marks(stored).get_suptitle()
    stored.tables.data[agreement.named_table("rome+app")] = stored.tables.data[
        agreement.named_table("unedited")
    ]
    unchanged = agreement.list_table(agreement.by_state(stored)).table.loc["ROME+APP"]
    assert (
        unchanged[agreement.LIST_TITLES["new_hard_change"]] == "+0.00"
    )  # for all that sampling changes
