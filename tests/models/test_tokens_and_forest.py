"""Tokens, forests and batches: the places where off-by-one errors would hide."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from helpers.models import batching
from helpers.models.batching import (
    PADDING,
    PASS_TOKENS,
    bytes_of_a_token,
    run_halving,
    token_batches,
    tokens_at_once,
)
from helpers.models.forest import Forest, padded
from helpers.models.forward import hidden_states, prefill
from helpers.models.tokens import (
    TokenError,
    answer_ids,
    chat_prompt,
    chat_text,
    ids_of_answers,
    ids_of_prompts,
    ids_of_questions,
    prompt_ids,
    separator_after,
    subject_prompt,
    subject_prompts,
)
from helpers.models.weights import prepare

ARCHITECTURES = ["gpt2", "gptj", "llama", "qwen2", "mistral", "gemma3"]
ARCHITECTURES += ["qwen3", "olmo2", "gpt_neox", "falcon", "phi3"]


@pytest.mark.parametrize(
    ("template", "subject", "up_to"),
    [
        ("In {}, people", "Peru", "In Peru"),
        ("Peru or {} again", "Peru", "Peru or Peru"),  # at its slot
        ("In {}, people", "Peru ", "In Peru"),  # a blank is not its last token
    ],
)
def test_the_subjects_last_token_is_found_by_offsets(tiny, template, subject, up_to):
    prompt = subject_prompt(tiny("llama"), template, subject)
    assert len(prompt.ids) == len(template.replace("{}", subject))  # one byte, one token
    assert prompt.subject_last == len(up_to) - 1


def test_a_token_that_straddles_the_subjects_end_is_its_last(tiny):
    pairs = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    pairs.pre_tokenizer = pre_tokenizers.Split(Regex(".{1,2}"), "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=pairs, unk_token="?")
    prompt = subject_prompt(replace(tiny("llama"), tokenizer=tokenizer), "In {}, people", "Peru")
    # In | P|er|u,| p|eo|pl|e
    assert (len(prompt.ids), prompt.subject_last) == (8, 3)


def test_answers_start_with_their_blank_and_hold_no_special_token(tiny):
    tokenizer = tiny("llama").tokenizer
    ids = answer_ids(tiny("llama"), "Lima")
    assert tokenizer.decode(ids) == " Lima"
    assert tokenizer.bos_token_id not in ids
    assert answer_ids(tiny("llama"), " Lima") == ids


@pytest.mark.parametrize(
    ("prompt", "separator"),
    [
        *(("Sudan borders", " "), ('The film "Jaws"', " "), ("the 'Oval'", " "), ("It is:", " ")),
        *(("(as of 2020)", " "), ('He said "Yes."', " "), ("서울은", " "), ("Столица —", " ")),
        *(("assistant\n", ""), ("model\r\n", ""), ('It is "', ""), ("It is (", ""), ("«", "")),
        *(
            ("It is ('", ""),
            ("日本の首都は", ""),
            ("日本の首都は「", ""),
            ("首都:", ""),
            ("เมืองหลวงคือ", ""),
        ),
    ],
)
def test_an_answer_takes_a_blank_where_a_text_has_one(tokenized, prompt, separator):
    assert separator_after(prompt) == separator
    ids = answer_ids(tokenized, "Lima", separator)
    decoded = tokenized.tokenizer.decode([*prompt_ids(tokenized, prompt), *ids])
    assert decoded.endswith(prompt.replace("\r", "") + separator + "Lima") or "\r" in prompt
    ((asked, (answered,)),) = ids_of_questions(tokenized, [(prompt, ("Lima",))])
    assert (asked, answered) == (prompt_ids(tokenized, prompt), ids)


@pytest.mark.parametrize("bos", [False, True])
def test_a_chat_prompt_has_the_templates_own_tokens(tiny, bos):
    tokenizer = AutoTokenizer.from_pretrained(prepare("smollm2-135m"))
    if bos:  # as Llama's: the tokenizer puts it before a text, and so does the template
        first = (tokenizer.bos_token, tokenizer.bos_token_id)
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{first[0]} $A", pair=None, special_tokens=[first]
        )
        tokenizer.chat_template = "{{ bos_token }}" + tokenizer.chat_template
    model = replace(tiny("llama"), tokenizer=tokenizer)
    message = [{"role": "user", "content": "Where is Lima?"}]
    ids = tokenizer.apply_chat_template(message, add_generation_prompt=True)["input_ids"]
    assert prompt_ids(model, chat_prompt(model, "Where is Lima?")) == tuple(ids)
    tokenizer.chat_template = "{% for m in messages %}Q {{ m['content'] }}{% endfor %}"
    if bos:
        with pytest.raises(TokenError, match="adds special tokens that its chat template lacks"):
            chat_prompt(model, "Where is Lima?")


# Templates as they are found on the hub, in short. The first one takes whatever it is given.
TURNS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
REPLY = "{% if add_generation_prompt %}<assistant>{% endif %}"
REFUSE = "{% if messages[0].role == 'system' %}{{ raise_exception('No system role') }}{% endif %}"
ALTERNATE = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate') }}{% endif %}{% endfor %}"
)
DROP = "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}"
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Who?"},
    {"role": "assistant", "content": "Ada."},
    {"role": "user", "content": "Where?"},
]


@pytest.fixture
def chatting(tiny, monkeypatch):
    """A function from a template and a prompt to the text the model reads."""
    model = tiny("llama")

    def text(template: str, prompt="Who?") -> str:
        monkeypatch.setattr(model.tokenizer, "chat_template", template)
        return chat_text(model, prompt)

    return text


@pytest.mark.parametrize("template", [REFUSE + TURNS, ALTERNATE + TURNS, DROP])
def test_an_instruction_that_a_template_does_not_take_is_the_users(chatting, template):
    whole = "<system>Be brief.<user>Who?<assistant>Ada.<user>Where?<assistant>"
    assert chatting(TURNS + REPLY, CHAT) == whole
    merged = whole.replace("<system>Be brief.<user>", "<user>Be brief.\n\n")
    assert chatting(template + REPLY, CHAT) == merged


def test_a_template_that_needs_an_instruction_or_brings_one_is_left_alone(chatting):
    needs = "{% if messages[0].role != 'system' %}{{ raise_exception('no system') }}{% endif %}"
    brings = "{% if messages[0].role != 'system' %}<system>Help.{% endif %}"
    for template in (needs, brings):
        assert chatting(template + TURNS, CHAT).startswith("<system>Be brief.<user>Who?")
    assert chatting(brings + TURNS) == "<system>Help.<user>Who?"


CLOSED = "<user>Who?<assistant><think>\n\n</think>\n\n"
SWITCH = "{% if NAME is defined and NAME is false %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}"


@pytest.mark.parametrize(
    ("opening", "expected"),
    [
        ("<think>", CLOSED),
        ("<think>\n", CLOSED),
        ("<think>\nWell,", CLOSED.replace("\n\n<", "\nWell,\n\n<", 1)),
        ("[THINK]", CLOSED.replace("<think>", "[THINK]").replace("</think>", "[/THINK]")),
        (SWITCH.replace("NAME", "enable_thinking"), CLOSED),
        (SWITCH.replace("NAME", "thinking"), CLOSED),
        (
            "<|begin_of_thought|>",
            CLOSED.replace("<think>", "<|begin_of_thought|>").replace(
                "</think>", "<|end_of_thought|>"
            ),
        ),
        ("◁think▷", CLOSED.replace("<think>", "◁think▷").replace("</think>", "◁/think▷")),
        ("", "<user>Who?<assistant>"),
    ],
)
def test_a_reply_begins_outside_of_thoughts(chatting, opening, expected):
    assert chatting(
        TURNS + "{% if add_generation_prompt %}<assistant>" + opening + "{% endif %}"
    ) == (expected)
    assert chatting(TURNS + "<assistant>" + opening) == expected  # by templates without a choice


def test_a_users_own_tags_are_text(chatting):
    prompt = "What does <think> mean?"
    for template in (TURNS + REPLY, TURNS + "<assistant>"):  # the latter without a choice
        assert chatting(template, prompt) == f"<user>{prompt}<assistant>"


def test_a_template_that_shows_no_message_is_refused(chatting):
    parts = "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}"
    for template in (parts, "Hello."):  # one for messages in parts, and one that reads none
        with pytest.raises(TokenError, match="does not show a message"):
            chatting(template)


def test_today_is_the_same_day_in_every_rendering(chatting):
    clock = "{% if not date_string is defined %}never{% endif %}{{ date_string }}"
    assert chatting("{{ strftime_now('%Y-%m-%d %H:%M') }}" + TURNS) == "2024-07-26 00:00<user>Who?"
    assert chatting(clock + TURNS) == "26 Jul 2024<user>Who?"
    told = "{{ strftime_now(format='%B %-d, %Y') }}"
    assert chatting(told + TURNS) == "July 26, 2024<user>Who?"


@pytest.mark.parametrize(
    ("template", "cause"),
    [
        ("{{ raise_exception('only\nin French') }}", "TemplateError: only in French"),
        ("{% for m in messages %}", "TemplateSyntaxError: "),
        ("{{ messages[0].content.text.words }}", "UndefinedError: "),
        ("{{ messages[0]['content'] + 1 }}", "TypeError: "),
    ],
)
@pytest.mark.parametrize("prompt", ["Who?", CHAT])
def test_a_template_that_fails_is_one_line(chatting, template, cause, prompt):
    match = rf"^the chat template of tiny-llama fails \({cause}[^\n]*\): .* chat=False$"
    with pytest.raises(TokenError, match=match):
        chatting(template, prompt)


def test_a_prompt_may_end_in_a_line_break_and_in_no_other_blank(tiny):
    assert prompt_ids(tiny("llama"), "x\n")[-1] == prompt_ids(tiny("llama"), "\nx")[-2]
    for prompt, message in (
        ("x ", "ends with a blank"),
        ("x\n ", "ends with a blank"),
        ("", "empty"),
    ):
        with pytest.raises(TokenError, match=message):
            prompt_ids(tiny("gemma3"), prompt)


def test_a_subject_without_tokens_is_refused(tiny):
    tokenizer = AutoTokenizer.from_pretrained(prepare("smollm2-135m"))
    with pytest.raises(TokenError, match=r"drops the subject '\\x06'"):
        subject_prompt(replace(tiny("llama"), tokenizer=tokenizer), "{} is", "\x06")


WRITTEN = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(
    lambda text: bool(text.strip()) and not text[-1].isspace()
)


@pytest.fixture(scope="module", params=["bytes", "smollm2-135m"])
def tokenized(request, tiny):
    """A model with a tokenizer of bytes, or of an embedded model's words."""
    if request.param == "bytes":
        return tiny("llama")
    tokenizer = AutoTokenizer.from_pretrained(prepare("smollm2-135m"))
    return replace(tiny("llama"), tokenizer=tokenizer)


@given(texts=st.lists(WRITTEN, min_size=1, max_size=6), twice=st.booleans())
def test_many_texts_at_once_have_the_ids_of_each_alone(tokenized, texts, twice):
    model, tokenizer = tokenized, tokenized.tokenizer
    texts = texts * 2 if twice else texts
    prompts = ids_of_prompts(model, texts)
    assert prompts == {text: tuple(tokenizer(text)["input_ids"]) for text in texts}

    def alone(answer: str) -> tuple[int, ...]:
        ids = tokenizer(f"a {answer.strip()}", add_special_tokens=False)["input_ids"]
        return tuple(ids[len(tokenizer("a", add_special_tokens=False)["input_ids"]) :])

    try:
        assert ids_of_answers(model, texts) == {text: alone(text) for text in texts}
    except TokenError:  # some text merges with the word before it: one alone reports it as well
        with pytest.raises(TokenError, match="separated"):
            [answer_ids(model, text) for text in texts]
    templates = ("{}", *(f"{text} {{}}" for text in texts if "{}" not in text))
    expected = [subject_prompt(model, template, "Peru") for template in templates]
    assert subject_prompts(model, templates, "Peru") == expected


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=6))
def test_every_node_sees_exactly_its_own_sequence(sequences):
    forest = Forest()
    placed = [forest.add(sequence) for sequence in sequences]
    visible = forest.visible()
    for sequence, nodes in zip(sequences, placed, strict=True):
        assert [forest.tokens[n] for n in nodes] == sequence
        assert [forest.positions[n] for n in nodes] == list(range(len(sequence)))
        assert np.flatnonzero(visible[nodes[-1]]).tolist() == sorted(nodes)
    prefixes = {tuple(s[: i + 1]) for s in sequences for i in range(len(s))}
    assert len(forest) == len(prefixes)


def test_edited_nodes_are_not_shared_with_plain_ones():
    forest = Forest()
    edited = forest.add([7, 8, 9], edited_at=1)
    plain = forest.add([7, 8, 9])
    assert edited[0] == plain[0]
    assert set(edited[1:]).isdisjoint(plain[1:])
    assert forest.active().tolist() == [n in edited[1:] for n in range(len(forest))]


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "windowed"])
def test_prefix_and_suffix_equal_the_whole(tiny, architecture):
    model = tiny(architecture)
    text = prompt_ids(model, "The quick brown fox jumps over the lazy dog")
    batch = padded(model, [text])
    ids, positions, visible = batch.ids, batch.positions, batch.visible
    cut = 30
    with torch.no_grad():
        whole = hidden_states(model, ids, positions, visible)
        head, past = prefill(model, ids[:, :cut], positions[:, :cut], visible[:, :cut, :cut])
        tail = hidden_states(model, ids[:, cut:], positions[:, cut:], visible[:, cut:], past)
    torch.testing.assert_close(torch.cat([head, tail], dim=1), whole, atol=1e-5, rtol=1e-4)
    standard = model.network.base_model(ids).last_hidden_state
    torch.testing.assert_close(whole, standard, atol=1e-5, rtol=1e-4)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 2000))
def test_batches_hold_everything_once_within_budget_and_padding(lengths, budget):
    batches = list(token_batches(lengths, budget))
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        area = max(lengths[i] for i in batch) * len(batch)
        assert len(batch) == 1 or area <= budget
        wasted = area - sum(lengths[i] for i in batch)
        assert len(batch) == 1 or wasted <= max(PADDING * area, PASS_TOKENS)


def test_memory_shortage_is_known_by_its_words():
    def run(items):
        if len(items) > 1:
            raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`")
        return items[0]

    with pytest.warns(UserWarning, match="halves"):
        assert run_halving([1, 2, 3], run) == [1, 2, 3]


def test_texts_side_by_side_are_not_padded() -> None:
    assert list(token_batches([9, 1, 5, 1], 14, padded=False)) == [[0, 2], [1, 3]]
    assert list(token_batches([9, 1, 5, 1], 16, padded=False)) == [[0, 2, 1, 3]]


def test_a_pass_on_a_cpu_is_smaller_where_memory_is_short(tiny, monkeypatch) -> None:
    lm = tiny("llama")
    assert tokens_at_once(lm, 100, gradients=True) == 100
    of_a_token = bytes_of_a_token(lm, lm.dtype, gradients=True)
    monkeypatch.setattr(batching, "free_bytes", lambda device: 50 * of_a_token)
    assert tokens_at_once(lm, 100, gradients=True) == 40
