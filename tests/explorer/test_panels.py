"""The panels, driven by their widgets as a click would drive them."""

from __future__ import annotations

import json

import pytest
from IPython.core.formatters import DisplayFormatter

from helpers.editing.edit import Edit
from helpers.explorer import panels
from helpers.explorer.panels import ALL, OWN, ChainPanel, EditPanel

PNG = b"\x89PNG"


@pytest.fixture
def panel(explorer, records):
    return EditPanel(explorer, records)


def test_answers_follow_the_fact(panel, records):
    assert len(panel.fact.options) == 3
    panel.fact.value = 2
    assert panel.fact.label == f"{records[2].edit_prompt} … (record {records[2].case_id})"
    assert panel.target.value == records[2].target_new
    assert set(records[2].hard_false) <= set(panel.target.options)


def test_a_click_edits_and_shows(panel, records):
    panel.choose(records[1])
    panel.app.value = True
    panel.button.click()
    panel.wait()
    assert panel.outcome.record == records[1]
    assert panel.status.value.startswith("FT-L+APP: ")
    pixels = int.from_bytes(bytes(panel.picture.value)[16:20], "big")
    assert pixels == 2 * int(panel.picture.width)  # as in a notebook's figures
    assert panel.children.index(panel.details) < panel.children.index(panel.picture)
    assert "ANF_<wbr>random" in panel.details.value.split("Generated after the edit")[0]
    assert not panel.button.disabled
    assert "explorer-old" not in panel.picture._dom_classes
    panel.target.value = "Atlantis"
    assert "explorer-old" in panel.details._dom_classes


@pytest.mark.parametrize(
    ("editor", "target", "message"),
    [("mend", "Atlantis", "&lt;for this&gt;"), ("rome", " ", "name the answer")],
)
def test_what_cannot_be_done_is_said(panel, editor, target, message):
    panel.editor.value, panel.target.value = editor, target
    panel.button.click()
    panel.wait()
    assert message in panel.status.value
    assert panel.outcome is None
    assert not panel.button.disabled


def test_without_widgets_one_line_stands_for_the_panel(explorer, records):
    outcome = explorer.explore(records[2], explorer.editor("rome"))
    panel = EditPanel(explorer, records, first=outcome)
    assert panel.fact.value == 2
    bundle, _ = DisplayFormatter().format(panel)
    assert "image/png" not in bundle
    assert bundle["text/plain"] == "EditPanel: run the notebook to use it"
    assert "application/vnd.jupyter.widget-view+json" in bundle
    json.dumps(bundle)


def own(panel, **texts):
    panel.source.value = OWN
    for name, text in {"subject": "Sudan", "prompt": "{} borders", **texts}.items():
        panel.own[name].value = text
    panel.target.value = "Oman"


def test_a_fact_of_ones_own_is_edited(panel):
    own(panel, correct="Chad | Egypt", false="Laos|Peru")
    panel.button.click()
    panel.wait()
    assert panel.outcome.record.edit_prompt == "Sudan borders"
    assert " ".join(panel.outcome.probabilities()["answer"]) == "Oman Chad Egypt Laos Peru"
    own(panel, correct="", false="")
    panel.button.click()
    panel.wait()
    assert panel.outcome.probabilities()["answer"].tolist() == ["Oman"]
    own(panel, prompt="It borders")
    panel.button.click()
    panel.wait()
    assert "must hold exactly one {} where the subject goes" in panel.status.value
    assert "explorer-old" in panel.picture._dom_classes


def test_an_edit_is_kept_in_a_file(panel, monkeypatch, tmp_path):
    monkeypatch.setattr(panels.paths, "RUNS", tmp_path)
    assert panel.save.disabled
    panel.button.click()
    panel.wait()
    panel.save.click()
    (path,) = (tmp_path / "edits").iterdir()
    assert str(path) in panel.status.value
    loaded = Edit.load(path)
    assert loaded.interventions().keys() == panel.outcome.edit.interventions().keys()


def test_another_fetched_model_can_be_chosen(panel, tiny, monkeypatch):
    other = tiny("gpt2")
    monkeypatch.setattr(panels, "load", lambda name, **_: other)
    panel.model.options = (*panel.model.options, other.name)
    panel.model.value = other.name
    assert (panel._explorer.lm, panel._explorer.corpus) == (other, "smollm2-135m")


def test_an_edit_is_cancelled_and_reported(panel, monkeypatch):
    monkeypatch.setattr(panels, "EVERY", 0)
    told = []

    def cancel(change):
        if "passes of the model" in change["new"]:
            told.append(change["new"])
            panel.cancel.click()

    panel.status.observe(cancel, "value")
    panel.button.click()
    panel.wait()
    assert [text.partition(",")[0] for text in told] == ["Editing… 1 passes of the model"]
    assert "cancelled" in panel.status.value
    assert panel.outcome is None
    assert panel.cancel.disabled
    assert not panel.button.disabled


@pytest.fixture
def chain_panel(chains, explorer):
    outcome = chains.explore(chains.edits[0], explorer.editor("rome"))
    return ChainPanel(chains, explorer, first=outcome)


def test_chains_follow_the_number_of_steps(chain_panel):
    assert len(chain_panel.chain.options) == 5  # all of them, and four
    whole = bytes(chain_panel.picture.value)
    assert whole.startswith(PNG)
    chain_panel.steps.value = 1
    assert [number for _, number in chain_panel.chain.options] == [ALL, 0]
    assert bytes(chain_panel.picture.value) != whole


def test_a_chain_is_walked_step_by_step(chain_panel):
    chain_panel.chain.value = 3
    chain = chain_panel.outcome.edit.chains[3]
    table = chain_panel.outcome.chain(3)
    assert table["object"].tolist() == [fact.object for fact in chain.facts]
    assert table["before"].between(0, 1).all()
    assert all(fact.cloze in chain_panel.details.value for fact in chain.facts)


def test_another_fact_is_edited(chain_panel):
    chain_panel.fact.value = 1
    chain_panel.button.click()
    chain_panel.wait()
    assert chain_panel.outcome.edit == chain_panel._chains.edits[1]
    assert "chains deducible before" in chain_panel.status.value
