"""The results page says what is stored, and what is not."""

from __future__ import annotations

import importlib
import json
import sys

import pytest

from helpers.paths import REPOSITORY
from tools.headlines.headline import UnsupportedError


@pytest.fixture(scope="module")
def book():
    """The site's own modules by name."""
    sys.path.insert(0, str(REPOSITORY / "book"))
    yield importlib.import_module
    sys.path.remove(str(REPOSITORY / "book"))


@pytest.fixture(scope="module")
def tables(book):
    return book("tables")


def test_a_part_without_scores_says_so(tables, tmp_path):
    page = tables.results_page(tmp_path)
    assert page.count("\n## ") == 5
    assert page.count("*No scores are stored yet.*") == 5


def test_stored_scores_become_tables(tables):
    page = tables.results_page()
    assert page.count('<div class="ke-table">') > page.count("*No scores are stored yet.*")
    assert "smollm2-135m on klob-mini" in page
    assert "### ROME on peak-cf, smollm2-135m" in page
    assert "AlphaEdit on" in page
    assert "+ALL" not in page  # the fairer baseline stands with its editor
    assert page.index("smollm2-135m on peak-cf") < page.index("gemma3-270m on peak-cf")
    assert "PEAK, Table 3: gpt2-xl, peak-cf" in page


def test_every_editor_stands_in_one_table_on_every_measure(book):
    from helpers.paths import FIGURES

    table = book("every_editor").every_editor(FIGURES / "data")
    row = table.loc["ROME", "smollm2-135m"]
    assert "\n(" in row["AFF hard ↓"]
    assert "\n(" in row["IFR ↓"]
    assert row["n"] == "120"
    assert {"PRUNE", "KN", "AlphaEdit+APP", "FT-L"} <= set(
        table.loc[:, "n"].xs("smollm2-135m", level=1).index
    )
    assert table.loc["KN", "smollm2-135m"]["IFR ↓"] == "–"


def test_graphs_of_ones_own_and_of_others_stand_apart(book):
    """A method has one row a model in each table, and the paper stands beside its own graphs only."""
    from helpers.paths import FIGURES

    parts = list(book("tables")._thinkedit(FIGURES / "data" / "thinkedit"))
    titles = [part for part in parts if part.startswith("### ")]
    (place,) = (i for i, part in enumerate(parts) if "recalls, edits sequential, exact" in part)
    assert parts[place + 3].count(">prune-added<") == 2  # SmolLM2 and Gemma
    papers = [parts.index(part) for part in parts if part.startswith("The paper's")]
    assert len(papers) == len([title for title in titles if "KnowGIC, edits sequential" in title])


def test_the_explorer_has_what_is_stored(book, tmp_path):
    from helpers.paths import FIGURES
    from helpers.results.archive import Archive

    facts = book("stored_facts")
    run = Archive(FIGURES / "data" / "ablations").get("smollm2-135m_peak-mini-cf")
    found = facts.facts_of(run)
    first = found["facts"][0]
    rows = run.tables["rome"].query("case_id == 0 and role == 'edit' and list == 'target'")
    place = first["answers"].index(["target", first["target"]])
    assert first["after"]["ROME"][place] == pytest.approx(
        (rows["sum_after"] / rows["tokens"]).item(), abs=0.01
    )
    assert len(first["before"]) == len(first["after"]["ROME"]) == len(first["answers"])
    assert max(first["said"]["before"]) <= 30
    json.dumps(found)


def test_official_words_stay_out_of_the_explorer(book):
    from helpers.paths import FIGURES
    from helpers.results.archive import Archive

    found = book("stored_facts").facts_of(
        Archive(FIGURES / "data" / "peak").get("gemma3-270m_peak-t")
    )
    words = {answer for fact in found["facts"] for _, answer in fact["answers"]}
    assert all(
        word == "the new answer" or word.split()[0] in ("correct", "hard", "random")
        for word in words
    )
    assert all(fact["title"].startswith("record ") for fact in found["facts"])


def test_every_worked_example_has_its_place(book):
    examples = book("examples")
    page = (REPOSITORY / "book" / "pages" / "metrics.md").read_text("utf-8")
    assert page.count("%EXAMPLE ") == len(examples.every_example())
    shown = examples.with_examples(page)
    assert "%EXAMPLE" not in shown
    assert shown.count(":::{admonition} Example") == page.count("%EXAMPLE ")
    with pytest.raises(KeyError):
        examples.with_examples("%EXAMPLE nothing%")


@pytest.mark.parametrize(("made", "reported"), [("old", ""), ("new", "python -m tools.headlines")])
def test_headlines_older_than_the_tables_are_reported(book, monkeypatch, capsys, made, reported):
    pytest.importorskip("sphinx", reason="needs the extra 'book'")
    monkeypatch.setattr("tools.headlines.__main__.all_headlines", list)
    monkeypatch.setattr("tools.headlines.__main__.readme", lambda headlines: made)
    note = book("build").outdated("old")
    assert reported in note
    assert bool(note) == bool(reported) == bool(capsys.readouterr().out)


def test_headlines_that_the_tables_do_not_support_are_reported(book, monkeypatch):
    pytest.importorskip("sphinx", reason="needs the extra 'book'")

    def refused():
        raise UnsupportedError("ES: reversed")

    monkeypatch.setattr("tools.headlines.__main__.all_headlines", refused)
    assert "older than the published tables: ES: reversed" in book("build").outdated("old")
