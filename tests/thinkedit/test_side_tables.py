"""Base rates, texts and sequences from score tables made by hand."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from helpers.results.archive import About, Archive
from helpers.results.figure import published
from helpers.thinkedit import figures as thinkedit_figures
from helpers.thinkedit import side_tables as side
from helpers.thinkedit.known import BY_MEAN
from helpers.thinkedit.stored_scores import evaluation


@pytest.fixture
def exact_rows(exact_table):
    def made(method: str, mode: str, *rows: tuple) -> pd.DataFrame:
        return exact_table(*rows).assign(model="m", method=method, mode=mode)

    return made


def edit_prompt(case_id: int, lead: float) -> tuple:
    return (case_id, "edit", 0, -3.0, 1, -3.0 + lead, 1, np.nan)


@pytest.fixture
def along(exact_rows) -> pd.DataFrame:
    return exact_rows("rome", "sequential", edit_prompt(1, 2.0), edit_prompt(2, 1.0))


@pytest.fixture
def scores(exact_rows) -> pd.DataFrame:
    before = exact_rows(
        "none",
        "before",
        (1, "fact", 0, -4.0, 2, np.nan, np.nan, -2.5),  # best of its kind
        (1, "fact", 1, -8.0, 2, np.nan, np.nan, -2.5),
        (1, "reverse", 0, np.log(0.06), 1, np.nan, np.nan, np.nan),
        (1, "reverse", 1, np.log(0.04), 1, np.nan, np.nan, np.nan),
        (1, "yes_no", 0, -1.0, 1, -2.0, 1, np.nan),
        edit_prompt(1, -1.0),
        edit_prompt(2, -1.0),
    )
    after = exact_rows("rome", "sequential", edit_prompt(1, -0.5), edit_prompt(2, 1.0))
    other = exact_rows("rome", "independent", edit_prompt(1, 9.0), edit_prompt(2, 9.0))
    return pd.concat([before, after, other], ignore_index=True)


def test_base_rates_count_what_the_unedited_model_answers(scores: pd.DataFrame) -> None:
    rates = side.base_rates(scores, rule=BY_MEAN).set_index("form")
    assert rates["prompts"].to_dict() == {"fact": 2, "reverse": 2, "yes_no": 1}
    assert rates["answered"].to_dict() == {"fact": 0.5, "reverse": 0.5, "yes_no": 1.0}
    assert rates.loc["fact", "probability"] == pytest.approx((np.exp(-2) + np.exp(-4)) / 2)


def test_response_rates_count_questions_and_responses() -> None:
    before = pd.DataFrame({"case_id": 1, "item": [0, 1], "hits": [3, 0], "new_hits": 0, "n": 5})
    before = before.assign(model="m", method="none", mode="before")
    after = before.assign(hits=5, method="rome", mode="independent")
    row = side.response_rates(pd.concat([before, after])).iloc[0]
    assert row.tolist() == ["m", 2, 0.5, 0.3]


def test_other_forms_are_averaged_by_method() -> None:
    def asked(method: str, mode: str, reverse: float, yes: float) -> pd.DataFrame:
        rows = [(1, "reverse", 0, reverse, reverse, None), (1, "yes_no", 0, yes, yes, -1.0)]
        names = ("original_sum", "original_named", "other_sum")
        table = pd.DataFrame(rows, columns=["case_id", "form", "item", *names])
        return table.assign(model="m", method=method, mode=mode)

    scores = pd.concat([asked("none", "before", -2.0, -1.0), asked("rome", "deep", -1.0, -9.0)])
    table = side.other_forms_table(scores, mode="deep").set_index("form")
    assert table["n"].tolist() == [1, 1]
    assert table.loc["reverse", ["before", "after"]].tolist() == pytest.approx(
        [np.exp(-2), np.exp(-1)]
    )
    assert table.loc["yes_no", "before"] == pytest.approx(0.5)
    assert table.loc["yes_no", "after"] < 0.001


def test_texts_stand_beside_those_of_the_unedited_model() -> None:
    rows = [("rome", "independent", 2.0), ("none", "before", 4.0), ("rome", "sequential", 9.0)]
    texts = pd.DataFrame(
        [
            (case, value + case, 2 * value, 0.5, "m", method, mode)
            for case in (0, 1)
            for method, mode, value in rows
        ],
        columns=[
            *("case_id", "fluency_averaged", "fluency_weighted_sum", "consistency"),
            *("model", "method", "mode"),
        ],
    )
    table = side.text_table(texts, mode="independent")
    assert table["method"].tolist() == ["none", "rome"]
    assert table["fluency"].tolist() == [4.5, 2.5]
    assert table["n"].tolist() == [2, 2]


def test_leads_right_after_and_at_the_end(along: pd.DataFrame, scores: pd.DataFrame) -> None:
    leads = side.sequence_leads(along, scores)
    assert leads[["place", "right after", "at the end"]].to_numpy().tolist() == [
        [1, 2.0, -0.5],
        [2, 1.0, 1.0],
    ]
    (axes,) = thinkedit_figures.sequence_lines(leads).axes
    assert axes.lines[1].get_ydata().tolist() == [-0.5, 1.0]
    plt.close("all")


def test_the_gallery_draws_what_is_stored(tmp_path, exact_rows, along, scores) -> None:
    chains = pd.DataFrame(
        [(1, 0, 1, 0, True), (1, 1, 1, 0, True), (1, 1, 2, 1, False)],
        columns=["case_id", "chain", "step", "item", "own"],
    )
    facts = scores[scores["form"] == "fact"]
    modes = ("sequential", "independent", "deep")
    every = [scores, *(facts.assign(method="rome", mode=mode) for mode in modes)]
    every.append(exact_rows("rome", "deep", edit_prompt(1, 3.0)))
    along = pd.concat([along, facts.assign(method="rome", mode="sequential")])
    tables = {"exact": pd.concat(every).drop(columns="model"), "chains": chains}
    tables["along"] = along.drop(columns="model")
    alone = {"06_paper_ifr_by_length", "06_reading", "06_recalled"}
    assert set(published(tmp_path, chapter="06")) == alone
    source = {"model": "m", "layout": "mini", "preset": "tuned", "dtype": "float32"}
    made = (f"exact: rome, {mode}" for mode in modes)
    settings = {part: {} for part in ("exact", "along", *made)}
    archive = Archive(tmp_path / "thinkedit")
    archive.put("m", tables, About({**source, "device": "cpu"}, settings))
    drawn = {name: entry.draw() for name, entry in published(tmp_path, chapter="06").items()}
    assert set(drawn) > {"06_sequence", "06_ckp"}
    assert not set(drawn) & {"06_app", "06_deep_edit", "06_sampled"}
    tables["exact"] = tables["exact"].assign(original_named=-0.5)  # known by the model's own rule
    archive.put("r", tables, About({**source, "layout": "recalled-m", "device": "cpu"}, settings))
    recalled = {name: entry.draw() for name, entry in published(tmp_path, chapter="06").items()}
    assert set(recalled) - set(drawn) == {
        "06_deep_edit",
        "06_definition_2",
        "06_recalled_methods_r",
    }
    every = {"06_sequence": "mini", "06_ckp": "mini", "06_deep_edit": "recalled-m"}
    for name, edits in every.items():
        words = recalled[name].get_suptitle() + " " + recalled[name].get_supxlabel()
        caption = " ".join(words.split())
        assert f"edits of {edits}, 2 edits, preset tuned" in caption
    found = evaluation((archive.get("m"),))
    assert set(found.recovery["mode"]) == {"sequential", "independent", "deep"}
    plt.close("all")
