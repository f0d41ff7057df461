"""The results page shows what is stored, the explorer's files hold it, every example has its place."""

from __future__ import annotations

import importlib
import json
import sys

import pytest

from helpers.paths import FIGURES, REPOSITORY
from helpers.results.archive import Archive

DATA = FIGURES / "data"


@pytest.fixture(scope="module")
def book():
    """The site's own modules by name."""
    sys.path.insert(0, str(REPOSITORY / "book"))
    yield importlib.import_module
    sys.path.remove(str(REPOSITORY / "book"))


@pytest.mark.slow
def test_stored_scores_become_tables(book, tmp_path):
    assert book("tables").results_page(tmp_path).count("*No scores are stored yet.*") == 5
    page = book("tables").results_page()
    assert page.count('<div class="ke-table">') > page.count("*No scores are stored yet.*")
    assert "smollm2-135m on klob-mini" in page
    assert "### ROME, smollm2-135m\\_peak-cf" in page
    assert "+ALL" not in page  # the fairer baseline is in its editor's table
    assert page.index("smollm2-135m on peak-cf") < page.index("gemma3-270m on peak-cf")
    assert "PEAK, Table 3: gpt2-xl, peak-cf" in page
    recalled = page[page.index("recalls, edits sequential, exact") :].partition("###")[0]
    assert recalled.count(">prune-added<") == 2  # SmolLM2 and Gemma, and no other graphs


@pytest.mark.slow
def test_every_editor_has_a_row_with_every_measure(book):
    table = book("every_editor").every_editor(DATA)
    row = table.loc["ROME", "smollm2-135m"]
    assert "\n(" in row["AFF hard ↓"]
    assert "\n(" in row["IFR ↓"]
    assert row["n"] == "120"
    assert {"PRUNE", "KN", "AlphaEdit+APP", "FT-L"} <= set(
        table.xs("smollm2-135m", level="model").index
    )
    assert table.loc["KN", "smollm2-135m"]["IFR ↓"] == "–"


def test_the_explorer_has_what_is_stored(book):
    run = Archive(DATA / "ablations").get("smollm2-135m_peak-mini-cf")
    found = book("stored_facts").facts_of(run)
    first = found["facts"][0]
    rows = run.tables["rome"].query("case_id == 0 and role == 'edit' and list == 'target'")
    place = first["answers"].index(["target", first["target"]])
    after = (rows["sum_after"] / rows["tokens"]).item()
    assert first["after"]["ROME"][place] == pytest.approx(after, abs=0.01)
    assert len(first["before"]) == len(first["after"]["ROME"]) == len(first["answers"])
    json.dumps(found)


def test_official_words_stay_out_of_the_explorer(book):
    found = book("stored_facts").facts_of(Archive(DATA / "peak").get("gemma3-270m_peak-t"))
    words = {answer.split()[0] for fact in found["facts"] for _, answer in fact["answers"]}
    assert words <= {"the", "correct", "hard", "random"}
    assert all(fact["title"].startswith("record ") for fact in found["facts"])


def test_every_worked_example_has_its_place(book):
    examples = book("examples")
    page = (REPOSITORY / "book" / "pages" / "metrics.md").read_text("utf-8")
    shown = examples.with_examples(page)
    assert "%EXAMPLE " in page
    assert "%EXAMPLE " not in shown
    with pytest.raises(KeyError):
        examples.with_examples("%EXAMPLE nothing%")
