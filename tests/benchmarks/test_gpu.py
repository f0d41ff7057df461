"""The GPU's one command, on a CPU with tiny shapes: every step, errors, limits, going on."""

from __future__ import annotations

import json
from functools import partial

import pytest

from benchmarks import gpu
from benchmarks.gpu_steps import STEPS, Setting, Step

TINY = Setting("cpu", "float32", records=2, plain=1, tiny=True)
IN_TEN_MINUTES = 560  # the machine's start and the summary come on top


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_every_step_measures_on_a_cpu(step, tmp_path):
    file = tmp_path / "gpu.jsonl"
    gpu.measure(step, TINY, file)
    *found, done = gpu.read(file)
    assert done["done"]
    assert found
    for line in found:
        assert line["step"] == step.name
        assert line.get("seconds a record", 1) > 0
        assert line.get("finite", True)
        assert line.get("relative error", 0) < 0.02
    assert step.seconds <= IN_TEN_MINUTES


def test_a_failed_step_is_recorded_and_the_next_one_runs(tmp_path, capsys):
    """In processes of their own: no model has that type, and the gradients need none."""
    file = tmp_path / "gpu.jsonl"
    chosen = [Step("gradients", 90, STEPS[1].run)]
    wrong = Setting("cpu", "no-such-type", records=1, plain=1, tiny=True)
    gpu._all([next(s for s in STEPS if s.name == "scoring"), *chosen], wrong, file, float("inf"))
    lines = gpu.read(file)
    assert "no-such-type" in next(line["error"] for line in lines if "error" in line)
    assert gpu.is_done(chosen[0], wrong, lines)
    elsewhere = [line | {"machine": "another"} for line in lines]
    assert not gpu.is_done(chosen[0], wrong, elsewhere)  # its numbers are not this machine's
    assert "scoring | failed: " in gpu.table(lines)
    before = file.read_text()
    gpu._all(chosen, wrong, file, float("inf"))  # brought back: nothing is measured again
    assert file.read_text() == before
    assert "gradients: done before" in capsys.readouterr().out


def test_a_step_that_takes_too_long_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "limit", lambda step, setting: 0.5)
    file = tmp_path / "gpu.jsonl"
    gpu._all(STEPS[:1], TINY, file, float("inf"))
    (line,) = gpu.read(file)
    assert "took longer" in line["error"]
    assert not gpu.is_done(STEPS[0], TINY, [line])


def test_no_step_is_started_that_might_not_end_in_time(tmp_path, capsys):
    file = tmp_path / "gpu.jsonl"
    gpu._all(STEPS, TINY, file, ends=0.0)
    assert not file.exists()
    assert capsys.readouterr().out.count("left for the next call") == len(STEPS)


def test_measurements_are_written_one_by_one(tmp_path):
    file = tmp_path / "gpu.jsonl"

    def breaks(_):
        yield {"name": "first", "seconds a record": 1.0}
        raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="luck"):
        gpu.measure(Step("made", 1, breaks), TINY, file)
    assert [line["name"] for line in gpu.read(file)] == ["first"]
    with file.open("a") as stream:
        stream.write(json.dumps({"step": "cut"})[:-3])
    assert len(gpu.read(file)) == 1


def test_the_table_shows_the_newest_of_each_measurement(tmp_path):
    file = tmp_path / "gpu.jsonl"
    for seconds in (2.0, 1.5):
        run = partial(iter, [{"name": "rome, ours", "seconds a record": seconds}])
        gpu.measure(Step("made", 1, lambda _, run=run: run()), TINY, file)
    shown = gpu.table(gpu.read(file))
    assert "| rome, ours | seconds a record 1.5 |" in shown
    assert "seconds a record 2" not in shown
    assert "tiny shapes" in shown


def test_shapes_get_a_threshold_below_which_something_lies():
    editor = TINY.editor("alphaedit")
    for layer in editor.hyperparameters.layers:
        assert 0 < editor.null_space(layer).dimension < editor.null_space(layer).occupied.shape[0]
