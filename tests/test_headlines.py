"""What the README and the notebooks say first is what the published tables show."""

from __future__ import annotations

import pandas as pd
import pytest

from helpers.paths import FIGURES
from helpers.results.archive import About, Run
from helpers.results.statistics import Contrast, Estimate
from helpers.results.text import Evidence
from tools.headlines import lifelong
from tools.headlines.__main__ import README, RESULTS, all_headlines, notebook, pages
from tools.headlines.headline import UnsupportedError, holds

NUMBERS = ("01", "02", "03", "04", "05", "06", "07", "08", "09")
EDITS_IN_A_ROW = "10"  # has a box where a long run is published
REMEDY = "run python -m tools.headlines"


@pytest.fixture(scope="module")
def headlines():
    return {headline.number: headline for headline in all_headlines()}


@pytest.mark.slow
def test_the_readme_and_the_results_have_the_numbers_of_the_published_tables(headlines):
    made = pages(headlines.values())
    assert set(made) == {README, RESULTS}
    for page, text in made.items():
        assert text == page.read_text("utf-8"), f"{page.name}: {REMEDY}"


def test_the_first_screen_of_the_readme_is_whole():
    """A question, three lines, a figure with a caption of one sentence, three findings, a table of tasks."""
    first_screen = README.read_text("utf-8").partition("\n## ")[0]
    title, introduction = first_screen.split("\n\n")[:2]
    assert title.startswith("# ")
    assert title.endswith("?")
    assert len(introduction.splitlines()) == 3
    assert first_screen.count("![") == 1
    (caption,) = [
        line for line in first_screen.splitlines() if line.startswith("*A typical ROME edit")
    ]
    assert caption.count(". ") == 0
    findings = [line for line in first_screen.splitlines() if line.startswith("- **")]
    assert len(findings) == 3
    assert all("n = " in finding for finding in findings)
    assert "| I want to | do |" in first_screen
    assert "EasyEdit" in first_screen


@pytest.mark.slow
@pytest.mark.parametrize("number", [*NUMBERS, EDITS_IN_A_ROW])
def test_a_notebook_begins_with_its_result(headlines, number):
    if number == EDITS_IN_A_ROW and number not in headlines:
        pytest.skip("no long run is published")
    path, text = notebook(headlines[number])
    assert text == path.read_text("utf-8"), REMEDY
    assert len(headlines[number].numbers) in (3, 4)
    assert (FIGURES / f"{headlines[number].figure}.png").exists()


def lifelong_run(last_edits: dict[str, int], share_now: float = 1.0) -> Run:
    """A run whose methods have their checkpoints at 10, 100, 500 and 1000 up to these edits."""
    tables = {}
    for method, last in last_edits.items():
        rows = [
            (edits, measure, item, share)
            for edits in (10, 100, 500, 1000)
            if edits <= last
            for measure, share in (
                ("at once", 1.0),
                ("made", 1.0),
                ("now", share_now),
                ("generality", share_now),
                ("locality", 1.0),
            )
            for item in range(20)
        ]
        table = pd.DataFrame(rows, columns=["case_id", "measure", "item", "value"])
        tables[f"measures: {method}, turns of 1, order 0"] = table.assign(unit=table["item"])
    probes = {"peak_cf": 1, "peak_t": 1, "chains": 2, "known": 2, "tokens": 200, "exam": 4}
    identity = {"model": "tiny", "dtype": "float32", "device": "cpu", "dataset": "recalled"}
    caption = {"preset": "tuned", "known facts": 2}
    return Run("tiny_recalled", About({**identity, "probes": probes}, {}, caption), tables)


def test_notebook_10_has_no_box_without_a_long_run_of_two_methods():
    assert lifelong.headlines([]) == []
    assert lifelong.headlines([lifelong_run({"memit": 10, "mend": 10})]) == []
    assert lifelong.headlines([lifelong_run({"memit": 1000})]) == []
    assert lifelong.headlines([lifelong_run({"memit": 1000, "mend": 10})]) == []


def test_the_box_of_notebook_10_is_of_what_half_of_the_methods_have():
    """A run that is published as it grows: at 1000 edits there is one method, at 100 three of four."""
    run = lifelong_run({"memit": 1000, "mend": 100, "grace": 100, "rome": 10})
    (headline,) = lifelong.headlines([lifelong_run({"memit": 100, "mend": 100}, 0.0), run])
    assert headline.finding.startswith(
        "After 100 edits MEMIT, MEND and GRACE give the most sampled requests, 100 %"
    )
    assert len(headline.numbers) == 4
    assert all(value.startswith("100.0") for _, value in headline.numbers)
    assert "Of facts that were never edited, 100 % with MEMIT" in headline.sentence
    assert headline.figure == "10_survival_tiny_recalled"
    assert headline.box().startswith("> **The result in twenty seconds. After 100 edits")


def test_a_method_that_continues_is_not_left_behind_for_one_that_was_stopped():
    """MEND has more edits than GRACE, which outgrew the context at 100."""
    run = lifelong_run({"memit": 1000, "mend": 500, "grace": 100})
    name = "measures: grace, turns of 1, order 0"
    outgrown = pd.DataFrame({"case_id": [100], "measure": "outgrew", "item": 0, "value": 1000.0})
    run.tables[name] = pd.concat([run.tables[name], outgrown.assign(unit=0)], ignore_index=True)
    (headline,) = lifelong.headlines([run])
    assert headline.finding.startswith("After up to 500 edits MEMIT, MEND and GRACE give")


def test_methods_that_are_behind_are_named():
    run = lifelong_run({"memit": 1000, "mend": 100, "grace": 100, "rome": 10})
    (headline,) = lifelong.headlines([run])
    assert headline.scope.endswith("larger models; ROME (10 edits so far).")


def test_a_sentence_that_the_tables_do_not_support_is_refused():
    def tested(low: float, high: float) -> Evidence:
        p_value = 0.3 if low < 0 < high else 0.01
        contrast = Contrast(Estimate((low + high) / 2, low, high, 9), p_value)
        return Evidence("f", contrast, higher="a", lower="b")

    assert holds([tested(0.1, 0.2)], "a - b")
    for evidence in ([tested(-0.1, 0.2)], [tested(-0.2, -0.1)], []):
        with pytest.raises(UnsupportedError, match=r"a - b: (inconclusive|reversed|not tested)"):
            holds(evidence, "a - b")
