"""Edits of every kind: rows under their own edit, gates decided once, files, and what is refused."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.editing.build import build_editor
from helpers.editing.demonstrations import (
    background_prompts,
    demonstration_records,
    names_one,
    records_without,
)
from helpers.editing.edit import Edit, EditChain, EditError
from helpers.editing.editors import EditorError
from helpers.editing.gated import queries_of_prompts
from helpers.editing.grace import Codebook, Entry, Grace, NearestKey, with_entry
from helpers.editing.in_context import ContextEdit
from helpers.editing.interventions import Gate, LowRank
from helpers.editing.memory import MemoryEdit
from helpers.editing.request import EditRequest
from helpers.editing.retrieval import mean_states
from helpers.editing.running import decisions_of_gates
from helpers.editing.weight_edit import WeightEdit, apply, write
from helpers.models import identity
from helpers.models.tokens import TokenError, chat_prompt, ids_of_prompts, ids_of_questions
from helpers.results.evaluation import recognition_table
from helpers.scoring.answers import Question, score_answers
from helpers.scoring.responses import Sampling, sample_tokens

ARCHITECTURES = [
    "gpt2",
    "gptj",
    "llama",
    "qwen2",
    "mistral",
    "gemma3",
    "gpt_neox",
    "falcon",
    "phi3",
]
NEW_KINDS = ["grace", "memoir", "in-context", "ike", "memory-bm25", "memory-hidden"]
QUESTIONS = [
    Question("the sea", ("is blue", "is wide and deep", "lies here")),
    Question("the sea of", ("Norway", "a man")),
    Question("the sea of glass", ("and fire", "Norway")),
    Question("Ada lives in", ("Rome", "Oslo by the sea")),
]
GREEDY = Sampling(temperature=0, max_new_tokens=6, chat=False)


@dataclass(frozen=True)
class Shift(Gate):
    """Adds a vector after about half of all prompts, from the last token on."""

    vector: Tensor
    reach: ClassVar[Any] = "after"

    def decide(self, queries: Tensor) -> Tensor:
        return torch.where((1000 * queries.sum(-1)).floor() % 2 == 0, 0, -1)

    def change(self, entering: Tensor, output: Tensor, entries: Tensor) -> Tensor:
        return output + self.vector


@dataclass(frozen=True)
class ShiftEdit(Edit):
    """A shift at one module."""

    module_name: str
    gate: Shift
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    kind: ClassVar[str] = "shift"

    def interventions(self) -> dict[str, list[Shift]]:
        return {self.module_name: [self.gate]}

    def to(self, device: Any) -> ShiftEdit:
        return self

    def contents(self) -> Any:
        raise NotImplementedError

    @classmethod
    def from_contents(cls, tensors: Any, fields: Any, diagnostics: Any) -> Any:
        raise NotImplementedError


def shift(lm, layer: int = 1, size: float = 2.0) -> ShiftEdit:
    vector = torch.linspace(-size, size, lm.layout.hidden_size)
    return ShiftEdit(lm.layout.mlp_out(layer), Shift(vector))


def by_hand(lm, prompt: str, answer_ids: Sequence[int], edit: ShiftEdit) -> Tensor:
    """Log-probabilities of an answer's tokens, from transformers alone and a hook written here."""
    prompt_ids = ids_of_prompts(lm, [prompt])[prompt]
    ids = torch.tensor([[*prompt_ids, *answer_ids]])
    last = len(prompt_ids) - 1

    def hook(module, arguments, output):
        if not bool(edit.gate.decide(arguments[0][:, last]) >= 0):
            return None
        changed = output.clone()
        changed[:, last:] += edit.gate.vector
        return changed

    handle = lm.module(edit.module_name).register_forward_hook(hook)
    with handle, torch.no_grad():
        log_probabilities = lm.network(ids).logits.log_softmax(-1)[0]
    return log_probabilities[torch.arange(last, ids.shape[1] - 1), ids[0, last + 1 :]]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_packed_scores_of_gated_prompts_are_those_of_each_alone(tiny, architecture) -> None:
    """Two prompts begin others: the gate acts at the end of each, in nodes of their own."""
    lm = tiny(architecture)
    gated = shift(lm)
    owners = [0, 0, 0, 0]
    table = score_answers(lm, QUESTIONS, [gated], owners)
    plain = score_answers(lm, QUESTIONS)
    ids = ids_of_questions(lm, [(question.prompt, question.answers) for question in QUESTIONS])
    expected = [
        float(by_hand(lm, question.prompt, answer, gated).sum())
        for question, (_, answers) in zip(QUESTIONS, ids, strict=True)
        for answer in answers
    ]
    np.testing.assert_allclose(table["sum"], expected, atol=1e-4)
    fired = np.abs(table["sum"] - plain["sum"]) > 1e-3
    assert fired.any()


def mixed_edits(lm) -> list[Edit]:
    layout = lm.layout
    generator = torch.Generator().manual_seed(3)
    left = torch.randn(layout.hidden_size, 1, generator=generator)
    right = torch.randn(layout.intermediate_size, 1, generator=generator)
    weights = WeightEdit({layout.mlp_out(1): LowRank(0.3 * left, 0.3 * right)})
    context = ContextEdit("Imagine that Ada lives in Oslo.\n")
    return [weights, context, shift(lm), weights.then(context).then(shift(lm, 2))]


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "gemma3", "windowed"])
def test_kinds_of_edits_share_a_batch(tiny, architecture) -> None:
    lm = tiny(architecture)
    edits = mixed_edits(lm)
    questions = [question for question in QUESTIONS for _ in range(5)]
    owners = [-1, 0, 1, 2, 3] * len(QUESTIONS)
    together = score_answers(lm, questions, edits, owners)
    generated = sample_tokens(lm, [q.prompt for q in questions], edits, owners, GREEDY)
    for number, (question, owner) in enumerate(zip(questions, owners, strict=True)):
        alone = score_answers(lm, [question], edits, [owner])
        of_question = together[together["question"] == number]
        np.testing.assert_allclose(of_question["sum"], alone["sum"], atol=1e-4)
        (response,) = sample_tokens(lm, [question.prompt], edits, [owner], GREEDY)
        assert response == generated[number]


def test_the_first_generated_token_is_the_most_probable_one(tiny) -> None:
    """Also under a gate, which generation with its cache decides once."""
    lm = tiny("llama")
    edits = mixed_edits(lm)
    for owner in range(len(edits)):
        for question in QUESTIONS:
            ((generated,),) = sample_tokens(lm, [question.prompt], edits, [owner], GREEDY)
            answer = lm.tokenizer.decode(generated)
            if answer.strip() and answer.startswith(" "):
                scores = score_answers(
                    lm, [Question(question.prompt, (answer.strip(),))], edits, [owner]
                )
                assert scores["top"][0] >= 1


def test_a_context_is_the_text_before_the_prompt(tiny) -> None:
    lm = tiny("llama")
    edit = ContextEdit("Imagine that Ada lives in Oslo.\n")
    under_edit = score_answers(lm, QUESTIONS, [edit], [0] * len(QUESTIONS))
    written_out = [Question(edit.text + q.prompt, q.answers) for q in QUESTIONS]
    pd_columns = ["sum", "tokens"]
    np.testing.assert_allclose(
        under_edit[pd_columns], score_answers(lm, written_out)[pd_columns], atol=1e-4
    )
    plain = score_answers(lm, QUESTIONS)
    nothing = score_answers(lm, QUESTIONS, [ContextEdit("")], [0] * len(QUESTIONS))
    assert (nothing["sum"] == plain["sum"]).all()


def test_a_context_that_leaves_no_room_is_refused(tiny) -> None:
    edit = ContextEdit("It is so. " * 200)
    with pytest.raises(TokenError, match="exceed the context of 512"):
        score_answers(tiny("llama"), QUESTIONS, [edit], [0] * len(QUESTIONS))


def with_template(lm):
    """A copy of the model with a chat template."""
    lm = copy.deepcopy(lm)
    lm.tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
    )
    return lm


def test_in_a_chat_the_context_stands_in_the_last_message(tiny) -> None:
    lm = with_template(tiny("llama"))
    in_chat = Sampling(temperature=0, max_new_tokens=4, chat=True)
    turns = [{"role": "user", "content": "Who?"}, {"role": "user", "content": "Ada lives in"}]
    edit = ContextEdit("Ada moved to Oslo. ")
    written = [turns[0], {"role": "user", "content": "Ada moved to Oslo. Ada lives in"}]
    under_edit = sample_tokens(lm, [turns], [edit], [0], in_chat)
    assert under_edit == sample_tokens(lm, [written], None, None, in_chat)
    # So it does in a prompt that is in the template already; the memory is asked about its message.
    memory = MemoryEdit(
        ("Ada moved to Oslo",), ("Ada",), ("Ada moved",), threshold=0.1, k=1, template="{fact}. "
    )
    never = MemoryEdit(("user assistant",), ("user",), ("user",), threshold=0.1, k=1)
    framed = chat_prompt(lm, "Ada lives in")
    with_text = chat_prompt(lm, "Ada moved to Oslo. Ada lives in")
    edits = [edit, memory, never]
    in_template = Sampling(temperature=0, max_new_tokens=4, chat=False)
    generated = sample_tokens(lm, [framed] * 3, edits, [0, 1, 2], in_template)
    expected = sample_tokens(lm, [with_text, with_text, framed], None, None, in_template)
    assert generated == expected
    scores = score_answers(lm, [Question(framed, ("Rome",))] * 3, edits, [0, 1, 2])["sum"]
    written_out = [Question(text, ("Rome",)) for text in (with_text, with_text, framed)]
    np.testing.assert_allclose(scores, score_answers(lm, written_out)["sum"], atol=1e-5)


@pytest.mark.parametrize("name", ["in-context", "ike", "memory-bm25", "memory-hidden"])
def test_the_statement_of_a_chat_prompt_is_of_its_message(tiny, make_editor, requests, name):
    """So an edit of the prompt in the chat template is that of the message by itself."""
    lm = with_template(tiny("llama"))
    framed = [replace(each, prompt=chat_prompt(lm, each.prompt)) for each in requests]
    assert framed[0].text == "user: Mars is a planet near\nassistant:"
    editor = make_editor(name, lm)
    pairs = zip(editor.edit(framed), editor.edit(requests), strict=True)
    for edit_of_framed, edit_of_message in pairs:
        assert edit_of_framed.contents()[1] == edit_of_message.contents()[1]


def test_half_precision_decides_each_prompt_alone(tiny) -> None:
    lm = copy.deepcopy(tiny("llama"))
    lm.network.to(torch.bfloat16)
    module_name = lm.layout.mlp_out(2)
    ids = ids_of_prompts(lm, [question.prompt for question in QUESTIONS])
    keys = []
    for prompt in ids.values():
        alone = torch.tensor([prompt])
        module = lm.module(module_name)
        handle = module.register_forward_hook(lambda _, x, __: keys.append(x[0][0, -1].float()))
        with handle, torch.no_grad():
            lm.network(alone)
    gate = NearestKey(
        torch.stack(keys), torch.zeros(4, lm.layout.hidden_size), torch.full((4,), 1e-4)
    )
    edit = Codebook(module_name, gate, ((1,),) * 4, lm.fingerprint)
    decisions = decisions_of_gates(lm, [edit], [0, 0, 0, -1], list(ids.values()))
    assert decisions[module_name, 0, 0].tolist() == [0, 1, 2, -1]


def test_in_half_precision_grace_keys_are_those_of_each_prompt_alone(
    tiny, make_editor, requests
) -> None:
    """So that however small the radius is, a prompt is recognised by its own entry."""
    lm = copy.deepcopy(tiny("llama"))
    lm.network.to(torch.bfloat16)
    editor = make_editor("grace", lm, num_steps=1, epsilon=1e-6)
    *_, total = editor.edit_sequentially(requests)
    for number, (request, edit) in enumerate(zip(requests, editor.edit(requests), strict=True)):
        alone = queries_of_prompts(lm, [request.text], editor.module_name, NearestKey)
        assert (edit.gate.keys == alone).all()
        ((entry, _),) = edit.recognised(lm, [request.text])
        assert entry == 0
        ((entry, _),) = total.recognised(lm, [request.text])
        assert entry == number


def nothing_fires(lm) -> Codebook:
    gate = NearestKey(
        torch.zeros(1, lm.layout.intermediate_size),
        torch.ones(1, lm.layout.hidden_size),
        torch.zeros(1),
    )
    return Codebook(lm.layout.mlp_out(1), gate, ((1,),), lm.fingerprint)


def test_a_radius_of_zero_is_the_unedited_model_to_the_bit(tiny) -> None:
    lm = tiny("llama")
    answered = [Question("Ada lives in", ("Rome", "Oslo by the sea"))]
    gated = score_answers(lm, answered, [nothing_fires(lm)], [0])
    assert (gated["sum"] == score_answers(lm, answered)["sum"]).all()


def test_a_radius_without_end_replaces_the_output_everywhere(tiny) -> None:
    lm = tiny("llama")
    value = torch.linspace(-1, 1, lm.layout.hidden_size)
    gate = NearestKey(torch.zeros(1, lm.layout.intermediate_size), value[None], torch.tensor([1e9]))
    edit = Codebook(lm.layout.mlp_out(1), gate, ((1,),), lm.fingerprint)
    table = score_answers(lm, QUESTIONS[-1:], [edit], [0])
    prompt_ids = ids_of_prompts(lm, [QUESTIONS[-1].prompt])[QUESTIONS[-1].prompt]

    def hook(module, arguments, output):
        output = output.clone()
        output[:, len(prompt_ids) - 1] = value
        return output

    with lm.module(lm.layout.mlp_out(1)).register_forward_hook(hook):
        expected = score_answers(lm, QUESTIONS[-1:])
    np.testing.assert_allclose(table["sum"], expected["sum"], atol=1e-5)


def entry(x: float, y: float, target: int) -> Entry:
    return Entry(torch.tensor([float(x), float(y)]), (target,))


def test_three_entries_by_hand() -> None:
    """A new one; one that expands with the same target; one that splits with another target."""
    gate = NearestKey(torch.empty(0, 2), torch.empty(0, 3), torch.empty(0))
    codebook = Codebook("m", gate, (), "f")
    codebook, number = with_entry(codebook, entry(0, 0, target=7), epsilon=1.0)
    assert (number, codebook.gate.radii.tolist()) == (0, [1.0])
    codebook, number = with_entry(codebook, entry(1.5, 0, target=7), epsilon=1.0)
    assert number == 0
    assert codebook.gate.radii.tolist() == pytest.approx([1.5])
    assert codebook.gate.decide(torch.tensor([[1.5, 0.0]])).tolist() == [0]  # the prompt itself
    codebook, number = with_entry(codebook, entry(0, 2, target=9), epsilon=1.0)
    assert number == 1
    assert codebook.gate.radii.tolist() == pytest.approx([1 - 1e-5, 1.0])
    codebook, number = with_entry(codebook, entry(9, 9, target=9), epsilon=1.0)  # far from all
    assert (number, codebook.gate.radii.tolist()[-1]) == (2, 1.0)
    codebook, number = with_entry(codebook, entry(9, 9, target=8), epsilon=1.0)  # the same prompt
    assert (number, len(codebook.targets), codebook.targets[2]) == (2, 3, (8,))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_grace_writes_its_targets_batched_as_alone(
    tiny, make_editor, requests, target_scores, architecture
) -> None:
    lm = tiny(architecture)
    editor = make_editor("grace", lm)
    together = editor.edit(requests)
    gains = target_scores(lm, requests, together) - target_scores(lm, requests)
    assert (gains > 0).all()
    for request, edit in zip(requests, together, strict=True):
        (alone,) = editor.edit([request])
        torch.testing.assert_close(alone.gate.values, edit.gate.values, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(alone.gate.keys, edit.gate.keys, rtol=1e-4, atol=1e-4)


def test_values_that_begin_warm_and_take_no_step_change_nothing(
    tiny, make_editor, requests
) -> None:
    lm = tiny("llama")
    edits = make_editor("grace", lm, value="warm", num_steps=0).edit(requests)
    questions = [Question(request.text, (request.target,)) for request in requests]
    after = score_answers(lm, questions, edits, range(len(requests)))
    np.testing.assert_allclose(after["sum"], score_answers(lm, questions)["sum"], atol=1e-5)


def test_a_sequence_of_grace_is_one_codebook(tiny, make_editor, requests, target_scores) -> None:
    lm = tiny("llama")
    *_, total = make_editor("grace", lm).edit_sequentially(requests)
    assert isinstance(total, Codebook)
    assert len(total.targets) == len(requests)
    (again,) = [make_editor("grace", lm).edit_on(total, requests[:1])]
    assert len(again.targets) == len(requests)  # the same prompt replaces its entry
    all_under_total = [total] * len(requests)
    gains = target_scores(lm, requests, all_under_total) - target_scores(lm, requests)
    assert (gains > 0).all()
    weights = WeightEdit({lm.layout.mlp_out(1): LowRank(torch.ones(32, 1), torch.ones(48, 1))})
    with pytest.raises(EditError, match="continues a codebook"):
        make_editor("grace", lm).edit_on(weights, requests[:1])


@pytest.mark.parametrize("name", NEW_KINDS)
def test_what_changes_no_weights_is_saved_but_not_written(
    tiny, make_editor, requests, target_scores, tmp_path, name
) -> None:
    lm = tiny("llama")
    edit, *_ = make_editor(name, lm).edit(requests)
    edit.save(tmp_path / "edit.safetensors")
    again = Edit.load(tmp_path / "edit.safetensors")
    assert type(again) is type(edit)
    questions = QUESTIONS[:2]
    before_file = score_answers(lm, questions, [edit], [0, 0])
    after_file = score_answers(lm, questions, [again], [0, 0])
    assert (before_file["sum"] == after_file["sum"]).all()
    with pytest.raises(EditError, match="weights alone"):
        write(lm, edit)
    with pytest.raises(EditError, match="weights alone"), apply(lm, edit):
        pass
    with pytest.raises(EditError, match=r"read it with Edit\.load"):
        WeightEdit.load(tmp_path / "edit.safetensors")


def test_a_chain_is_saved_with_its_parts(tiny, make_editor, requests, tmp_path) -> None:
    lm = tiny("llama")
    (grace,) = make_editor("grace", lm).edit(requests[:1])
    chain = mixed_edits(lm)[0].then(ContextEdit("It is so.\n")).then(grace)
    assert isinstance(chain, EditChain)
    assert len(chain.parts) == 3
    chain.save(tmp_path / "chain.safetensors")
    again = Edit.load(tmp_path / "chain.safetensors")
    under_chain = score_answers(lm, QUESTIONS, [chain], [0] * 4)
    assert (under_chain["sum"] == score_answers(lm, QUESTIONS, [again], [0] * 4)["sum"]).all()


def test_a_file_that_is_not_there_and_a_kind_that_is_not_listed_are_one_line(
    tiny, tmp_path
) -> None:
    with pytest.raises(EditError, match=r"none\.safetensors: there is no such file"):
        Edit.load(tmp_path / "none.safetensors")
    lm = tiny("llama")
    for edit in (shift(lm), ContextEdit("It is so.\n").then(shift(lm))):
        with pytest.raises(
            EditError, match="a shift edit could not be loaded again: list its class"
        ):
            edit.save(tmp_path / "shift.safetensors")
    assert list(tmp_path.iterdir()) == []


class Unlucky(Grace):
    """GRACE that gives up the request about Bach."""

    def train(self, edit, requests, rows):
        trained_values = super().train(edit, requests, rows)
        for request, trained in zip(requests, trained_values, strict=True):
            if request.subject == "Bach":
                trained.failure = "out of luck"
        return trained_values


def test_a_sequence_whose_latest_request_failed_has_not_failed(tiny, make_editor) -> None:
    lm = tiny("llama")
    hyperparameters = make_editor("grace", lm).hyperparameters
    editor = Unlucky(lm, hyperparameters)
    ada = EditRequest("Ada", "{} lives in", "Oslo")
    bach = EditRequest("Bach", "{} wrote", "Aida")
    for order, failed in (([bach, ada], [True, False]), ([ada, bach], [False, False])):
        edits = list(editor.edit_sequentially(order))
        assert [edit.failed for edit in edits] == failed
        latest_failed = ["failure" in edit.diagnostics for edit in edits]
        assert latest_failed == [request is bach for request in order]
    (given_up,) = editor.edit([bach])
    assert given_up.failed
    assert not ContextEdit("It is so.\n").then(given_up).failed


def test_a_value_that_is_not_finite_is_given_up(tiny, make_editor, requests, monkeypatch) -> None:
    train = Grace.train

    def overflowing(editor, edit, requests, rows):
        trained_values = train(editor, edit, requests, rows)
        trained_values[0].tensor[0] = float("inf")
        return trained_values

    monkeypatch.setattr(Grace, "train", overflowing)
    first, second = make_editor("grace", tiny("llama")).edit(requests[:2])
    assert (first.failed, second.failed) == (True, False)
    assert first.diagnostics["failure"] == "the update is not finite"


def test_a_chain_recognises_what_its_gate_sees(tiny, make_editor, requests) -> None:
    """The gate is asked with the prompt after the chain's texts, in the model that the chain changes."""
    lm = tiny("llama")
    (codebook,) = make_editor("grace", lm).edit(requests[:1])
    weights, context, *_ = mixed_edits(lm)
    assert weights.then(context).recognised(lm, [requests[0].text]) is None
    chain = weights.then(context).then(codebook)
    ids = ids_of_prompts(lm, [context.text + requests[0].text])[context.text + requests[0].text]
    queries = []
    module = lm.module(codebook.module_name)
    with apply(lm, weights), module.register_forward_hook(lambda _, x, __: queries.append(x[0])):
        lm.network(torch.tensor([ids]))
    distance = float((queries[0][0, -1] - codebook.gate.keys[0]).norm())
    ((entry, nearness),) = chain.recognised(lm, [requests[0].text])
    assert nearness == pytest.approx(-distance, rel=1e-4)
    assert entry == (0 if distance < float(codebook.gate.radii[0]) else -1)
    # What the report says is what scoring does.
    question = Question(requests[0].text, ("Rome",))
    under_chain = score_answers(lm, [question], [chain], [0])["sum"][0]
    without_gate = score_answers(lm, [question], [weights.then(context)], [0])["sum"][0]
    assert (entry == 0) == (abs(under_chain - without_gate) > 1e-5)


def test_of_two_parts_that_choose_prompts_the_later_that_recognises_one_counts() -> None:
    words = ("Ada lives in Oslo", "Bach wrote Aida")
    first = MemoryEdit(words, ("Ada", "Bach"), words, threshold=0.5, k=1)
    second = MemoryEdit(("Ada lives in Rome",), ("Ada",), ("Ada lives in",), threshold=0.1, k=1)
    prompts = ["Ada lives in", "Bach wrote", "the sea"]
    lm = SimpleNamespace(device="cpu", tokenizer=None)
    entries = [entry for entry, _ in first.then(second).recognised(lm, prompts)]
    assert entries == [0, 1, -1]


def test_no_prompts_are_recognised_as_nothing(tiny, make_editor, requests) -> None:
    lm = tiny("llama")
    for name in ("grace", "memoir", "memory-bm25", "memory-hidden"):
        (edit,) = make_editor(name, lm).edit(requests[:1])
        assert edit.recognised(lm, []) == []
        assert edit.then(ContextEdit("It is so.\n")).recognised(lm, []) == []


@pytest.mark.parametrize("name", ["memory-bm25", "memory-hidden"])
def test_a_chat_prompt_is_recognised_by_its_message(tiny, make_editor, requests, name) -> None:
    lm = with_template(tiny("llama"))
    *_, memory = make_editor(name, lm).edit_sequentially(requests)
    messages = [request.text for request in requests]
    framed = [chat_prompt(lm, message) for message in messages]
    never = ContextEdit("It is so.\n").then(memory)
    for edit in (memory, never):
        assert edit.recognised(lm, framed) == memory.recognised(lm, messages)


def test_in_a_chain_a_gate_is_asked_with_what_stands_before_a_chat_prompt(
    tiny, make_editor, requests
) -> None:
    """Which a memory finds by the message: the gate sees the prompt as it is run."""
    lm = with_template(tiny("llama"))
    (codebook,) = make_editor("grace", lm).edit(requests[:1])
    never = MemoryEdit(("user assistant",), ("user",), ("user",), threshold=0.1, k=1)
    prompt = chat_prompt(lm, requests[0].text)
    alone = codebook.recognised(lm, [prompt])
    assert never.then(codebook).recognised(lm, [prompt]) == alone


@pytest.mark.parametrize("name", ["memory-bm25", "memory-hidden"])
def test_a_memory_takes_blanks_for_nothing(tiny, make_editor, requests, name) -> None:
    lm = tiny("llama")
    (memory,) = make_editor(name, lm).edit(requests[:1])
    memory = replace(memory, threshold=-1.0)  # anything is found
    assert memory.recognised(lm, ["", " "]) == [(-1, -np.inf)] * 2
    assert memory.found(lm, ["", "\n"]) == [[], []]
    prompt = requests[0].text
    ending_with_blanks = [prompt, f"{prompt} ", f"{prompt}\t "]
    scores = memory.scores(lm, ending_with_blanks)
    assert (scores == scores[:1]).all()
    assert memory.found(lm, ending_with_blanks) == [[0]] * 3


def test_a_memory_that_grows_runs_each_statement_once(tiny, make_editor, requests, monkeypatch):
    """And is the same, bit for bit, as one that is made anew."""
    lm = tiny("llama")
    run_texts: list[str] = []

    def counted(model, texts, layer):
        run_texts.extend(texts)
        return mean_states(model, texts, layer)

    monkeypatch.setattr("helpers.editing.memory.mean_states", counted)
    *_, grown = make_editor("memory-hidden", lm).edit_sequentially(requests)
    of_statements = [text for text in run_texts if text in grown.statements]
    assert sorted(of_statements) == sorted(grown.statements)
    anew = make_editor("memory-hidden", lm).edit_jointly(requests)
    torch.testing.assert_close(grown.keys, anew.keys, atol=0, rtol=0)


@pytest.mark.parametrize("name", ["grace", "memoir", "memory-hidden"])
def test_calls_under_an_edit_read_no_weight_again(tiny, make_editor, requests, name, monkeypatch):
    """Until one of them is written: then it is another model, which the edit refuses."""
    lm = copy.deepcopy(tiny("llama"))
    edits = make_editor(name, lm).edit(requests)
    lm.weights.as_counted()
    read = []
    state_of = identity._state_of
    monkeypatch.setattr(identity, "_state_of", lambda w: read.append(w) or state_of(w))
    for _ in range(2):
        score_answers(lm, QUESTIONS[:2], edits[:2], [0, 1])
    assert read == []
    ones = LowRank(torch.ones(lm.layout.hidden_size, 1), torch.ones(lm.layout.intermediate_size, 1))
    written = WeightEdit({lm.layout.mlp_out(0): ones})
    with apply(lm, written), pytest.raises(EditError, match="another model"):
        score_answers(lm, QUESTIONS[:2], edits[:2], [0, 1])
    score_answers(lm, QUESTIONS[:2], edits[:2], [0, 1])
    assert 0 < len(read) < len(list(lm.network.parameters()))


@pytest.mark.parametrize("name", ["grace", "memoir", "memory-hidden"])
def test_keys_of_another_model_are_refused(tiny, make_editor, requests, name) -> None:
    (edit,) = make_editor(name, tiny("llama")).edit(requests[:1])
    other = tiny("llama", seed=1)
    with pytest.raises(EditError, match="another model"):
        score_answers(other, QUESTIONS, [edit], [0] * len(QUESTIONS))
    with pytest.raises(EditError, match="another model"):
        recognition_table(tiny("gpt2"), QUESTIONS, edit)


def test_statements_of_a_sequence_are_all_made_the_latest_last(tiny, make_editor, requests) -> None:
    lm = tiny("llama")
    *_, total = make_editor("in-context", lm).edit_sequentially(requests)
    (prefix,) = total.prefixes(lm, ["Bach wrote"])
    assert prefix == "".join(f"Imagine that {r.text} {r.target}.\n" for r in requests)


def test_demonstrations_name_nothing_that_is_asked(tiny, make_editor) -> None:
    record = demonstration_records()[0]
    request = EditRequest(
        "Victory Day", "A country that has a public holiday called {} is", "Kosovo", ("Ukraine",)
    )
    others = records_without(request)
    assert 0 < len(others) < len(demonstration_records())
    assert record not in others
    (edit,) = make_editor("ike", tiny("llama"), k=8).edit([request])
    *demonstrations, statement = edit.text.split("\n\n")
    assert len(demonstrations) == 8
    assert all(text.startswith("New Fact: ") for text in demonstrations)
    assert not any("Kosovo" in text or "Victory Day" in text for text in demonstrations)
    assert statement == f"New Fact: {request.text} Kosovo\nPrompt: "
    copies = sum(text.count(text.split("\nPrompt: ")[1]) == 2 for text in demonstrations)
    assert copies == 1  # of eight: one copy, three updates, four of other facts


def test_a_name_inside_a_word_is_not_named() -> None:
    texts = ["The capital of Guinea-Bissau is", "Côte d\u2019Ivoire also lies by the sea"]
    named = ["Guinea", "guinea bissau", "Bissau is", "CÔTE D'IVOIRE", "sea"]
    assert all(names_one(texts, [name]) for name in named)
    assert not names_one(texts, ["a", "Al", "Guin", "capital is", "Ivo", ""])
    short = EditRequest("Al", "{} lives in", "Ro", ("e",))
    assert len(records_without(short)) > len(demonstration_records()) / 2
    assert background_prompts(["Al", "a name that no prompt has"])
    assert len(background_prompts(["i"])) == 100
    assert not any("Al" in prompt.split() for prompt in background_prompts(["Al"]))


def test_too_many_demonstrations_are_refused(tiny, make_editor, requests) -> None:
    with pytest.raises(Exception, match=r"record 'a': \d+ demonstrations .*lower k"):
        make_editor("ike", tiny("llama"), k=1000).edit(requests)


def test_bm25_finds_the_statement_of_the_prompt() -> None:
    statements = ("Ada lives in Oslo", "Bach wrote Aida", "Mars is a planet near Venus")
    memory = MemoryEdit(statements, ("Ada", "Bach", "Mars"), statements, threshold=0.5, k=2)
    assert memory.found(None, ["Where does Ada live? Ada lives in", "the sea is blue"])[1] == []
    (found, *_) = memory.found(None, ["Ada lives in"])
    assert found[-1] == 0
    # Robertson's formula by hand, of one word that one of three texts of 4, 3 and 6 words has.
    idf = np.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    expected = idf / (1 + 1.2 * (1 - 0.75 + 0.75 * 3 / (13 / 3)))
    assert memory.scores(None, ["Bach"])[0] == pytest.approx([0, expected, 0], rel=1e-5)


@pytest.mark.parametrize("name", ["memory-bm25", "memory-hidden"])
def test_a_memory_grows_and_finds_nothing_for_most_other_prompts(tiny, make_editor, name) -> None:
    lm = tiny("llama")
    requests = [
        EditRequest("Ada Lovelace", "{} lived in", "Oslo"),
        EditRequest("Bach", "{} composed", "Aida"),
    ]
    *_, memory = make_editor(name, lm).edit_sequentially(requests)
    assert memory.statements == ("Ada Lovelace lived in Oslo", "Bach composed Aida")
    background = background_prompts([request.subject for request in requests])
    share = np.mean([bool(found) for found in memory.found(lm, background)])
    assert share <= 0.06  # the threshold's share
    if name == "memory-bm25":
        (found,) = memory.found(lm, ["Ada Lovelace lived in"])
        assert found == [0]
    one_by_one = [memory.found(lm, [prompt])[0] for prompt in background[:10]]
    assert memory.found(lm, background[:10]) == one_by_one


@pytest.mark.parametrize("name", ["memory-bm25", "memory-hidden"])
def test_of_a_fact_that_is_edited_again_the_newest_statement_is_found(tiny, make_editor, name):
    lm = tiny("llama")
    cities = ("Oslo", "Rome", "Rome")
    order = [EditRequest("Ada Lovelace", "{} lived in", city) for city in cities]
    order.insert(1, EditRequest("Bach", "{} composed", "Aida"))
    editor = make_editor(name, lm)
    *_, memory = editor.edit_sequentially(order)
    assert memory.statements == ("Bach composed Aida", "Ada Lovelace lived in Rome")
    assert memory.replaced == ("Ada Lovelace lived in Oslo",)
    assert memory.diagnostics["replaced"] == 1
    once = editor.edit_jointly([order[1], order[2]])
    assert memory.threshold == once.threshold
    anything = replace(memory, threshold=-1.0)
    (prefix,) = anything.prefixes(lm, ["Ada Lovelace lived in"])
    assert prefix.count("Ada Lovelace lived in") == 1
    (single,) = editor.edit(order[:1])
    assert single.replaced == ()
    assert single.diagnostics["replaced"] == 0


@pytest.mark.parametrize("name", ["in-context", "memory-bm25"])
def test_a_template_without_the_fact_is_refused(tiny, name) -> None:
    values = {"template": "It is so.\n"}
    with pytest.raises(EditorError, match=r"template: .*write \{fact\} where") as refused:
        build_editor(name, tiny("llama"), preset="generic", overrides=values)
    assert "\n" not in str(refused.value)


def test_a_memory_goes_on_with_its_own_model(tiny, make_editor, requests) -> None:
    (memory,) = make_editor("memory-hidden", tiny("llama")).edit(requests[:1])
    with pytest.raises(EditError, match="another model"):
        make_editor("memory-hidden", tiny("llama", seed=1)).edit_on(memory, requests[1:2])
    more = make_editor("memory-hidden", tiny("llama")).edit_on(memory, requests[1:2])
    assert more.fingerprint == memory.fingerprint == tiny("llama").fingerprint


def test_grace_is_of_one_layer(tiny, make_editor) -> None:
    editor = make_editor("grace", tiny("llama"))
    assert isinstance(editor, Grace)
    assert editor.module_name == tiny("llama").layout.mlp_out(2)
