"""The comparison of editors: rows gathered from stored tables made by hand, tables, the front, params."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from helpers.comparison import measures
from helpers.comparison.figures import FRONTS, front_panels
from helpers.comparison.measures import (
    CPU_SECONDS,
    EDIT_BYTES,
    NAMING,
    RowKey,
    in_order,
    stored_rows,
)
from helpers.comparison.params import ComparisonParams
from helpers.comparison.tables import comparison_table, comparison_values, row_heading, short_table
from helpers.editing.editors import EDITORS, EditorError, method_label, method_named
from helpers.editing.held_out import check_held_out
from helpers.editing.presets import read_hyperparameters
from helpers.editing.request import EditRequest
from helpers.params import defaults_of, notebook_of, read_params
from helpers.paths import NOTEBOOKS, PARAMS
from helpers.peak.metrics import metrics_table
from helpers.results.archive import About, Archive, archive
from helpers.results.statistics import Estimate
from helpers.thinkedit.knowgic import load_edited_graphs
from helpers.thinkedit.metrics import DEEP, OWN
from helpers.values import params_of

FILES = sorted((PARAMS / "paper" / "09_editors").glob("*.yaml"))
HYPERPARAMETERS = {"hyperparameters": {"layers": [1]}, "app": None}


def scores(target: float) -> pd.DataFrame:
    """Two records; the target is above or below the correct answers after the edit."""
    rows = []
    for case_id in (1, 2):
        lists = [("target", target), ("correct", -2.0), ("hard", -5.0), ("random", -6.0)]
        for name, after in lists:
            before = -9.0 if name == "target" else after
            rows.append((case_id, "edit", 0, name, 0, 1, before, after))
    columns = ["case_id", "role", "prompt_index", "list", "answer_index", "tokens"]
    return pd.DataFrame(rows, columns=[*columns, "sum_before", "sum_after"])


def named(hits: list[str]) -> pd.DataFrame:
    rows = [(case_id, "free", 0, name, 0) for case_id, name in enumerate(hits, start=1)]
    return pd.DataFrame(rows, columns=["case_id", "form", "sample", "list", "answer_index"])


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """An archive of one model: ROME and ROME+APP, ROME's text, LoRA under the name "editors"."""
    source = {"model": "tiny", "dataset": "peak-cf", "dtype": "float32", "device": "cpu"}
    caption = {"records": 2, "relations": {"1": "P1", "2": "P2"}, "preset": "tuned"}

    def put(folder, run, tables, settings, label=""):
        about = About(source, settings, caption)
        Archive(tmp_path / folder, label=label).put(run, tables, about)

    settings = {"ROME": HYPERPARAMETERS, "ROME+APP": {**HYPERPARAMETERS, "app": {"alpha": 1}}}
    put("peak", "tiny_peak-cf", {"ROME": scores(-1), "ROME+APP": scores(-3)}, settings)
    lora = {"LoRA": HYPERPARAMETERS}
    put("peak", "tiny_peak-cf", {"LoRA": scores(-1)}, lora, label="editors")
    put("peak", "tiny_peak-cf", {"ROME": scores(-3)}, {"ROME": HYPERPARAMETERS}, label="shown")
    put("peak", "tiny_peak-cf", {"ROME": scores(-3)}, {"ROME": HYPERPARAMETERS}, label="mine")
    put("placebo", "tiny_peak-cf", {"ROME": scores(-8)}, {"ROME": HYPERPARAMETERS})
    texts = {"rome": scores(-1), "named by rome": named(["target", "correct"])}
    texts |= {"lora": scores(-1), "named by lora": named(["target", "target"])}
    other = {"hyperparameters": {"layers": [2]}, "app": None}
    put("scorers", "tiny_peak-cf", texts, {"rome": HYPERPARAMETERS, "lora": other})
    costs = pd.DataFrame(
        {"method": ["rome"], "edits": [8], "cpu_seconds": [1.5], "bytes": [4096.0]}
    )
    put("edit_costs", "tiny_peak-cf", {"costs": costs}, {"rome": HYPERPARAMETERS})
    monkeypatch.setattr(measures, "archive", lambda folder: Archive(tmp_path / folder))
    stored_rows.cache_clear()
    yield stored_rows()
    stored_rows.cache_clear()


def test_rows_are_gathered_from_every_folder(stored):
    assert set(stored) == {
        RowKey("tiny", "rome"),
        RowKey("tiny", "rome+app"),
        RowKey("tiny", "lora"),
        RowKey("tiny", "rome", placebo=True),
        RowKey("tiny", "rome", half_shown=True),
    }
    rome = stored[RowKey("tiny", "rome")]
    assert rome.records == 2
    assert rome.estimates["ES"].mean == 1
    assert stored[RowKey("tiny", "rome+app")].estimates["ES"].mean == 0
    assert (rome.estimates[NAMING].mean, rome.estimates[NAMING].n) == (0.5, 2)
    assert (rome.estimates[CPU_SECONDS].mean, rome.estimates[EDIT_BYTES].mean) == (1.5, 4096)
    assert np.isnan(rome.estimates[CPU_SECONDS].low)


def test_edits_of_other_hyperparameters_are_left_out(stored):
    """LoRA's text is of layer 2, its lists are of layer 1."""
    assert NAMING not in stored[RowKey("tiny", "lora")].estimates


def test_the_table_shows_what_is_stored_and_no_empty_column(stored):
    table = comparison_table(stored, model="tiny").table
    assert table.index.tolist() == ["ROME", "ROME+APP", "LoRA", "ROME, half shown", "ROME, placebo"]
    assert table.loc["ROME", "named in free text ↑"].startswith("50.0")
    assert table.loc["LoRA", "named in free text ↑"] == ""
    assert table.loc["ROME", ["n, lists", "n, text", "n, cost"]].tolist() == ["0–2", "2", "8"]
    assert table.loc["ROME", "bytes of an edit ↓"] == "4,096"
    assert not [title for title in table if title.startswith(("IFR", "perplexity"))]
    assert set(table["information"]) == {"once"}
    assert comparison_table(stored).table.index.names == ["model", "method"]


def test_numbers_are_a_row_an_estimate(stored):
    values = comparison_values(stored).set_index(["method", "edit", "answers", "measure"])
    assert values.loc[("rome", "own", "all", NAMING), ["mean", "n"]].tolist() == [0.5, 2]
    assert values.loc[("rome", "placebo", "all", "ES"), "mean"] == 0
    assert values.loc[("rome", "own", "half shown", "ES"), "mean"] == 0


def test_the_short_table_has_plain_editors_alone(stored):
    table = short_table(stored, "tiny")
    assert table.index.tolist() == [("ROME", "tiny"), ("LoRA", "tiny")]
    assert table.loc[("ROME", "tiny"), ["ES", "n", "deep"]].tolist() == ["100", "2", "–"]


def test_labels_are_methods_and_back():
    for editor in EDITORS.values():
        for suffix in ("", "+app", "+icd", "+all", "+all-sum"):
            if editor.loss or not suffix:
                method = editor.name + suffix
                assert method_named(method_label(method)) == method
    with pytest.raises(EditorError, match="no method has the label 'ROME-2'"):
        method_named("ROME-2")
    assert row_heading(RowKey("m", "ft-bf", placebo=True)) == "FT-BF, placebo"
    assert RowKey("m", "ft-bf").information == "all"


@pytest.mark.slow
def test_stored_rows_are_those_of_the_archive():
    rows = stored_rows()
    rome = rows[RowKey("smollm2-135m", "rome")].estimates
    table = archive("peak").get("smollm2-135m_peak-cf").tables["ROME"]
    by_record = metrics_table(table.astype({"role": str, "list": str}))
    assert rome["AFF"].mean == pytest.approx(by_record["AFF_hard"].mean())
    assert {NAMING, OWN, "IFR", "CKP", DEEP, "perplexity"} <= rome.keys()
    assert RowKey("smollm2-135m", "memit", placebo=True) in rows
    # ROME's edits of what Qwen recalls are of other hyperparameters than those of PEAK's records.
    assert DEEP not in rows[RowKey("qwen2.5-coder-1.5b", "rome")].estimates
    order = in_order(rows)
    assert order.index(RowKey("smollm2-135m", "rome")) < order.index(
        RowKey("smollm2-135m", "rome", placebo=True)
    )


@pytest.mark.slow
def test_the_front_has_a_point_for_each_row_and_arrows_to_objectives():
    of_both = {"AFF": Estimate(0.4, 0.3, 0.6, 9), NAMING: Estimate(0.2, 0.1, 0.3, 9)}
    asked, damage = FRONTS[0].point(of_both)
    assert (asked.mean, damage.mean) == (0.2, 0.4)
    left = {DEEP: Estimate(0.9, 0.8, 1.0, 9), OWN: Estimate(0.1, 0.0, 0.3, 9)}
    assert FRONTS[1].point(left) is None
    for of_others in (0.6, 0.05):  # the worse of the two kinds counts
        estimates = left | {"CKP": Estimate(of_others, of_others - 0.05, of_others + 0.1, 9)}
        _, damage = FRONTS[1].point(estimates)
        assert damage.mean == pytest.approx(1 - min(0.1, of_others))
    assert (damage.low, damage.high) == pytest.approx((0.85, 1.0))
    assert FRONTS[1].point(of_both) is None
    fig = front_panels(archive("peak").runs())
    panels = [axes for axes in fig.axes if axes.get_visible()]
    rows = stored_rows()
    naming = {
        key
        for key, row in rows.items()
        if key.model == "smollm2-135m" and {NAMING, "AFF"} <= row.estimates.keys()
    }
    with_app = [key for key in naming if key.method.endswith("+app")]
    assert len(with_app) > 3
    texts = [text.get_text() for text in panels[0].texts]
    assert texts.count("") == len(with_app)  # an arrow each
    assert {"ROME", "MEMIT", "AlphaEdit", "MEND", "better ↘"} <= set(texts)
    assert len(fig.get_supxlabel().splitlines()) == 1
    assert not fig.legends
    plt.close(fig)


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_a_params_file_asks_for_a_run_that_can_be_made(file, tmp_path, monkeypatch):
    """What the doctor checks before a run: names, presets and values, of the run behind as well."""
    params = params_of(notebook_of(file), read_params(file))
    assert isinstance(params, ComparisonParams)
    assert params.wrong_values() == []
    behind = params.run_behind()
    assert set(behind.values) - {"shown_half"} <= set(
        defaults_of(NOTEBOOKS / f"{behind.notebook_name}.ipynb")
    )
    assert behind.values["model"] == file.stem.split("_")[0]
    assert str(file.relative_to(PARAMS.parent)) in file.read_text("utf-8")
    has_icd = any(method.endswith("+icd") for method in params.methods)
    assert has_icd == params.values["shown_half"] == (behind.label == "shown")


@pytest.mark.parametrize(
    "file", [file for file in FILES if "_recalled" in file.stem], ids=lambda path: path.stem
)
def test_no_edit_of_a_recalled_fact_is_one_that_its_editor_measures_on(file):
    """Such a request is refused, and the whole run with it."""
    values = read_params(file)
    edits = load_edited_graphs(values["dataset"])[: values["records"]]
    requests = [EditRequest(edit.subject, edit.prompt, edit.new) for edit in edits]
    for method in values["methods"]:
        hyperparameters = read_hyperparameters(method, values["model"], values["preset"])
        if count := hyperparameters.measured_requests:
            check_held_out(requests, count)


def test_records_and_edits_are_those_that_were_asked_for():
    counts = {file.stem: read_params(file)["records"] for file in FILES}
    for model, asked in (("smollm2-135m", (120, 60, 100)), ("gemma3-270m", (40, 20, 60))):
        assert (
            tuple(counts[f"{model}_{data}"] for data in ("peak-cf", "peak-t", "recalled")) == asked
        )
    assert counts["qwen2.5-coder-1.5b_peak-cf"] == counts["qwen2.5-coder-1.5b_recalled"] == 40


def test_a_run_behind_is_of_the_notebook_that_scores_it():
    values = defaults_of(NOTEBOOKS / "09_editors.ipynb")

    def behind(**changed):
        return ComparisonParams({**values, **changed}).run_behind()

    assert behind().notebook_name == "03_editing_runs"
    text = behind(measured="text", methods=["lora"])
    assert (text.notebook_name, text.values["scorers"]) == ("08_generated_text", ["lora"])
    ability = behind(measured="ability", methods=["lora"])
    assert (ability.values["ability"], ability.values["scorers"]) == (["lora"], [])
    graphs = behind(dataset="recalled-smollm2-135m", records=3, shown_half=True)
    assert graphs.notebook_name == "06_thinkedit_case_study"
    assert (graphs.values["benchmark"], graphs.values["first"]) == ("recalled-smollm2-135m", 3)
    assert (behind().label, graphs.label) == ("editors", "shown")
    wrong = ComparisonParams({**values, "dataset": "recalled-gemma3-270m", "measured": "text"})
    (error,) = wrong.wrong_values()
    assert "measured: text is of PEAK's records, not of recalled-gemma3-270m" in str(error)
