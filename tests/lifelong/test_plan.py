"""Notebook 10's runs from parameters: order, turns, costs before the start, publication, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from helpers import UserError
from helpers.editing.build import build_editors
from helpers.lifelong import plan as plan_module
from helpers.lifelong import publish as publish_module
from helpers.lifelong.plan import LifelongParams, LifelongPlan, cost_table
from helpers.lifelong.publish import live_run, publication
from helpers.params import defaults_of
from helpers.paths import NOTEBOOKS
from helpers.results.archive import Archive
from helpers.results.publish import publish_parts

DEFAULTS = defaults_of(NOTEBOOKS / "10_lifelong.ipynb")


@pytest.fixture
def values(tiny, make_editor, tmp_path, monkeypatch, short_exam) -> dict[str, Any]:
    """Parameters of a small run on a tiny model."""
    lm = tiny("llama")
    monkeypatch.setattr(
        plan_module,
        "build_editors",
        lambda methods, lm, **_: {method: make_editor(method, lm) for method in methods},
    )
    monkeypatch.setattr(publish_module, "load_named", lambda *_, **__: lm)
    monkeypatch.setattr(plan_module, "REPOSITORY", tmp_path)
    assert build_editors is not plan_module.build_editors
    small = {"peak_cf": 1, "peak_t": 0, "chains": 1, "known": 2, "tokens": 150}
    return {
        **DEFAULTS,
        **small,
        "methods": ["ft-m", "ft-bf"],
        "in_turns": ["memit"],
        "turn_size": 2,
        "checkpoints": [1, 2],
    }


def test_every_method_has_its_turns_and_checkpoints(tiny, values):
    runs = LifelongPlan.of(values).runs(tiny("llama"))
    assert {str(key): (run.track.turn_size, run.checkpoints) for key, run in runs.items()} == {
        "measures: ft-m, turns of 1, order 0": (1, (1, 2)),
        "measures: ft-bf, turns of 1, order 0": (1, (1, 2)),
        "measures: memit, turns of 2, order 0": (2, (2,)),
    }


@pytest.mark.slow
def test_the_cost_is_of_what_is_missing(tiny, values):
    runs = LifelongPlan.of(values).runs(tiny("llama"))
    before = cost_table(runs).set_index("method")
    assert before["to make"].to_dict() == {"FT-M": 3, "FT-BF": 3, "MEMIT": 2}
    assert before["information"].to_dict() == {"FT-M": "once", "FT-BF": "all", "MEMIT": "once"}
    assert before.loc["FT-BF", "editing"] == pytest.approx(
        3 * before.loc["FT-M", "editing"] / 2 * 1.8 / 1.7
    )
    next(iter(runs.values())).complete()
    after = cost_table(runs).set_index("method")
    assert after.loc["FT-M", ["to make", "editing", "asking"]].tolist() == [0, 0, 0]


@pytest.mark.slow
def test_a_run_is_published_after_its_cost_is_printed_and_not_made_again(
    values, tmp_path, capsys, monkeypatch
):
    archive = Archive(tmp_path / "lifelong")
    folder = publish_parts(publication(values), archive)
    assert "to make" in capsys.readouterr().out
    stored = archive.get(folder.name)
    assert folder.name.endswith("_recalled")
    assert list(stored.tables) == [str(key) for key in stored.keys]
    assert len(stored.tables) == 3
    assert set(stored.tables["measures: ft-m, turns of 1, order 0"]["case_id"]) == {0, 1, 2}
    monkeypatch.setattr(
        plan_module.LifelongRun, "complete", lambda run: pytest.fail("it is made again")
    )
    publish_parts(publication(values), archive)


@pytest.mark.slow
def test_what_is_finished_is_published_as_it_grows(tiny, values, tmp_path):
    lm = tiny("llama")
    plan = LifelongPlan.of({**values, "checkpoints": [2]})
    live = live_run(lm, plan, {str(key): run for key, run in plan.runs(lm).items()})
    longer = publication({**values, "checkpoints": [2, 4]})
    archive = Archive(tmp_path / "lifelong")
    folder = publish_parts(longer, archive, from_store_only=True)
    stored = archive.get(folder.name)
    assert set(stored.tables) == set(live.tables)
    assert set(stored.tables["measures: memit, turns of 2, order 0"]["case_id"]) == {0, 2}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"stream": "recaled"}, "recaled"),
        ({"checkpoints": [10, 99_990]}, "a checkpoint is at 99990: lower checkpoints"),
        ({"checkpoints": [3, 7]}, "turn_size 10: no checkpoint of"),
        ({"in_turns": ["ft-bf"]}, "ft-bf is trained on all requests at once; name it under"),
        (
            {"methods": ["memit"], "in_turns": ["memit"], "turn_size": 1},
            "in_turns: memit is in methods as well; omit it here",
        ),
        ({"checkpoints": []}, "checkpoints: name at least one"),
        ({"methods": [], "in_turns": []}, "methods: name at least one"),
        ({"methods": ["ike"]}, "ike: it is of single edits"),
        ({"published": ["nosuch"]}, "no run 'nosuch'"),
        ({"known": -1}, "known: must be at least 0"),
    ],
    ids=str,
)
def test_what_a_run_could_not_use_is_refused(tmp_path, changed, message):
    params = LifelongParams({**DEFAULTS, **changed})
    with pytest.raises(UserError, match=message):
        params.check(tmp_path / "10_lifelong.yaml")
    assert LifelongParams(DEFAULTS).wrong_values() == []
