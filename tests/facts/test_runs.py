"""Several editors on facts: what is kept, what an interruption costs, and what leaves with the user."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from helpers import UserError, models
from helpers.cli import app
from helpers.editing.edit import EditError
from helpers.editing.ft import Ft
from helpers.facts import Fact, edit_facts, load_edits
from helpers.facts.benchmark import continuations
from helpers.facts.compare import compare_edits
from helpers.models.identity import WeightDigests
from helpers.scoring.answers import Question, score_answers

FAST = {"layers": [1], "num_steps": 4, "lr": 0.05, "norm_constraint": 0.5}
FACTS = [
    Fact("Sudan", "{} borders", "Mali", ("Beside {} is",), ("The sun is",), ("Chad",), ("Peru",)),
    Fact("Peru", "The capital of {} is", "Oslo", ("{} has",), ("The sea is",)),
    Fact("Mars", "A moon of {} is", "Io", ("{} has a moon",), ("Snow is",)),
]


@pytest.fixture
def edited(monkeypatch):
    """The subjects of all edits that are made."""
    subjects: list[str] = []
    make = Ft.edit

    def noting(editor, requests):
        subjects.extend(request.subject for request in requests)
        return make(editor, requests)

    monkeypatch.setattr(Ft, "edit", noting)
    return subjects


def test_several_editors_share_a_table(tiny):
    lm = tiny("llama")
    result = edit_facts(lm, FACTS, editors=["ft-m", "ft-l"], preset=FAST)
    assert result.table.columns[0] == "editor"
    assert result.table["editor"].tolist() == ["ft-m"] * 3 + ["ft-l"] * 3
    for method in result.methods:
        alone = edit_facts(lm, FACTS, editor=method, preset=FAST)
        pd.testing.assert_frame_equal(result.of(method).table, alone.table, atol=1e-5)
        assert len(result.of(method).edits) == 3
    with pytest.raises(
        UserError, match=r"edited by ft-m, ft-l: choose one, such as result\.of\('ft-m'\)"
    ):
        result.generate(["Sudan borders"])
    texts = result.texts.query("editor == 'ft-m'")
    assert texts["role"].tolist() == ["prompt", "paraphrase", "locality"] * 3
    assert texts["after"].iloc[0] == result.of("ft-m").table["generated after"].iloc[0]


@pytest.mark.parametrize("editor", ["in-context", "memory-bm25", "grace", "kn"])
def test_editors_of_every_kind_are_kept_and_saved(tiny, tmp_path, editor, monkeypatch):
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path / "cache"))
    lm, results = tiny("llama"), tmp_path / "results"
    facts = FACTS[:1] if editor == "kn" else FACTS  # KN asks for the answer known so far
    first = edit_facts(lm, facts, editor=editor, preset="generic", results=results)
    again = edit_facts(lm, facts, editor=editor, preset="generic", results=results)
    pd.testing.assert_frame_equal(first.table, again.table)
    loaded = load_edits(again.save(tmp_path / "edits"), lm)
    prompts = ["Sudan borders"]
    assert loaded.generate(prompts, fact=0) == first.generate(prompts, fact=0)
    if editor != "kn":
        with pytest.raises(EditError, match="writing takes an edit of weights alone"):
            loaded.write()


def test_an_interruption_costs_the_fact_that_is_edited(tiny, tmp_path, edited, monkeypatch):
    lm, results = tiny("llama"), tmp_path
    make = Ft.edit

    def killed(editor, requests):
        if requests[0].subject == "Mars":
            raise KeyboardInterrupt
        return make(editor, requests)

    with monkeypatch.context() as patched:
        patched.setattr(Ft, "edit", killed)
        with pytest.raises(KeyboardInterrupt):
            edit_facts(lm, FACTS, editor="ft-m", preset=FAST, results=results)
    assert edited == ["Sudan", "Peru"]
    table = edit_facts(lm, FACTS, editor="ft-m", preset=FAST, results=results).table
    assert edited == ["Sudan", "Peru", "Mars"]
    plain = edit_facts(lm, FACTS, editor="ft-m", preset=FAST).table
    pd.testing.assert_frame_equal(table, plain, atol=1e-5)


def test_what_is_stored_depends_on_each_facts_content_alone(tiny, tmp_path, edited):
    lm, results = tiny("llama"), tmp_path
    how = {"editor": "ft-m", "preset": FAST, "results": results}
    first = edit_facts(lm, FACTS, **how).table
    edited.clear()
    other_order = edit_facts(lm, FACTS[::-1], **how).table
    assert edited == []
    pd.testing.assert_frame_equal(first, other_order[::-1].reset_index(drop=True))
    edit_facts(lm, [*FACTS[:2], replace(FACTS[2], target="Titan")], **how)
    edit_facts(lm, FACTS[:1], **{**how, "preset": {**FAST, "lr": 0.01}})
    assert edited == ["Mars", "Sudan"]
    edit_facts(lm, FACTS[:2], **how, together=True)
    assert sorted(edited[2:]) == ["Peru", "Sudan"]


def test_a_placebo_is_another_facts_edit(tiny, tmp_path):
    lm = tiny("llama")
    lines: list[str] = []
    result = edit_facts(lm, FACTS, editor="ft-m", preset=FAST, placebo=True, results=tmp_path)
    question = Question(FACTS[0].prompts[0], ("Mali",))
    scores = score_answers(lm, [question] * 2, result.edits[1:], [0, 1])
    under_others = np.exp(scores["sum"].to_numpy())
    found = result.placebo["P after"].iloc[0]
    assert min(abs(under_others - found)) < 1e-5
    assert result.placebo["P before"].tolist() == result.table["P before"].tolist()
    summary = result.summary()
    assert summary.table.index.tolist() == ["ft-m", "ft-m, placebo"]
    assert "n=3" in summary.table.loc["ft-m", "generality"]
    alike = [replace(fact, prompt="{} borders") for fact in FACTS]
    without = edit_facts(lm, alike, editor="ft-m", preset=FAST, placebo=True, tell=lines.append)
    assert without.placebo.empty
    assert any(line.startswith("no placebo") for line in lines)


def test_a_second_call_reads_all_weights_a_few_times_an_editor(tiny, tmp_path, monkeypatch):
    lm = tiny("llama")
    looks: list[WeightDigests] = []
    digests = WeightDigests.current

    def noting(weights):
        looks.append(weights)
        return digests(weights)

    monkeypatch.setattr(WeightDigests, "current", noting)
    options = {"preset": FAST, "placebo": True, "results": tmp_path}
    first = edit_facts(lm, FACTS, editors=["ft-m", "ft-l"], **options)
    looks.clear()
    second = edit_facts(lm, FACTS, editors=["ft-m", "ft-l"], **options)
    assert len(looks) <= 1 + 2 * 3  # of the unedited model; per editor its edits, moments, placebo
    pd.testing.assert_frame_equal(first.table, second.table)
    pd.testing.assert_frame_equal(first.placebo, second.placebo)


def test_facts_are_kept_one_by_one_and_their_placebos_together(tiny, tmp_path, monkeypatch):
    """An edit costs most, so that an interruption may cost one; a placebo makes none."""
    counts: list[int] = []

    def noting(lm, facts, edits, owners):
        counts.append(len(facts))
        return continuations(lm, facts, edits, owners)

    monkeypatch.setattr("helpers.facts.benchmark.continuations", noting)
    edit_facts(tiny("llama"), FACTS, editor="ft-m", preset=FAST, placebo=True, results=tmp_path)
    assert counts == [1, 2, *[1] * 3, 1, 2]  # unedited, under their own edits, under another's


def test_second_moments_are_announced_with_their_time(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path))
    lines: list[str] = []
    how = {"editor": "memit", "preset": "generic", "corpus": "self-8x16", "tell": lines.append}
    edit_facts(tiny("llama"), FACTS[:1], **how)
    assert "memit: second moments of layers [0, 1, 2, 3] over self-8x16" in lines[0]
    assert "are made first, once for tiny-llama: about" in lines[0]
    lines.clear()
    edit_facts(tiny("llama"), FACTS[:1], **how)
    assert lines == ["memit (1 of 1): 1 of 1 facts to be edited"]


def test_what_is_written_is_undone_bit_for_bit(checkpoint):
    lm = models.load(str(checkpoint))
    before = {name: value.clone() for name, value in lm.network.state_dict().items()}
    result = edit_facts(lm, FACTS, editor="ft-m", preset=FAST)
    result.write()
    assert result.written
    changed = [n for n, v in lm.network.state_dict().items() if not torch.equal(v, before[n])]
    assert changed
    result.undo()
    assert not result.written
    assert all(torch.equal(v, before[n]) for n, v in lm.network.state_dict().items())
    result.write()
    assert result.written


def test_a_saved_model_is_the_edited_one_and_has_a_card(checkpoint, tmp_path):
    lm = models.load(str(checkpoint))
    fingerprint = lm.fingerprint
    result = edit_facts(lm, FACTS[:2], editor="ft-m", preset=FAST, together=True)
    saved = models.load(str(result.save_model(tmp_path / "edited")))
    assert lm.fingerprint == fingerprint != saved.fingerprint
    question = [Question("Sudan borders", ("Mali",))]
    under = score_answers(lm, question, result.edits, [0])["sum"][0]
    assert score_answers(saved, question)["sum"][0] == pytest.approx(under, abs=1e-4)
    card = (tmp_path / "edited" / "README.md").read_text("utf-8")
    for words in (
        "Editor: ft-m, one edit",
        "| Sudan borders | Mali |",
        '"num_steps": 4',
        "Licence:",
    ):
        assert words in card
    assert card.startswith("---\nlicense: other\nbase_model: ")


def test_folders_of_edits_are_loaded_for_their_model_and_compared(tiny, tmp_path):
    lm = tiny("llama")
    weak = edit_facts(lm, FACTS, editor="ft-m", preset={**FAST, "num_steps": 1, "lr": 1e-6})
    strong = edit_facts(lm, FACTS[:2], editor="ft-m", preset=FAST)
    weak.save(tmp_path / "weak")
    strong.save(tmp_path / "strong")
    loaded = load_edits(tmp_path / "strong", lm)
    pd.testing.assert_frame_equal(loaded.table, strong.table)
    assert loaded.facts == tuple(FACTS[:2])
    prompts = ["Sudan borders"]
    assert loaded.generate(prompts, fact=0) == strong.generate(prompts, fact=0)
    table = compare_edits(tmp_path / "weak", tmp_path / "strong").table.set_index("measure")
    means = [100 * result.table["locality"][:2].mean() for result in (weak, strong)]
    assert table.loc["locality", "first"] == f"{means[0]:.1f}"
    assert table.loc["locality", "second"] == f"{means[1]:.1f}"
    assert table.loc["locality", "n"] == 2
    printed = CliRunner().invoke(app, ["compare", str(tmp_path / "weak"), str(tmp_path / "strong")])
    assert (printed.exit_code, "| locality |" in printed.output) == (0, True)
    with pytest.raises(EditError, match="holds edits of tiny-llama in float32"):
        load_edits(tmp_path / "strong", tiny("qwen2"))
    missing = CliRunner().invoke(app, ["compare", str(tmp_path), str(tmp_path / "strong")])
    assert "edits.json: give a folder that save" in missing.output


@pytest.mark.parametrize("ending", ["csv", "tex", "md", "html"])
def test_one_command_makes_tables_of_a_file(checkpoint, tmp_path, ending):
    file = tmp_path / "facts.csv"
    file.write_text(
        "subject,prompt,target,locality\nSudan,{} borders,Mali,The sun is\nPeru,{} is,Oslo,Snow is\n"
    )
    out, preset = tmp_path / f"out/table.{ending}", tmp_path / "mine.yaml"
    preset.write_text("layers: [1]\nnum_steps: 2\nlr: 0.05\nnorm_constraint: 0.5\n")
    arguments = ["edit", str(file), "--model", str(checkpoint), "--editors", "ft-m,ft-l"]
    arguments += [
        "--preset",
        str(preset),
        "--out",
        str(out),
        "--results",
        str(tmp_path / "results"),
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "| ft-l, placebo | 2 |" in result.output
    assert "ft-m (1 of 2): 2 of 2 facts to be edited" in result.output
    paths = [out, *(out.with_name(f"table-{part}.{ending}") for part in ("summary", "texts"))]
    assert result.output.splitlines()[-3:] == list(map(str, paths))
    assert all("Sudan borders" in path.read_text("utf-8") for path in (out, paths[2]))
    if ending == "csv":
        assert pd.read_csv(out)["editor"].tolist() == ["ft-m", "ft-m", "ft-l", "ft-l"]
        again = CliRunner().invoke(app, arguments)
        assert "ft-m (1 of 2): 0 of 2 facts to be edited" in again.output


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--editors", "rmoe"], r"no method 'rmoe' (did you mean 'rome'?)"),
        (["--model", "smollm2-135"], "(did you mean 'smollm2-135m'?)"),
        (
            ["--editors", "rome,kn", "FACTS"],
            "'Sudan borders': KN attributes the answer known so far",
        ),
        (["--editors", "rome+app", "FACTS"], "'Sudan borders': APP protects answers"),
        (["--out", "a.cvs"], "did you mean '.csv'?"),
        (["--out", "a.pdf"], "no table ends in '.pdf'"),
        (["--out", "/proc/a.csv"], "/proc/a.csv cannot be written ("),
        (["--save", "/proc/edits"], "/proc/edits cannot be written ("),
        ([], "no file nowhere.csv with facts"),
    ],
)
def test_mistakes_are_told_before_a_model_is_loaded(change, message, monkeypatch, tmp_path):
    monkeypatch.setattr("helpers.facts.command.load", None)
    file = "nowhere.csv"
    if "FACTS" in change:
        file = tmp_path / "facts.csv"
        file.write_text("subject,prompt,target\nSudan,{} borders,Mali\n")
        change = [word for word in change if word != "FACTS"]
    result = CliRunner().invoke(app, ["edit", str(file), *change])
    assert (result.exit_code, result.output[:7]) == (1, "error: ")
    assert message in result.output
    assert len(result.output.splitlines()) == 1
