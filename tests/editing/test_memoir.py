"""MEMOIR: masks and memory by hand, gates against transformers with a hook written here, what is refused."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.editing.edit import Edit, EditError
from helpers.editing.editors import EditorError
from helpers.editing.held_out import first_held_out
from helpers.editing.interventions import Dense, LowRank
from helpers.editing.masks import BestMask
from helpers.editing.memoir import ResidualMemory
from helpers.editing.presets import read_hyperparameters
from helpers.editing.request import EditRequest, RequestError
from helpers.editing.weight_edit import WeightEdit
from helpers.models.tokens import answer_ids, ids_of_prompts
from helpers.scoring.answers import Question, score_answers
from helpers.scoring.responses import Sampling, sample_tokens
from tests.editing.conftest import CONTEXTS
from tests.editing.test_edits import ARCHITECTURES, QUESTIONS, mixed_edits

GREEDY = Sampling(temperature=0, max_new_tokens=5, chat=False)


def gate_of(masks: list[list[int]], least_overlap: int, mask_size: int = 2) -> BestMask:
    """Over four inputs that stay where they are, with a memory of ones for two outputs."""
    return BestMask(
        columns=torch.arange(4),
        memory=torch.ones(2, 4),
        masks=torch.tensor(masks, dtype=torch.bool),
        center=torch.zeros(4),
        permutation=torch.arange(4),
        mask_size=mask_size,
        least_overlap=least_overlap,
    )


def test_masks_and_overlaps_by_hand() -> None:
    gate = gate_of([[1, 1, 0, 0], [0, 1, 1, 0]], least_overlap=2)
    queries = torch.tensor([[3.0, -2, 1, 0], [0, -5, 4, 1], [0, 0, 3, -3]])
    assert gate.hashed(queries).int().tolist() == [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    assert gate.overlaps(queries).tolist() == [[2, 1], [1, 2], [0, 1]]
    assert gate.decide(queries).tolist() == [0, 1, -1]
    assert gate.nearness(queries).tolist() == [1, 1, 0.5]
    assert replace(gate, least_overlap=1).decide(queries).tolist() == [0, 1, 1]
    centred = replace(gate, center=torch.tensor([3.0, 0, 0, 0]))
    assert centred.hashed(queries[:1]).int().tolist() == [[0, 1, 1, 0]]
    turned = replace(gate, permutation=torch.tensor([3, 2, 1, 0]))
    assert turned.hashed(queries[:1]).int().tolist() == [[0, 0, 1, 1]]
    entering = torch.tensor([[1.0, 10, 100, 1000]])
    changed = gate.change(entering, torch.zeros(1, 2), torch.tensor([1]))
    assert changed.tolist() == [[110.0, 110.0]]  # the stored mask, not the prompt's own


def test_a_stored_mask_is_stored_once_and_the_rest_of_the_memory_decays() -> None:
    empty = replace(
        gate_of([[0, 0, 0, 0]], least_overlap=2),
        columns=torch.empty(0, dtype=torch.long),
        memory=torch.empty(2, 0),
        masks=torch.empty(0, 0, dtype=torch.bool),
    )
    first, second = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 0]]).bool()
    gate = empty.with_mask(first, torch.full((2, 2), 8.0))
    gate = gate.with_mask(second, torch.full((2, 2), 3.0), decay=0.5)
    assert gate.dense_memory().tolist() == [[4.0, 3.0, 3.0, 0.0]] * 2
    assert (gate.columns.tolist(), gate.masks.int().tolist()) == ([0, 1, 2], [[1, 1, 0], [0, 1, 1]])
    gate = gate.with_mask(second, torch.full((2, 2), 7.0))
    assert gate.masks.shape == (2, 3)
    assert gate.dense_memory().tolist() == [[4.0, 7.0, 7.0, 0.0]] * 2


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_one_step_with_all_columns_is_minus_the_gradient(
    tiny, make_editor, requests, architecture
) -> None:
    """M = -lr sum g k^T over all tokens, with gradients that transformers gives."""
    lm = tiny(architecture)
    settings = {"mask_share": 1.0, "num_steps": 1, "lr": 0.5, "gradient_norm": 1e9}
    editor = make_editor("memoir", lm, **settings)
    (edit,) = editor.edit(requests[:1])
    request = requests[0]
    target = answer_ids(lm, request.target)
    expected = torch.zeros_like(edit.gate.dense_memory())
    for template in CONTEXTS:
        text = template.replace("{}", request.text)
        prompt = ids_of_prompts(lm, [text])[text]
        recorded: list[Tensor] = []

        def record(module, arguments, output, recorded=recorded):
            output = output.detach().requires_grad_(True)
            recorded[:] = [arguments[0].detach(), output]
            return output

        with lm.module(editor.module_name).register_forward_hook(record):
            logits = lm.network(torch.tensor([[*prompt, *target[:-1]]])).logits[0]
        log_probabilities = logits[len(prompt) - 1 :].log_softmax(-1)
        loss = -log_probabilities[torch.arange(len(target)), list(target)].mean()
        (gradient,) = torch.autograd.grad(loss / len(CONTEXTS), recorded[1])
        expected -= 0.5 * gradient[0].T @ recorded[0][0]
    torch.testing.assert_close(edit.gate.dense_memory(), expected, rtol=1e-3, atol=1e-6)
    # With a threshold of 0 it acts after all prompts: then it is an edit of weights.
    everywhere = replace(edit, gate=replace(edit.gate, least_overlap=0))
    dense = WeightEdit({editor.module_name: Dense(expected)})
    scores = [score_answers(lm, QUESTIONS, [one], [0] * 4)["sum"] for one in (everywhere, dense)]
    np.testing.assert_allclose(*scores, atol=1e-4)


def test_a_long_gradient_is_clipped(tiny, make_editor, requests) -> None:
    settings = {"num_steps": 1, "lr": 0.25, "gradient_norm": 1e-3}
    for edit in make_editor("memoir", tiny("llama"), **settings).edit(requests):
        assert float(edit.gate.memory.norm()) == pytest.approx(0.25e-3, rel=1e-2)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_memoir_writes_its_targets_batched_as_alone(
    tiny, make_editor, requests, target_scores, architecture
) -> None:
    lm = tiny(architecture)
    editor = make_editor("memoir", lm)
    together = editor.edit(requests)
    gains = target_scores(lm, requests, together) - target_scores(lm, requests)
    assert (gains > 0).all()
    for request, edit in zip(requests, together, strict=True):
        (alone,) = editor.edit([request])
        assert torch.equal(alone.gate.columns, edit.gate.columns)
        assert alone.gate.least_overlap == edit.gate.least_overlap
        largest = float(alone.gate.memory.abs().max())
        torch.testing.assert_close(
            alone.gate.memory, edit.gate.memory, rtol=1e-3, atol=1e-4 * largest
        )
        assert alone.diagnostics["steps"] == edit.diagnostics["steps"] == 8


def test_a_threshold_above_one_is_the_unedited_model_to_the_bit(
    tiny, make_editor, requests
) -> None:
    lm = tiny("llama")
    (edit,) = make_editor("memoir", lm, threshold=1.5).edit(requests[:1])
    answered = [Question(requests[0].text, ("Rome", "Oslo by the sea"))]
    under_edit = score_answers(lm, answered, [edit], [0])
    assert (under_edit["sum"] == score_answers(lm, answered)["sum"]).all()


def disjoint(editor, requests) -> bool:
    masks = editor.empty().gate.hashed(editor.queries([request.text for request in requests]))
    return int(masks.sum(0).max()) == 1


def test_edits_with_disjoint_masks_commute(tiny, make_editor, requests) -> None:
    lm = tiny("llama")
    editor = make_editor("memoir", lm, mask_share=0.05, num_steps=4)
    assert disjoint(editor, requests[:2])
    *_, one = editor.edit_sequentially(requests[:2])
    *_, other = editor.edit_sequentially(requests[1::-1])
    torch.testing.assert_close(one.gate.dense_memory(), other.gate.dense_memory())
    first, second = editor.edit(requests[:2])
    sum_of_both = first.gate.dense_memory() + second.gate.dense_memory()
    torch.testing.assert_close(one.gate.dense_memory(), sum_of_both)


def test_weight_decay_takes_from_older_edits(tiny, make_editor, requests) -> None:
    lm = tiny("llama")
    settings = {"mask_share": 0.05, "num_steps": 4, "lr": 0.5}
    editor = make_editor("memoir", lm, weight_decay=0.1, **settings)
    assert disjoint(editor, requests[:2])
    first, second = editor.edit_sequentially(requests[:2])
    older_columns = first.gate.columns
    torch.testing.assert_close(
        second.gate.dense_memory()[:, older_columns], 0.95**4 * first.gate.memory
    )


def test_a_sequence_of_memoir_is_one_memory(tiny, make_editor, requests, target_scores) -> None:
    lm = tiny("llama")
    editor = make_editor("memoir", lm)
    *_, total = editor.edit_sequentially(requests)
    assert isinstance(total, ResidualMemory)
    assert total.diagnostics["masks"] == len(requests)
    recognised = total.recognised(lm, [request.text for request in requests])
    assert recognised == [(0, 1.0), (1, 1.0), (2, 1.0)]
    all_under_total = [total] * len(requests)
    gains = target_scores(lm, requests, all_under_total) - target_scores(lm, requests)
    assert (gains > 0).all()
    again = editor.edit_on(total, requests[:1])
    assert again.diagnostics["masks"] == len(requests)  # the same prompt has its mask
    jointly = editor.edit_jointly(requests)
    assert torch.equal(jointly.gate.memory, total.gate.memory)


def test_an_edit_is_done_where_its_loss_is_small_and_hardly_changes(
    tiny, make_editor, requests
) -> None:
    easy = {"stop_threshold": 100.0, "stop_change": 100.0}
    (edit,) = make_editor("memoir", tiny("llama"), **easy).edit(requests[:1])
    assert (edit.diagnostics["steps"], len(edit.diagnostics["losses"])) == (1, 2)
    for never in ({"stop_threshold": 0.0}, {"stop_change": 0.0}):
        (edit,) = make_editor("memoir", tiny("llama"), **{**easy, **never}).edit(requests[:1])
        assert edit.diagnostics["steps"] == 8


def test_a_request_that_is_done_leaves_the_others_as_they_are(tiny, make_editor, requests) -> None:
    lm = tiny("llama")
    losses = [edit.diagnostics["losses"] for edit in make_editor("memoir", lm).edit(requests)]
    last_losses = sorted(of_edit[-1]["nll"] for of_edit in losses)
    editor = make_editor("memoir", lm, stop_threshold=last_losses[0] + 1e-6, stop_change=100.0)
    together = editor.edit(requests)
    steps = [edit.diagnostics["steps"] for edit in together]
    assert min(steps) < max(steps) == 8
    for request, edit in zip(requests, together, strict=True):
        (alone,) = editor.edit([request])
        torch.testing.assert_close(alone.gate.memory, edit.gate.memory, rtol=1e-3, atol=1e-6)


@contextmanager
def by_hand(lm, edit: ResidualMemory, prompt_length: int) -> Iterator[None]:
    """A hook that decides from the prompt's tokens and changes all."""
    gate = edit.gate

    def hook(module, arguments, output):
        (entering,) = arguments
        feature = entering[0, :prompt_length].mean(0) - gate.center
        largest = feature.abs().topk(gate.mask_size).indices
        own_mask = {int(gate.permutation[index]) for index in largest}
        stored = [{int(c) for c in gate.columns[mask]} for mask in gate.masks]
        overlaps = [len(own_mask & mask) for mask in stored]
        best = int(np.argmax(overlaps))
        if overlaps[best] < gate.least_overlap:
            return None
        mask = torch.zeros(entering.shape[-1])
        mask[list(stored[best])] = 1
        return output + (entering * mask) @ gate.dense_memory().T

    with lm.module(edit.module_name).register_forward_hook(hook), torch.no_grad():
        yield


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_packed_scores_and_generation_are_those_of_each_prompt_by_hand(
    tiny, make_editor, requests, architecture
) -> None:
    """Prompts that begin others, some of which fire: the gate sees a prompt's tokens and no other's."""
    lm = tiny(architecture)
    *_, edit = make_editor("memoir", lm, lr=20.0).edit_sequentially(requests)
    own_questions = [Question(request.text, ("Rome", "Oslo by the sea")) for request in requests]
    questions = [*QUESTIONS, *own_questions]
    edit = replace(edit, gate=replace(edit.gate, least_overlap=6))  # of 12: half of them fire
    fired = [entry >= 0 for entry, _ in edit.recognised(lm, [q.prompt for q in questions])]
    assert all(fired[-3:])
    table = score_answers(lm, questions, [edit], [0] * len(questions))
    generated = sample_tokens(
        lm, [q.prompt for q in questions], [edit], [0] * len(questions), GREEDY
    )
    for number, question in enumerate(questions):
        prompt = ids_of_prompts(lm, [question.prompt])[question.prompt]
        of_question = table[table["question"] == number]["sum"].to_numpy()
        for answer, score in zip(question.answers, of_question, strict=True):
            answered = answer_ids(lm, answer)
            with by_hand(lm, edit, len(prompt)):
                logits = lm.network(torch.tensor([[*prompt, *answered[:-1]]])).logits[0]
            log_probabilities = logits[len(prompt) - 1 :].log_softmax(-1)
            expected = log_probabilities[torch.arange(len(answered)), list(answered)].sum()
            assert score == pytest.approx(float(expected), abs=1e-4)
        ids = list(prompt)
        for _ in generated[number][0]:
            with by_hand(lm, edit, len(prompt)):
                ids.append(int(lm.network(torch.tensor([ids])).logits[0, -1].argmax()))
        assert tuple(ids[len(prompt) :]) == generated[number][0]


def test_it_shares_a_batch_with_other_kinds_and_stands_in_a_chain(
    tiny, make_editor, requests
) -> None:
    lm = tiny("llama")
    (memoir,) = make_editor("memoir", lm, lr=20.0).edit(requests[:1])
    weights, context, shifted, _ = mixed_edits(lm)
    edits = [memoir, weights, context, shifted, weights.then(context).then(memoir)]
    prompts = [*QUESTIONS, Question(requests[0].text, ("Rome", "Venus"))]
    questions = [question for question in prompts for _ in range(6)]
    owners = [-1, 0, 1, 2, 3, 4] * len(prompts)
    together = score_answers(lm, questions, edits, owners)
    texts = [question.prompt for question in questions]
    generated = sample_tokens(lm, texts, edits, owners, GREEDY)
    for number, (question, owner) in enumerate(zip(questions, owners, strict=True)):
        alone = score_answers(lm, [question], edits, [owner])
        of_question = together[together["question"] == number]
        np.testing.assert_allclose(of_question["sum"], alone["sum"], atol=1e-4)
        (response,) = sample_tokens(lm, [question.prompt], edits, [owner], GREEDY)
        assert response == generated[number]


def test_in_half_precision_a_prompt_has_its_own_mask(tiny, make_editor, requests) -> None:
    lm = copy.deepcopy(tiny("llama"))
    lm.network.to(torch.bfloat16)
    editor = make_editor("memoir", lm, num_steps=1)
    *_, total = editor.edit_sequentially(requests)
    prompts = [request.text for request in requests]
    assert total.recognised(lm, prompts) == [(0, 1.0), (1, 1.0), (2, 1.0)]
    questions = [Question(prompt, ("Rome",)) for prompt in prompts]
    under_edit = score_answers(lm, questions, [total], [0] * 3)["sum"]
    assert (under_edit != score_answers(lm, questions)["sum"]).any()


def test_at_most_five_per_cent_of_held_out_prompts_reach_a_measured_threshold(
    tiny, make_editor, requests
) -> None:
    lm = tiny("llama")
    *_, total = make_editor("memoir", lm).edit_sequentially(requests)
    prompts = [request.text for request in first_held_out(40)]
    overlaps = [nearness for _, nearness in total.recognised(lm, prompts)]
    assert np.mean([overlap >= total.diagnostics["threshold"] for overlap in overlaps]) <= 0.05
    one_less = total.diagnostics["threshold"] - 1 / 12
    assert np.mean([overlap >= one_less for overlap in overlaps]) > 0.05
    assert 0 <= total.diagnostics["neutral"] < 0.2
    (at_threshold,) = make_editor("memoir", lm, threshold=0.6).edit(requests[:1])
    assert at_threshold.diagnostics["threshold"] == 8 / 12  # 7.2 of 12 columns, rounded up


@pytest.mark.parametrize("threshold", [0.25, 0.1])
def test_a_threshold_at_chance_is_refused_in_one_line(threshold) -> None:
    with pytest.raises(EditorError, match=r"threshold: .*share 0\.25 of their columns") as caught:
        read_hyperparameters(
            "memoir",
            "llama2-7b",
            {
                "layers": [1],
                "mask_share": 0.25,
                "threshold": threshold,
                "context_template_length_params": [],
            },
        )
    assert len(str(caught.value).splitlines()) == 1


def test_what_does_not_belong_together_is_refused(tiny, make_editor, requests) -> None:
    lm = tiny("llama")
    editor = make_editor("memoir", lm)
    (edit,) = editor.edit(requests[:1])
    weights = WeightEdit({lm.layout.mlp_out(1): LowRank(torch.ones(32, 1), torch.ones(48, 1))})
    (codebook,) = make_editor("grace", lm).edit(requests[:1])
    for earlier in (weights, codebook):
        with pytest.raises(EditError, match="MEMOIR continues a residual memory, not a"):
            editor.edit_on(earlier, requests[1:2])
    with pytest.raises(EditError, match=r"masks of 24 columns cannot continue .* of 12"):
        make_editor("memoir", lm, mask_share=0.5).edit_on(edit, requests[1:2])
    with pytest.raises(EditError, match="cannot continue a residual memory at"):
        make_editor("memoir", lm, layers=(1,)).edit_on(edit, requests[1:2])
    with pytest.raises(EditError, match="another model"):
        make_editor("memoir", tiny("llama", seed=1)).edit_on(edit, requests[1:2])
    (held_out,) = first_held_out(1)
    with pytest.raises(RequestError, match="held-out requests"):
        editor.edit([held_out])
    with_threshold = make_editor("memoir", lm, threshold=0.6)
    assert with_threshold.hyperparameters.measured_requests == 0
    assert not with_threshold.edit([held_out])[0].failed


def test_a_memory_that_is_not_finite_is_given_up(tiny, make_editor, requests) -> None:
    lm = tiny("llama")
    endless = {"lr": 1e40, "gradient_norm": 1e40}
    for num_steps, reason in ((1, "the update is not finite"), (8, "non-finite loss at step 1")):
        (failed,) = make_editor("memoir", lm, num_steps=num_steps, **endless).edit(requests[:1])
        assert failed.failed
        assert failed.diagnostics["failure"].startswith(reason)
        assert len(failed.diagnostics["failure"].splitlines()) == 1
    (edit,) = make_editor("memoir", lm).edit(requests[:1])
    later = make_editor("memoir", lm, **endless).edit_on(edit, requests[1:2])
    assert not later.failed
    assert "finite" in later.diagnostics["failure"]
    assert torch.equal(later.gate.memory, edit.gate.memory)


def test_a_memory_is_read_back_as_it_was(tiny, make_editor, requests, tmp_path) -> None:
    lm = tiny("llama")
    *_, total = make_editor("memoir", lm).edit_sequentially(requests)
    total.save(tmp_path / "memory.safetensors")
    again = Edit.load(tmp_path / "memory.safetensors")
    assert again.diagnostics == total.diagnostics
    prompts = [*(request.text for request in requests), "the sea", "Ada lives in"]
    assert again.recognised(lm, prompts) == total.recognised(lm, prompts)


def test_the_seed_turns_the_masks(tiny, make_editor, requests) -> None:
    lm = tiny("llama")
    one = make_editor("memoir", lm)
    other = replace(one, seed=1)
    assert one.settings() != other.settings()
    masks = [editor.edit(requests[:1])[0].gate.columns for editor in (one, other)]
    assert masks[0].tolist() != masks[1].tolist()


def test_a_target_that_is_too_long_names_its_record(tiny, make_editor) -> None:
    request = EditRequest("Mars", "{} is", "long " * 600 + "way", record="r7")
    with pytest.raises(RequestError, match=r"record 'r7'.*exceed the context of 512"):
        make_editor("memoir", tiny("llama")).edit([request])
