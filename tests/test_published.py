"""Published tables by name: made from stored results, with the paper's numbers where it prints them."""

from __future__ import annotations

import csv
from io import StringIO

import pandas as pd
import pytest
from typer.testing import CliRunner

from helpers import UserError
from helpers.cli import app
from helpers.peak.metrics import method_metrics
from helpers.peak.tables import scores_of
from helpers.published import TABLES, published_table_named
from helpers.results.archive import archive
from helpers.results.formats import FORMATS, format_of, table_text, write_table
from helpers.results.notes import ShownTable
from helpers.results.text import published_table

runner = CliRunner()


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_made_and_printed(name):
    entry = TABLES[name]
    if entry.of and not archive(entry.of).names():
        with pytest.raises(UserError, match=f"{name}: no run of '{entry.of}' is stored"):
            published_table_named(name)
        return
    title, shown = published_table_named(name)
    assert title.splitlines()[0] == TABLES[name].title
    assert len(shown.table) > 0
    rows = list(csv.reader(StringIO(table_text(shown, "csv"))))
    assert len({len(row) for row in rows}) == 1


@pytest.mark.slow
def test_peaks_table_has_our_means_and_the_papers_numbers():
    _, shown = published_table_named("peak_table_3", model="smollm2-135m", measures=["aff_hard"])
    table = shown.table.set_index(["method", "source"])
    assert list(table) == ["AFF_hard"]
    ours = method_metrics(scores_of(archive("peak").get("smollm2-135m_peak-cf"), only=["ROME"]))
    mean = 100 * ours["ROME"]["AFF_hard"].mean()
    assert table.loc[("ROME", "ours"), "AFF_hard"].startswith(f"{mean:.1f}")
    printed = published_table("peak_table_3").query("model == 'gpt2-xl' and method == 'ROME'")
    theirs = printed.set_index("metric")["value"]["AFF_hard"]
    cell = table.loc[("ROME", "PEAK, Table 3: gpt2-xl, peak-cf"), "AFF_hard"]
    assert cell.strip("*†") == f"{theirs:.1f}"


def test_a_table_of_all_editors_has_every_model_or_the_one_asked_for():
    _, shown = published_table_named("editors", model="gemma3-270m", measures=["ES"])
    assert {"model", "method", "ES ↑", "n, lists", "information"} <= set(shown.table)
    assert not {"GS ↑", "CKP ↑"} & set(shown.table)
    assert set(shown.table["model"]) == {"gemma3-270m"}
    run = archive("peak").get("gemma3-270m_peak-cf")
    assert set(run.tables) <= set(shown.table["method"])
    mean = 100 * method_metrics(scores_of(run, only=["IKE"]))["IKE"]["ES"].mean()
    (cell,) = shown.table.loc[shown.table["method"] == "IKE", "ES ↑"]
    assert cell.startswith(f"{mean:.1f}")


def test_the_editors_as_numbers_are_those_of_the_table():
    _, shown = published_table_named("editors_values", model="smollm2-135m")
    values = shown.table.set_index(["method", "edit", "answers", "measure"])
    rome = values.loc[("rome", "own", "all", "AFF")]
    ours = method_metrics(scores_of(archive("peak").get("smollm2-135m_peak-cf"), only=["ROME"]))
    assert rome["mean"] == pytest.approx(ours["ROME"]["AFF_hard"].mean())
    assert rome["n"] == ours["ROME"]["AFF_hard"].count()
    assert rome["low"] < rome["mean"] < rome["high"]
    assert values.index.is_unique


def test_counterfacts_table_has_the_papers_below_ours():
    _, shown = published_table_named("counterfact", measures=["ES"])
    models = shown.table.set_index(["model", "method"]).index
    assert ("smollm2-135m", "ROME") in models
    assert any(model.endswith("(paper)") for model, _ in models)


def test_thinkedits_table_has_the_papers_below_ours():
    _, shown = published_table_named("thinkedit_table_5")
    assert set(shown.table["source"]) == {"ours", "paper, pooled"}
    papers = shown.table.query("source == 'paper, pooled' and method == 'alphaedit'")
    assert "0.551" in papers["IFR"].tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["peak_tabel_3"], "no table 'peak_tabel_3' (did you mean 'peak_table_3'?)"),
        (["klob_criteria", "--model", "smolm2-135m"], "(did you mean 'smollm2-135m'?); there are"),
        (["klob_locality", "--model", "gemma3-270m"], "no model 'gemma3-270m'; there are smollm2"),
        (["peak_table_8", "--measure", "delta"], "no measure 'delta'; there are α, β"),
        (["peak_table_8", "--format", "latx"], "no format 'latx' (did you mean 'latex'?)"),
        (["thinkedit_table_4", "--model", "gpt2"], "the table is of no model"),
    ],
)
def test_a_misspelt_name_is_told_with_the_nearest(arguments, message):
    result = runner.invoke(app, ["table", *arguments])
    assert (result.exit_code, result.output[:7]) == (1, "error: ")
    assert message in result.output
    assert len(result.output.splitlines()) == 1


def test_all_tables_are_listed():
    for arguments in (["table"], ["table", "--list"]):
        lines = runner.invoke(app, arguments).output.splitlines()
        assert [line.split()[0] for line in lines] == list(TABLES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["figure", "05_layer"], "no figure '05_layer' (did you mean '05_layers'?)"),
        (["fetch", "peak-fc"], "(did you mean 'peak-cf'?)"),
        (["editt", "facts.csv"], "Did you mean 'edit'?"),
    ],
)
def test_misspelt_verbs_figures_and_data_get_a_suggestion(arguments, message):
    result = runner.invoke(app, arguments)
    assert result.exit_code != 0
    assert message in result.output


def test_a_stored_table_that_is_not_there_names_those_that_are():
    tables = archive("peak").get("smollm2-135m_peak-cf").tables
    with pytest.raises(
        UserError, match=r"has no table 'ROMEE' \(did you mean 'ROME'\?\); there are"
    ):
        tables["ROMEE"]
    assert tables.get("ROMEE") is None
    assert "ROMEE" not in tables
    with pytest.raises(UserError, match=r"no run 'smollm2_peak-cf' \(did you mean"):
        archive("peak").get("smollm2_peak-cf")


SHOWN = ShownTable(
    pd.DataFrame({"a|b": [0.123456, float("nan")], "c": ["5 % ± 1†", "x_y\nz"]}).set_index("a|b"),
    "a note",
)


def test_a_table_is_written_for_each_program(tmp_path):
    assert table_text(SHOWN, "csv") == 'a|b,c\n0.123456,5 % ± 1†\n,"x_y\nz"\n'
    markdown = (
        "title\n\n| a\\|b | c |\n| --- | --- |\n| 0.1235 | 5 % ± 1† |\n| – | x_y z |\n\na note\n"
    )
    assert table_text(SHOWN, "md", title="title") == markdown
    latex = table_text(SHOWN, "latex")
    assert "% a note\n\\begin{tabular}{ll}" in latex
    assert r"0.1235 & 5 \% $\pm$ 1\dag{} \\" in latex
    assert r"-- & x\_y z \\" in latex
    assert "<td>x_y\nz</td>" in table_text(SHOWN, "html").replace("\\n", "\n")
    for ending in FORMATS.values():
        path = tmp_path / f"table{ending}"
        if ending == ".xlsx":
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr("helpers.results.formats.find_spec", lambda name: None)
                with pytest.raises(UserError, match="spreadsheets need openpyxl"):
                    format_of(path)
            continue
        write_table(SHOWN, path)
        assert path.read_text("utf-8") == table_text(SHOWN, format_of(path))
    pytest.importorskip("openpyxl")
    write_table(SHOWN, tmp_path / "table.xlsx")
    assert pd.read_excel(tmp_path / "table.xlsx")["c"].tolist() == ["5 % ± 1†", "x_y\nz"]


def test_measures_keep_what_tells_rows_apart():
    _, shown = published_table_named("gate_audit", measures=["AUC"])
    keys = [column for column in shown.table if "AUC" not in str(column)]
    assert {"model", "data", "key", "layer"} <= set(keys)
    assert not shown.table[keys].duplicated().any()
