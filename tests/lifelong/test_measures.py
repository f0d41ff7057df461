"""Measures of tables made by hand: estimates, the collapse rule, first signs, and words made of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from helpers.lifelong import figures
from helpers.lifelong.measures import SIGNS, collapse, curve, ending, estimate, first_signs
from helpers.lifelong.tables import (
    at_once_and_now,
    control_table,
    first_order_rows,
    lifelong_table,
    on_top_change_table,
    on_top_table,
    so_what,
    stream_table,
    track_label,
)
from helpers.results.archive import About, Run
from helpers.results.statistics import paired, share_interval, unpaired_means
from helpers.results.text import in_points


def table(*rows: tuple[int, str, list[float]]) -> pd.DataFrame:
    tables = [
        pd.DataFrame(
            {"edits": edits, "measure": measure, "value": values, "item": range(len(values))}
        )
        for edits, measure, values in rows
    ]
    joint = pd.concat(tables, ignore_index=True)
    return joint.assign(unit=joint["item"])


def test_estimates_are_of_one_checkpoint():
    measures = table((10, "now", [1, 0, 1, 1]), (20, "now", [0, 0, 0, 1]))
    assert estimate(measures, "now", 10).mean == 0.75
    assert estimate(measures, "now", 20).n == 4
    assert np.isnan(estimate(measures, "now", 30).mean)
    assert curve(measures, "now")["mean"].to_dict() == {10: 0.75, 20: 0.25}


def test_retention_is_of_those_written_at_once():
    measures = table((10, "now", [1, 0, 1, 1]), (10, "made", [1, 1, 0, 1]))
    assert estimate(measures, "retention", 10).mean == pytest.approx(2 / 3)


def test_perplexity_is_a_ratio_and_norms_are_of_the_matrix_that_grew_most():
    measures = table((10, "text", [np.log(2), np.log(8)]), (10, "weights", [1.01, 1.5]))
    assert estimate(measures, "perplexity", 10).mean == pytest.approx(4)
    assert estimate(measures, "weights", 10).mean == 1.5


def test_a_window_without_a_number_is_an_infinite_loss():
    for missing in (np.nan, np.inf, -np.inf):
        once = table((10, "text", [0.1, missing, 0.1]))
        perplexity = estimate(once, "perplexity", 10)
        assert (perplexity.mean, perplexity.n) == (np.inf, 3)
        assert np.isnan([perplexity.low, perplexity.high]).all()
        assert first_signs(once) == {"perplexity": 10}
        twice = table((10, "text", [0.1, missing, 0.1]), (30, "text", [0.1, 0.1, missing]))
        assert collapse(twice) == 30


def test_intervals_are_by_unit():
    values = [1.0, 0.0] * 12
    alike = table((10, "now", values)).assign(unit=[n // 2 for n in range(24)])
    apart = table((10, "now", values))
    by_unit, by_item = (estimate(measures, "now", 10) for measures in (alike, apart))
    assert by_unit.high - by_unit.low != pytest.approx(by_item.high - by_item.low)


def test_single_items_are_no_relations():
    values = [1.0, 0.0] * 12
    single = table((10, "now", values), (10, "made", [1.0] * 24))
    expected = share_interval(values)
    assert estimate(single, "now", 10) == expected
    assert estimate(single, "retention", 10) == expected
    # Of units that repeat in the sample, but not among the requests once written.
    repeating = table((10, "now", values), (10, "made", [1.0, 1.0, 0.0] * 8))
    units = [n - n % 3 // 2 for n in range(24)] * 2
    written = [value for n, value in enumerate(values) if n % 3 < 2]
    assert estimate(repeating.assign(unit=units), "retention", 10) == share_interval(written)


def test_two_bad_checkpoints_in_a_row_are_a_collapse():
    bad, good = [np.log(200.0)], [0.1]
    once = table((1, "text", bad), (3, "text", good), (10, "text", bad))
    assert collapse(once) == 0
    assert ending(once) == ""
    twice = table((1, "text", good), (3, "text", bad), (10, "text", [np.inf]))
    assert collapse(twice) == 10
    assert ending(twice) == "collapsed at 10"
    assert collapse(table((3, "text", [np.nan]), (10, "text", [np.nan]))) == 10


def test_few_requests_are_no_collapse_and_many_are():
    few = table((1, "at once", [0.0]), (3, "at once", [0.0] * 3), (10, "at once", [0.0] * 10))
    assert collapse(few) == 0
    many = table((10, "at once", [0.0] * 10), (30, "at once", [0.0] * 30))
    assert collapse(many) == 30


def test_first_signs_are_next_to_the_unedited_model_where_it_matters():
    measures = table(
        (0, "exam", [1, 1, 1, 0]),  # 0.75; halfway to chance, 0.25, is 0.5
        (10, "exam", [1, 1, 1, 0, 0]),
        (20, "exam", [1, 1, 0, 0, 0]),
        *[(edits, "made", [1, 1, 1]) for edits in (10, 20)],
        (10, "now", [1, 1, 0]),
        (20, "now", [1, 0, 0]),
        (10, "weights", [1.05]),
        (20, "weights", [1.05]),
    )
    assert first_signs(measures) == {"weights": None, "retention": 20, "exam": 20}


def test_facts_that_cannot_be_measured_at_first_are_no_sign():
    few, later = (0, "own", [0.3, 0.3]), (10, "own", [0.3] * 4)
    assert first_signs(table(few, later, (10, "weights", [1.0]))) == {"weights": None}
    enough = (0, "own", [0.3] * 4)
    assert first_signs(table(enough, later)) == {"own": None}


@pytest.fixture
def run() -> Run:
    tables = {}
    for method, share in (("memit", 0), ("ultraedit", 1)):
        rows = [
            (edits, measure, [share, 1.0] * 6)
            for edits in (10, 30)
            for measure in ("at once", "made", "now", "generality", "free text", "locality", "exam")
        ]
        rows += [
            (edits, m, [0.3, 0.4, 0.5]) for edits in (0, 30) for m in ("AFF", "ANF", "IFR", "own")
        ]
        rows += [(edits, "ES", [1, 1, 0]) for edits in (0, 30)]
        rows += [(edits, "text", [0.1, 0.2]) for edits in (10, 30)]
        rows += [(edits, m, [1.2]) for edits in (10, 30) for m in ("weights", "bytes", "seconds")]
        stored = table(*rows).rename(columns={"edits": "case_id"})
        turns = 10 if method == "memit" else 1
        tables[f"measures: {method}, turns of {turns}, order 0"] = stored
    identity = {"model": "tiny", "dtype": "float32", "device": "cpu", "dataset": "recalled"}
    probes = {"peak_cf": 1, "peak_t": 1, "chains": 2, "known": 2, "tokens": 200, "exam": 4}
    caption = {"preset": "tuned", "known facts": 2}
    return Run("tiny_recalled", About({**identity, "probes": probes}, {}, caption), tables)


def test_words_are_made_of_the_tables(run):
    assert track_label("memit", "turns of 10, order 0") == "MEMIT in turns of 10"
    assert track_label("memit", "turns of 1, order 2") == "MEMIT, order 2"
    shown = so_what(run)
    ultraedit_given, memit_given = np.ones(12), np.array([0, 1] * 6)
    less = in_points(paired(ultraedit_given, memit_given, "share").difference, signed=True)
    assert shown.remembering == (
        "After 30 edits UltraEdit gives the most sampled requests, 100 %, and 100 % in other words.",
        f"MEMIT in turns of 10 gives 50 % ({less} points), and 50 % in other words.",
        "UltraEdit gives the most right after their turn, 100 %.",
    )
    assert shown.collapse == (
        "2 of 2 methods show a sign of collapse; for all of them ‖W‖/‖W₀‖ is the first."
    )
    assert shown.additivity == (
        "A further edit that succeeds in most records has an AFF of 40 % after 0, and of 40 % after 30 edits."
    )
    assert shown.sentences == [*shown.remembering, shown.collapse, shown.additivity]
    name = "measures: memit, turns of 10, order 0"
    memit = run.tables[name]
    is_failed = (memit["measure"] == "ES") & (memit["case_id"] == 30)
    of_failed = memit.assign(
        value=memit["value"].mask(is_failed | (memit["measure"] == "AFF"), 0.0)
    )
    assert lifelong_table(run).table.notna().any().all()  # no column is empty
    additivity = so_what(changed(run, memit=of_failed)).additivity
    assert additivity.endswith("of 0 to 40 % after 0, and of 40 % after 30 edits.")


def test_further_orders_are_in_the_table_and_not_in_figures_and_sentences(run):
    stored = run.tables["measures: ultraedit, turns of 1, order 0"]
    other_order = stored.assign(value=0.0)
    tables = {**run.tables, "measures: ultraedit, turns of 1, order 2": other_order}
    both_orders = Run(run.name, run.about, tables)
    labels = [track_label(method, mode) for method, mode, _ in first_order_rows(both_orders)]
    assert labels == ["MEMIT in turns of 10", "UltraEdit"]
    assert so_what(both_orders) == so_what(run)
    assert lifelong_table(both_orders).table["mode"].tolist()[-1] == "turns of 1, order 2"
    assert at_once_and_now(both_orders)[-1].startswith("UltraEdit, order 2: 0 % of its latest")


def test_a_control_is_compared_with_methods_of_its_turns_on_the_same_items():
    control = table((10, "now", [1] * 12), (20, "now", [1] * 12), (20, "locality", [1, 0] * 6))
    method = table(
        (10, "now", [1] * 12), (20, "now", [0] * 10 + [1, 1]), (20, "locality", [1, 0] * 6)
    )
    alone = table((20, "now", [0] * 12))
    tables = {
        "measures: memit-seq, turns of 10, order 0": control,
        "measures: memit, turns of 10, order 0": method,
        "measures: ultraedit, turns of 1, order 0": alone,
    }
    stored = {name: rows.rename(columns={"edits": "case_id"}) for name, rows in tables.items()}
    run = Run("tiny_recalled", About({}), stored)
    compared = control_table(run, "memit-seq").table.set_index("measure")
    assert set(compared["method"]) == {"MEMIT in turns of 10"}
    of_now = compared.loc["efficacy now"]
    expected = paired(np.ones(12), np.array([0] * 10 + [1, 1]), "share").difference
    assert of_now["minus MEMIT accumulated"] == in_points(expected, signed=True)
    assert (of_now["n"], of_now["Holm"]) == (12, "differs")
    assert compared.loc["locality", "Holm"] == "inconclusive"
    assert (
        control_table(run, "memit").table["method"].tolist()[0]
        == "MEMIT accumulated in turns of 10"
    )
    assert control_table(run, "alphaedit").table.empty
    assert control_table(run, "memit-seq", methods=["lora"]).table.empty
    named = control_table(run, "memit-seq", methods=["memit"]).table
    assert set(named["method"]) == {"MEMIT in turns of 10"}


def test_a_method_that_ended_early_is_compared_at_its_last_checkpoint():
    control = table((10, "now", [1] * 12), (30, "now", [0] * 12))
    ended = table((10, "now", [1] * 12))
    tables = {"memit-seq": control, "memit": ended}
    stored = {
        f"measures: {method}, turns of 10, order 0": rows.rename(columns={"edits": "case_id"})
        for method, rows in tables.items()
    }
    compared = control_table(Run("tiny_recalled", About({}), stored), "memit-seq").table
    of_now = compared.set_index("measure").loc["efficacy now"]
    assert (of_now["minus MEMIT accumulated"][:4], of_now["Holm"]) == ("+0.0", "inconclusive")


def test_two_streams_are_compared_at_their_last_common_checkpoint_without_pairs():
    of_first = table(
        (10, "now", [1] * 12),
        (30, "now", [1] * 9 + [0] * 3),
        (100, "now", [0] * 12),
        (30, "locality", [1]),
    )
    of_second = table((10, "now", [0] * 12), (30, "now", [1] * 3 + [0] * 9), (30, "locality", [1]))
    first, second = (
        Run(
            f"tiny_{name}",
            About({"dataset": name}),
            {
                f"measures: {method}, turns of 1, order 0": rows.rename(
                    columns={"edits": "case_id"}
                )
                for method in methods
            },
        )
        for name, rows, methods in (
            ("counterfact", of_first, ["ft-m", "mend"]),
            ("recalled", of_second, ["ultraedit", "ft-m"]),
        )
    )
    compared = stream_table(first, second).table.set_index("measure")
    assert set(compared["method"]) == {"FT-M"}
    assert set(compared["edits"]) == {30}
    of_now = compared.loc["efficacy now"]
    expected = unpaired_means([1] * 9 + [0] * 3, [1] * 3 + [0] * 9)
    assert of_now["difference"] == in_points(expected.difference, signed=True)
    assert of_now["p"] == f"{expected.p_value:.3f}"
    assert of_now["Holm"] == "differs"
    assert compared.loc["locality", "Holm"] == "inconclusive"


def without(stored: pd.DataFrame, measure: str) -> pd.DataFrame:
    return stored[stored["measure"] != measure]


def changed(run: Run, **tables: pd.DataFrame) -> Run:
    """The run with another table of MEMIT or of UltraEdit."""
    names = {name.split()[1].rstrip(","): name for name in run.tables}
    of_methods = {names[method]: stored for method, stored in tables.items()}
    return Run(run.name, run.about, {**run.tables, **of_methods})


def test_words_about_one_method_of_several_name_it(run):
    memit, ultraedit = run.tables.values()
    forgotten = memit.assign(value=memit["value"].where(memit["measure"] != "now", 0.0))
    forgotten = forgotten.assign(measure=forgotten["measure"].replace("made", "other"))
    mixed = changed(run, memit=forgotten, ultraedit=without(ultraedit, "weights"))
    shown = so_what(mixed)
    assert shown.remembering[0] == (
        "After 30 edits UltraEdit gives the most sampled requests, 100 %, and 100 % in other words."
    )
    assert (
        shown.collapse == "Only MEMIT in turns of 10 shows a sign of collapse, in ‖W‖/‖W₀‖ first."
    )
    both_lost = changed(mixed, ultraedit=ultraedit.assign(value=0.0))
    assert so_what(both_lost).remembering == (
        "After 30 edits no method gives a sampled request.",
        "MEMIT in turns of 10 gives 50 % right after their turn, and 0 % now.",
    )
    forgetful = ultraedit.assign(
        value=ultraedit["value"].where(ultraedit["measure"] != "now", 0.25)
    )
    less = in_points(
        paired(np.array([0, 1] * 6), np.full(12, 0.25), "share").difference, signed=True
    )
    assert so_what(changed(run, memit=memit, ultraedit=forgetful)).remembering == (
        "After 30 edits MEMIT in turns of 10 gives the most sampled requests, 50 %, and 50 % in other words.",
        f"UltraEdit gives 25 % ({less} points), and 100 % in other words.",
        "UltraEdit gives 100 % right after their turn, and 25 % now.",
    )
    as_many = changed(
        run, memit=memit.assign(value=memit["value"].mask(memit["measure"] == "at once", 1.0))
    )
    assert so_what(as_many).remembering[-1] == (
        "MEMIT in turns of 10 gives as many as UltraEdit right after their turn, 100 %, and 50 % now."
    )
    equal = changed(run, memit=ultraedit.assign(value=1.0), ultraedit=ultraedit)
    assert (
        so_what(equal)
        .remembering[0]
        .startswith("After 30 edits MEMIT in turns of 10 and UltraEdit give the most")
    )


def test_words_about_a_run_of_one_method_count_nothing(run):
    (name, *_) = run.tables
    stored = run.tables[name]
    alone = Run(run.name, run.about, {name: stored})
    shown = so_what(alone)
    assert shown.remembering == (
        "After 30 edits MEMIT in turns of 10 gives 50 % of the sampled requests, and 50 % of the latest right"
        " after their turn.",
    )
    assert shown.collapse == "MEMIT in turns of 10 shows a sign of collapse, in ‖W‖/‖W₀‖ first."
    lost = stored.assign(value=stored["value"].where(stored["measure"] != "now", 0.0))
    of_lost = so_what(Run(run.name, run.about, {name: lost}))
    assert of_lost.remembering[0].startswith(
        "After 30 edits MEMIT in turns of 10 gives 0 % of the sampled requests"
    )
    whole = Run(run.name, run.about, {name: without(stored, "weights")})
    assert so_what(whole).collapse == "No method shows a sign of collapse within 30 edits."


def test_a_method_that_was_stopped_without_a_sign_does_not_count(run):
    stored = without(run.tables["measures: ultraedit, turns of 1, order 0"], "weights")
    stopped = stored[stored["case_id"] <= 10]
    both = {f"measures: {name}, turns of 1, order 0": stopped for name in ("ft-bf", "ft-m")}
    shown = so_what(Run(run.name, run.about, {**run.tables, **both}))
    assert shown.collapse == (
        "2 of 2 methods that were asked after 30 edits show a sign of collapse; for all of them ‖W‖/‖W₀‖ is"
        " the first."
    )


def test_methods_that_break_differently_share_no_first_sign(run):
    memit, ultraedit = run.tables.values()
    lost = pd.DataFrame({"case_id": 10, "measure": "text", "value": [9.0], "item": 2, "unit": 2})
    broken = pd.concat([without(ultraedit, "weights"), lost])
    shown = so_what(changed(run, memit=memit, ultraedit=broken))
    assert shown.collapse == "2 of 2 methods show a sign of collapse; no two share the first."


def test_at_once_is_next_to_now(run):
    memit, ultraedit = run.tables.values()
    forgotten = memit.assign(value=memit["value"].where(memit["measure"] != "now", 0.25))
    assert at_once_and_now(changed(run, memit=forgotten, ultraedit=ultraedit)) == [
        "MEMIT in turns of 10: 50 % of its latest requests at once, 25 % of all now; the next token stays"
        " after 50 % of known facts",
        "UltraEdit: 100 % of its latest requests at once, 100 % of all now; the next token stays after 100 %"
        " of known facts",
    ]


def test_a_sign_that_another_one_accompanies_is_among_the_first(run):
    memit, ultraedit = run.tables.values()
    lost = pd.DataFrame({"case_id": 10, "measure": "text", "value": [9.0], "item": 2, "unit": 2})
    shown = so_what(changed(run, memit=memit, ultraedit=pd.concat([ultraedit, lost])))
    assert shown.collapse == (
        "2 of 2 methods show a sign of collapse; for all of them ‖W‖/‖W₀‖ is among the first."
    )


def test_signs_at_the_same_checkpoint_are_all_first(run):
    tables = {
        name: pd.concat(
            [
                stored,
                pd.DataFrame(
                    {"case_id": 10, "measure": "text", "value": [9.0], "item": 2, "unit": 2}
                ),
            ]
        )
        for name, stored in run.tables.items()
    }
    shown = so_what(Run(run.name, run.about, tables))
    assert shown.collapse == (
        "2 of 2 methods show a sign of collapse; for all of them ‖W‖/‖W₀‖ and perplexity ratio are the first."
    )


def test_an_infinite_perplexity_is_drawn_nowhere_and_shown(run):
    lost = run.tables["measures: memit, turns of 10, order 0"].copy()
    lost.loc[lost["measure"] == "text", "value"] = np.nan
    tables = {**run.tables, "measures: memit, turns of 10, order 0": lost}
    collapsed = Run(run.name, run.about, tables)
    plt.close(figures.survival(collapsed))
    assert lifelong_table(collapsed).table["perplexity ratio"].tolist()[0] == "inf"


def test_forgetting_by_age_counts_where_it_is_significant(run):
    name = "measures: memit, turns of 10, order 0"
    memit = run.tables[name]
    is_now = (memit["measure"] == "now") & (memit["case_id"] == 30)
    is_newer = memit["item"] > memit.loc[is_now, "item"].median()
    forgotten = memit.assign(value=memit["value"].where(~is_now, is_newer.astype(float)))
    for table_of_memit, count in ((memit.assign(value=1.0), 0), (forgotten, 1)):
        fig = figures.retention(changed(run, memit=table_of_memit))
        beginning = f"{count} of 2 methods give" if count else "No method gives"
        assert fig.get_suptitle().startswith(f"{beginning} significantly more")
        plt.close(fig)


def test_tables_have_a_row_for_each_method(run):
    shown = lifelong_table(run).table
    assert shown["method"].tolist() == ["MEMIT", "UltraEdit"]
    assert shown["mode"].tolist() == ["turns of 10, order 0", "turns of 1, order 0"]
    assert shown["edits"].tolist() == ["30", "30"]
    assert shown["efficacy now"].tolist()[1].startswith("100.0")
    assert on_top_table(run).table["edits"].tolist() == [0, 30, 0, 30]


def test_further_edits_are_compared_on_the_same_records():
    values = np.linspace(0.1, 0.6, 12)
    stored = table(
        (0, "AFF", list(values)), (30, "AFF", [*(values + 0.3), 0.9]), (30, "now", [1.0])
    ).rename(columns={"edits": "case_id"})
    few = Run("tiny", About({}), {"measures: memit, turns of 10, order 0": stored})
    (compared,) = on_top_change_table(few).table.to_dict("records")
    assert compared["AFF, change"].startswith("+30.0")
    assert (compared["n, AFF"], compared["Holm, AFF"]) == (12, "differs")
    assert "ANF, change" not in compared


@pytest.mark.parametrize(
    "draw",
    [figures.survival, figures.retention, figures.first_to_collapse, figures.on_top_of_many],
)
def test_figures_are_drawn(run, draw):
    fig = draw(run)
    labels = {text.get_text() for axes in fig.axes for text in axes.get_yticklabels()}
    labels |= {text.get_text() for legend in fig.legends for text in legend.get_texts()}
    labels |= {axes.get_title() for axes in fig.axes}
    assert {"MEMIT in turns of 10", "UltraEdit"} <= labels
    assert "\n" not in fig.get_supxlabel()
    plt.close(fig)


def test_the_figure_of_first_signs_has_a_number_in_every_cell_that_breaks(run):
    fig = figures.first_to_collapse(run)
    (axes,) = fig.axes
    cells = {text.get_position(): text.get_text() for text in axes.texts}
    column = [*SIGNS].index("weights")
    assert cells[column, 0] == cells[column, 1] == "10"
    assert cells[[*SIGNS].index("perplexity"), 0] == "–"
    plt.close(fig)


def test_one_checkpoint_is_drawn_too(run):
    tables = {name: stored[stored["case_id"].isin((0, 30))] for name, stored in run.tables.items()}
    plt.close(figures.survival(Run(run.name, run.about, tables)))


def test_age_is_counted_in_deciles(run):
    measures = table((100, "now", [0.0] * 50 + [1.0] * 50)).assign(item=range(1, 101))
    by_age = figures.by_age(measures, "now")
    assert by_age.index.tolist() == list(range(1, 11))
    assert by_age.tolist() == [0.0] * 5 + [1.0] * 5


def test_few_requests_are_fewer_parts_by_age():
    measures = table((30, "now", [0.0] * 10 + [1.0] * 20)).assign(item=range(1, 31))
    assert figures.by_age(measures, "now").to_dict() == {1: 0.0, 2: 1.0, 3: 1.0}
    few = table((3, "now", [0.0, 1.0, 1.0])).assign(item=range(1, 4))
    assert len(figures.by_age(few, "now")) == 1
