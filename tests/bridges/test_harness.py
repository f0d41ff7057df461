"""The evaluation harness on edited models: local tasks, and its own backend as the measure."""

from __future__ import annotations

import copy
import json
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("lm_eval", reason="needs the extra 'harness'")

import torch
from lm_eval import simple_evaluate
from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model
from lm_eval.config.evaluate_config import EvaluatorConfig
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

from helpers import UserError
from helpers.bridges.harness import EditedModel
from helpers.editing.in_context import ContextEdit
from helpers.editing.interventions import LowRank
from helpers.editing.memory import MemoryEdit
from helpers.editing.weight_edit import WeightEdit
from helpers.models.tokens import TokenError
from helpers.scoring.answers import Question, score_answers
from tests.editing.test_edits import shift

CAPITALS = [
    {"country": "Sudan", "choices": ["Khartoum", "Lima", "Oslo"], "gold": 0},
    {"country": "Peru", "choices": ["Oslo", "Lima and Callao", "Rome"], "gold": 1},
    {"country": "Norway", "choices": ["Rome", "Oslo"], "gold": 1},
]
TASK = """
task: {name}
dataset_path: json
dataset_kwargs:
  data_files: {{test: {folder}/capitals.jsonl}}
  cache_dir: {folder}/cache
test_split: test
doc_to_text: "The capital of {{{{country}}}} is"
"""
CHOICE = """
output_type: multiple_choice
doc_to_choice: "{{choices}}"
doc_to_target: "{{gold}}"
metric_list: [{metric: acc}]
"""
GENERATED = """
output_type: generate_until
doc_to_target: " {{choices[gold]}}"
generation_kwargs: {until: ["e", "\\n\\n"], max_gen_toks: 12, do_sample: false}
metric_list: [{metric: exact_match}]
"""


@pytest.fixture
def tasks(tmp_path):
    """A manager of two tasks from files in a folder."""
    lines = [json.dumps(capital) for capital in CAPITALS]
    (tmp_path / "capitals.jsonl").write_text("\n".join(lines), "utf-8")
    for name, kind in (("capital_choice", CHOICE), ("capital_text", GENERATED)):
        text = TASK.format(name=name, folder=tmp_path) + kind
        (tmp_path / f"{name}.yaml").write_text(text, "utf-8")
    return TaskManager(include_path=str(tmp_path), include_defaults=False)


def responses(model, tasks) -> dict[str, list]:
    """What a model answered to each record, by task."""
    names = ["capital_choice", "capital_text"]
    results = simple_evaluate(model, tasks=names, task_manager=tasks, bootstrap_iters=0)
    assert set(results["results"]) == set(names)
    return {name: [s["filtered_resps"] for s in results["samples"][name]] for name in names}


def backend(lm) -> HFLM:
    """The harness's own: it sets the tokenizer up as it likes."""
    return HFLM(
        pretrained=lm.network, tokenizer=copy.deepcopy(lm.tokenizer), batch_size=2, device="cpu"
    )


def weight_edit(lm) -> WeightEdit:
    generator = torch.Generator().manual_seed(1)
    left = torch.randn(lm.layout.hidden_size, 1, generator=generator)
    right = torch.randn(lm.layout.intermediate_size, 1, generator=generator)
    return WeightEdit({lm.layout.mlp_out(1): LowRank(0.5 * left, 0.5 * right)})


def requests(kind: str, *arguments: tuple) -> list[Instance]:
    return [Instance(kind, {}, args, number) for number, args in enumerate(arguments)]


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_tasks_give_what_the_harness_gives_and_other_numbers_under_an_edit(
    tiny, tasks, architecture
):
    lm = tiny(architecture)
    expected = responses(backend(lm), tasks)
    unedited = responses(EditedModel(lm), tasks)
    assert unedited["capital_text"] == expected["capital_text"]
    assert any(texts[0] for texts in expected["capital_text"])
    for ours, theirs in zip(unedited["capital_choice"], expected["capital_choice"], strict=True):
        np.testing.assert_allclose([s for s, _ in ours], [s for s, _ in theirs], atol=1e-4)
        assert [is_greedy for _, is_greedy in ours] == [is_greedy for _, is_greedy in theirs]

    edit = weight_edit(lm)
    edited = responses(EditedModel(lm, edit), tasks)
    questions = [
        Question(f"The capital of {capital['country']} is", tuple(capital["choices"]))
        for capital in CAPITALS
    ]
    scores = score_answers(lm, questions, [edit], [0] * len(questions))["sum"]
    found = [score for of_record in edited["capital_choice"] for score, _ in of_record]
    np.testing.assert_allclose(found, scores, atol=1e-4)
    assert edited["capital_text"] != unedited["capital_text"]


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_whole_and_long_texts_are_scored_as_the_harness_scores_them(tiny, architecture):
    lm = tiny(architecture)
    ours, theirs = EditedModel(lm), backend(lm)
    texts = requests("loglikelihood_rolling", ("the sea is blue",), ("a b c " * 180,))
    assert len(lm.tokenizer("a b c " * 180)["input_ids"]) > lm.context_length
    np.testing.assert_allclose(
        ours.loglikelihood_rolling(texts), theirs.loglikelihood_rolling(texts), rtol=1e-5
    )
    pairs = requests(
        "loglikelihood", ("", "the sea"), ("x" * 600, " y"), ("ends with a blank ", "z")
    )
    expected = theirs.loglikelihood(pairs)
    np.testing.assert_allclose(
        [score for score, _ in ours.loglikelihood(pairs)], [s for s, _ in expected], atol=1e-4
    )
    settings = {"until": ["q"], "max_gen_toks": 8}
    long = requests("generate_until", ("x" * 600, settings), ("ends with a blank ", settings))
    assert ours.generate_until(long) == theirs.generate_until(long)


def test_a_context_edit_is_its_text_before_the_request(tiny):
    lm = tiny("llama")
    edit = ContextEdit("Imagine that it is so.\n")
    edited, unedited = EditedModel(lm, edit), EditedModel(lm)
    (under_edit,) = edited.loglikelihood(requests("loglikelihood", ("the sea", " is blue")))
    written = requests("loglikelihood", (edit.text + "the sea", " is blue"))
    assert under_edit[0] == pytest.approx(unedited.loglikelihood(written)[0][0], abs=1e-4)
    settings = {"until": [], "max_gen_toks": 6}
    assert edited.generate_until(requests("generate_until", ("the sea", settings))) == (
        unedited.generate_until(requests("generate_until", (edit.text + "the sea", settings)))
    )
    # A text as long as the context leaves room for the edit's own.
    whole = requests("loglikelihood_rolling", ("x" * 600,))
    assert np.isfinite(edited.loglikelihood_rolling(whole)).all()
    assert np.isfinite(edited.loglikelihood(requests("loglikelihood", ("x" * 600, " y")))[0][0])
    too_long = EditedModel(lm, ContextEdit("It is so. " * 60))
    short = requests("loglikelihood", ("the sea", " is blue"))
    with pytest.raises(TokenError, match="exceed the context of 512"):
        too_long.loglikelihood(short)
    with pytest.raises(TokenError, match="fills the context of 512 tokens, and no text fits"):
        too_long.loglikelihood_rolling(requests("loglikelihood_rolling", ("the sea",)))


def test_memories_and_gates_see_the_requests_context(tiny):
    lm = tiny("llama")
    statement = "The sea is made of glass"
    memory = MemoryEdit((statement,), ("The sea",), ("The sea",), threshold=0.1, k=1)
    pairs = requests("loglikelihood", ("the glass sea", " is blue"), ("Ada lives", " here"))
    texts = ["Imagine that The sea is made of glass.\nthe glass sea", "Ada lives"]
    written = requests("loglikelihood", (texts[0], " is blue"), (texts[1], " here"))
    np.testing.assert_allclose(
        [score for score, _ in EditedModel(lm, memory).loglikelihood(pairs)],
        [score for score, _ in EditedModel(lm).loglikelihood(written)],
        atol=1e-4,
    )
    hidden = MemoryEdit(
        (statement,),
        ("The sea",),
        ("The sea",),
        threshold=0.1,
        k=1,
        keys=torch.ones(1, 32),
        center=torch.zeros(32),
        layer=1,
    )
    whole = requests("loglikelihood_rolling", ("the sea is blue",))
    assert EditedModel(lm, hidden).loglikelihood_rolling(whole) == EditedModel(
        lm
    ).loglikelihood_rolling(whole)

    gated = shift(lm)
    question = Question("the sea of glass", ("and fire", "Norway"))
    expected = score_answers(lm, [question], [gated], [0])["sum"]
    of_question = [(question.prompt, f" {answer}") for answer in question.answers]
    scores = EditedModel(lm, gated).loglikelihood(requests("loglikelihood", *of_question))
    np.testing.assert_allclose([score for score, _ in scores], expected, atol=1e-4)


def test_settings_that_generation_lacks_are_named(tiny):
    model = EditedModel(tiny("llama"))
    greedy = {"until": ["."], "max_gen_toks": 4, "top_p": 0.9}
    assert len(model.generate_until(requests("generate_until", ("the sea", greedy)))) == 1
    sampled = {**greedy, "do_sample": True, "temperature": 0.7}
    with pytest.raises(UserError, match="no setting top_p: remove it from the task's"):
        model.generate_until(requests("generate_until", ("the sea", sampled)))
    del sampled["top_p"]
    (text,) = model.generate_until(requests("generate_until", ("the sea", sampled)))
    assert "." not in text


def test_the_harness_loads_a_model_and_a_saved_edit_by_name(tiny, tmp_path):
    lm = tiny("llama")
    for part in (lm.network, lm.tokenizer):
        part.save_pretrained(tmp_path / "model")
    edit = weight_edit(lm)
    edit.save(tmp_path / "edit.safetensors")
    arguments = f"model={tmp_path / 'model'},edit={tmp_path / 'edit.safetensors'}"
    options = {"batch_size": 1, "max_batch_size": None, "device": None}
    loaded = get_model("helpers").create_from_arg_string(arguments, options)
    pairs = requests("loglikelihood", ("the sea", " is blue"))
    (score,) = loaded.loglikelihood(pairs)
    assert score[0] == pytest.approx(EditedModel(lm, edit).loglikelihood(pairs)[0][0], abs=1e-5)


def test_without_a_gpu_the_harness_own_default_is_the_cpu(tiny, tmp_path, monkeypatch):
    """Its command asks for ``cuda:0`` where no device is named."""
    lm = tiny("llama")
    for part in (lm.network, lm.tokenizer):
        part.save_pretrained(tmp_path / "model")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    loaded = EditedModel(str(tmp_path / "model"), device=EvaluatorConfig().device)
    assert loaded.device.type == "cpu"
    with pytest.raises(UserError, match="cuda:1"):
        EditedModel(str(tmp_path / "model"), device="cuda:1")


def test_the_command_line_knows_the_model(tmp_path):
    command = [sys.executable, "-m", "helpers.bridges.harness", "run", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "--model_args" in shown
