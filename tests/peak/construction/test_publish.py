"""Notebook 02 published: the notebook's own settings, made once, and never from official files."""

from __future__ import annotations

import json

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from helpers import UserError, models
from helpers.params import read_params
from helpers.paths import PARAMS
from helpers.peak.construction import publish as publishing
from helpers.peak.construction.publish import _source, publication, settings_of
from helpers.results.archive import About, Archive, archive
from helpers.results.figure import published_figures
from helpers.results.publish import publish_parts

QUICK = PARAMS / "quick" / "02_peak_construction.yaml"
COUNTRIES = [f"Land {number}" for number in range(10, 40)]


@pytest.fixture
def params(tmp_path):
    facts = tmp_path / "facts.tsv"
    rows = ["subject\trelation\tobject\tsubject_types\tobject_types"]
    for place, country in enumerate(COUNTRIES):
        others = (COUNTRIES[(place + step) % len(COUNTRIES)] for step in (1, 2, 3))
        rows += [f"{country}\tP47\t{other}\tcountry\tcountry" for other in others]
    facts.write_text("\n".join(rows) + "\n", "utf-8")
    sizes = {"least_correct": 2, "least_hard": 1, "link_steps": 1, "source": str(facts)}
    return {**read_params(QUICK), **sizes}


def test_published_is_what_the_notebook_makes(tiny):
    """The committed run was stored by the notebook: its settings are those that publish uses."""
    published = archive("construction").get("packaged_smollm2-135m").about.source
    source = _source(read_params(QUICK), tiny("llama"))
    same_model = {key: published[key] for key in tiny("llama").identity}
    assert json.loads(json.dumps({**source, **same_model})) == published


def test_a_construction_is_made_once(params, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(models, "load_named", lambda _: tiny("llama"))
    into = Archive(tmp_path / "construction")
    folder = publish_parts(publication(params), into)
    run = into.get(folder.name)
    assert set(run.tables) == {"funnel", "filter"}
    assert run.tables["funnel"]["left"].iloc[0] == 2 * len(COUNTRIES)  # both ways
    monkeypatch.setattr(publishing, "read_graph", None)  # making it again would fail
    assert publish_parts(publication(params), into) == folder
    monkeypatch.undo()
    monkeypatch.setattr(models, "load_named", lambda _: tiny("llama"))
    wanting = {**params, "least_correct": 40, "most_correct": 50}
    with pytest.raises(UserError, match="becomes a candidate"):
        publish_parts(publication(wanting), Archive(tmp_path / "other"))


def test_the_funnel_shows_the_stored_numbers(tmp_path):
    source = {"facts": "ours", "model": "m", "dtype": "float32", "device": "cpu", "rule": "rank"}
    rows = [("CF", "facts", 900), ("CF", "enough", 40), ("CF", "known", 2), ("T", "facts", 900)]
    funnel = pd.DataFrame(rows, columns=["set", "step", "left"])
    Archive(tmp_path / "construction").put("ours_m", {"funnel": funnel}, About(source))
    drawn = published_figures(tmp_path, chapter="02")["02_funnel_ours_m"].draw()
    (axes,) = drawn.axes
    bars_of_cf, bars_of_t = axes.containers
    assert [bar.get_width() for bar in bars_of_cf] == pytest.approx([100 * 40 / 900, 5])
    assert len(bars_of_t) == 0  # it has one step
    assert [text.get_text() for text in axes.texts] == ["40", "2"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["enough", "known"]
    title = drawn.get_suptitle().replace("\u00a0", " ").replace("\n", " ")
    assert title == "CF loses most facts where “enough” keeps 4 % and “known” keeps 5 %"
    plt.close(drawn)


def test_every_size_acts_on_the_set_that_its_comment_names():
    quick = read_params(QUICK)
    base_cf, base_t, _ = settings_of(quick)
    assert (base_t.correct, base_t.hard) == ((4, 15), (1, 15))
    of_cf, of_t, _ = settings_of({**quick, "least_correct": 9, "most_hard": 14})
    assert (of_cf.correct, of_cf.hard, of_t) == ((9, 20), (5, 14), base_t)
    temporal = {"temporal_least_correct": 5, "temporal_most_correct": 9, "temporal_most_hard": 7}
    of_cf, of_t, _ = settings_of({**quick, **temporal})
    assert (of_t.correct, of_t.hard, of_cf) == ((5, 9), (1, 7), base_cf)
    both = settings_of({**quick, "random_false": 8, "paraphrases": 1, "most_locality": 3})[:2]
    for settings in both:
        assert (settings.random_false, settings.paraphrases, settings.locality) == (8, 1, (1, 3))


def test_steps_of_several_sets_keep_the_order_of_each():
    funnels = [pd.DataFrame({"step": list(steps)}) for steps in ("abd", "acbe")]
    assert publishing._steps_of_all(funnels) == ["a", "c", "b", "e", "d"]
