"""The plain path checks the engine; every benchmark runs; what is counted of the house holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks import coverage, gpu, house, locating, sequence
from benchmarks.editing import shape_threshold
from benchmarks.gpu_steps import STEPS, Setting
from benchmarks.plain import PLAIN, plain_responses, plain_scores
from helpers.cli import run_command
from helpers.editing.build import build_editor
from helpers.editing.mend import Mend, MendHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.weight_edit import apply
from helpers.results import statistics
from helpers.scoring.answers import Question, score_answers
from helpers.scoring.responses import Sampling, sample_tokens
from tests.scoring.random_edits import random_edits
from tools.train_mend.trainer import untrained

pytestmark = pytest.mark.slow

TINY = Setting("cpu", "float32", records=2, plain=1, tiny=True)


REQUESTS = [
    EditRequest("Mars", "{} is a planet near", "Venus", ("Earth",)),
    EditRequest("Lake Chad", "The shore of {} touches", "Peru", ("Niger",)),
    EditRequest("Bach", "{} wrote", "Aida", ("fugues", "a mass")),
]
VECTOR = {"layers": (1, 2), "v_num_grad_steps": 8, "context_template_length_params": ()}
QUICK = {
    "rome": VECTOR | {"layers": (1,)},
    "alphaedit": VECTOR | {"nullspace_threshold": 1e9},
    "ft-m": {"num_steps": 4},
    "ft-l": {"num_steps": 4},
    "kn": {"steps": 2, "at": "activation", "context_template_length_params": ()},
}


def quick_editor(name, model):
    if name == "mend":
        network = untrained(model, (2, 3), 4)
        return Mend(model, MendHyperparameters(layers=(2, 3), rank=4), network=network)
    how = {"preset": "generic", "corpus": "self-64x32", "overrides": QUICK.get(name, VECTOR)}
    editor = build_editor(name, model, **how)
    return shape_threshold(editor) if name == "alphaedit" else editor


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("architecture", ["qwen2", "gemma3"])
def test_batched_edits_equal_the_plain_path(tiny, architecture, name, tmp_path, monkeypatch):
    """The plain path shares no code with the engine: whole sequences, dense solves, one at a time."""
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path))
    editor, plain = quick_editor(name, tiny(architecture)), PLAIN[name]
    if name == "kn":
        ours = editor.attributions(REQUESTS[0])[0][0]
        torch.testing.assert_close(ours, plain(editor, REQUESTS[0]), atol=1e-6, rtol=1e-3)
        return
    for request, update in zip(REQUESTS, editor.edit(REQUESTS), strict=True):
        expected = plain(editor, request)
        assert set(update) == set(expected)
        for module, delta in update.items():
            dense = expected[module].dense()
            torch.testing.assert_close(delta.dense(), dense, atol=2e-4, rtol=2e-3)


def test_scores_under_an_update_equal_the_plain_path(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path))
    model = tiny("llama")
    updates = quick_editor("memit", model).edit(REQUESTS)
    questions = [Question(r.text, (r.target, "Rome", "Paris, France")) for r in REQUESTS]
    ours = score_answers(model, questions, updates, range(len(updates)))
    plain: list[float] = []
    for question, update in zip(questions, updates, strict=True):
        with apply(model, update):
            plain += plain_scores(model, [question])
    np.testing.assert_allclose(ours["mean"], plain, atol=1e-4)


def test_responses_under_an_update_equal_the_plain_path(tiny):
    model = tiny("llama")
    updates = random_edits(model)[::4]
    prompts = [request.text for request in REQUESTS[: len(updates)]]
    sampling = Sampling(temperature=0, max_new_tokens=9)
    ours = sample_tokens(model, prompts, updates, range(len(updates)), sampling)
    plain = plain_responses(model, prompts, updates, 9)
    assert [ids for (ids,) in ours] == plain


def test_a_gpus_steps_measure_on_a_cpu(tmp_path):
    file = tmp_path / "gpu.jsonl"
    for step in (step for step in STEPS if step.name in ("gradients", "ft-m")):
        gpu.measure(step, TINY, file)
        assert gpu._made(step, TINY, file, float("inf")) == "done before"
    lines = gpu.read(file)
    assert all(line.get("finite", True) and line.get("relative error", 0) < 0.02 for line in lines)
    assert "| ft-m, ours | records 2, seconds a record" in gpu.table(lines)


def test_the_house_is_counted():
    rooms = house.lines_by_room()
    assert sum(room["files"] for room in rooms.values()) == len(house.python_files())
    for word, most in house.ADDITIONS.values():
        assert 1 <= len(house.files_naming(word)) <= most
    assert "klob/metrics.py" in house.modules_to_a_number("05", "criteria_text")


def test_coverage_counts_what_intervals_hold() -> None:
    """A drawn population of shares: ours covers, and units of relations keep their sums."""
    values = pd.Series([1.0, 0.5, 0.0] * 4, pd.Index([f"P{n}" for n in range(12)], name="relation"))
    source = statistics.units_of(values)
    sample = coverage.drawn(source, 9, np.random.default_rng(0), relations=9)
    again = statistics.units_of(coverage.as_records(sample))
    assert again.mean == pytest.approx(sample.mean)
    assert again.relation_count == 9
    assert coverage.covered(coverage.ours(source, "share"), source.mean)[0] == 1
    assert coverage.covered((0.6, 0.9), 0.5) == (0, pytest.approx(0.3))


def test_further_edits_of_a_sequence_are_measured_upon_one_edit_and_upon_many(capsys) -> None:
    sequence.main(model="shape:tiny", methods="memory-bm25", edits=12, further=2)
    _, upon_one, upon_many, ratios = capsys.readouterr().out.splitlines()
    assert upon_one.startswith("memory-bm25 upon 1:")
    assert upon_many.startswith("memory-bm25 upon 12:")
    seconds = [float(line.split(": ")[1].split(" s ")[0]) for line in (upon_one, upon_many)]
    ratio = float(ratios.split("upon 12 is ")[1].split()[0])
    assert ratio == pytest.approx(seconds[0] / seconds[1], rel=0.5)


def test_a_mistake_in_a_benchmarks_options_is_one_line(monkeypatch, capsys) -> None:
    """Each ends by ``run_command``, which answers as ``helpers`` does."""
    monkeypatch.setattr("sys.argv", ["locating", "--model", "no-such-model"])
    with pytest.raises(SystemExit) as stop:
        run_command(locating.main)
    assert stop.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: no model 'no-such-model'")
    for path in Path(locating.__file__).parent.glob("*.py"):
        assert "typer.run(" not in path.read_text()
