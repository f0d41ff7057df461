"""The paper's rows beside ours: of the right data set, labelled, its slips marked."""

from __future__ import annotations

import pandas as pd
import pytest

from helpers.peak.ablation_tables import HARD_METRICS
from helpers.peak.beside_paper import beside_paper, paper_notes, paper_setting
from helpers.peak.metrics_table import COLUMNS, metrics_table
from helpers.peak.tables import MAIN_METRICS

NOTHING = metrics_table(pd.DataFrame(columns=COLUMNS))  # every edit was given up


def labels(model: str, dataset: str) -> list[str]:
    return [setting.label for setting in paper_setting(model, dataset)]


@pytest.mark.parametrize("dataset", ["peak-t", "peak-mini-t"])
def test_a_temporal_run_stands_beside_table_4(dataset):
    assert labels("smollm2-135m", dataset) == [
        "PEAK, Table 4: gpt2-xl, peak-t",
        "PEAK, Table 4: gpt-j-6b, peak-t",
    ]


def test_all_models_of_the_paper_stand_beside_a_model_it_lacks():
    assert labels("smollm2-135m", "peak-mini-cf") == [
        "PEAK, Table 3: gpt2-xl, peak-cf",
        "PEAK, Table 3: llama2-7b, peak-cf",
        "PEAK, Table 9: llama2-13b, peak-cf",
    ]


def test_a_model_of_the_paper_stands_beside_itself():
    assert labels("llama2-7b", "peak-cf") == ["PEAK, Table 3: llama2-7b, peak-cf"]
    assert labels("gpt-j-6b", "peak-t") == ["PEAK, Table 4: gpt-j-6b, peak-t"]
    assert labels("llama2-13b", "peak-cf") == ["PEAK, Table 9: llama2-13b, peak-cf"]


def test_rows_are_labelled_and_the_papers_locality_is_its_codes():
    for metrics in (MAIN_METRICS, HARD_METRICS):
        setting = paper_setting("gpt2-xl", "peak-cf")
        table = beside_paper({"ROME": NOTHING}, setting, metrics=metrics)
        assert [source for _, source in table.index] == ["ours", setting[0].label]
        assert "LS" not in table
        row = table.loc[("ROME", setting[0].label)]
        assert (row["ES"], row["LS_held"], row["LS_authors"]) == ("99.3", "–", "90.6")


def test_ft_is_the_papers_ft_and_other_methods_stand_alone():
    setting = paper_setting("gpt2-xl", "peak-cf")
    table = beside_paper(dict.fromkeys(("FT-L", "KN", "KN (tuned)", "AlphaEdit"), NOTHING), setting)
    assert table.loc[("FT-L", setting[0].label), "ES"] == "91.0"
    assert len(table.loc["KN"]) == 2
    assert len(table.loc["KN (tuned)"]) == len(table.loc["AlphaEdit"]) == 1


def test_the_printed_slip_is_said_where_the_table_is():
    setting = paper_setting("gpt2-xl", "peak-t")
    table = beside_paper({"MEND+APP": NOTHING}, setting)
    assert table.loc[("MEND+APP", setting[0].label), "AFF_hard"] == "26.3*"
    assert not table.loc[("MEND+APP", setting[0].label), "ES"].endswith("*")
    (note,) = paper_notes(setting)
    assert "MEND+APP" in note
    assert "identical to Table 3" in note
    assert paper_notes(paper_setting("gpt-j-6b", "peak-t")) == []
