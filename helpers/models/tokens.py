"""Text to token ids, which are concatenated and never decoded to be tokenised again."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from helpers import UserError
from helpers.models.language_model import LanguageModel

# Answers are tokenised after a word or a line break, so that their first token is that of a text.
_ANCHORS = {" ": "a", "": "\n"}
_LINE_BREAKS = "\n\r"
_OPENING = re.compile(r"""(?:^|[\s(\[{])["']$""")
_WITHOUT_BLANKS = re.compile("CJK|IDEOGRAPHIC|HIRAGANA|KATAKANA|THAI|LAO|KHMER|MYANMAR|TIBETAN")

# How chat templates open a thought: <think>, <seed:think>, [THINK], <|begin_of_thought|>, ◁think▷.
_THOUGHT = re.compile(r"(<\|?|\[|◁)([\w:]*(?:think|thought|reason)\w*)(\|?>|\]|▷)", re.IGNORECASE)
CHAT_DATE = "26 Jul 2024"  # "today" in chat templates; Llama 3's own where no clock is given
# Its parts in English, whatever the session's language is, by the codes of strftime.
_DATE_PARTS = {
    "a": "Fri",
    "A": "Friday",
    "b": "Jul",
    "B": "July",
    "h": "Jul",
    "p": "AM",
    "d": "26",
    "-d": "26",
    "e": "26",
    "m": "07",
    "-m": "7",
    "y": "24",
    "Y": "2024",
    "j": "208",
    "F": "2024-07-26",
    "D": "07/26/24",
    "x": "07/26/24",
    "H": "00",
    "-H": "0",
    "I": "12",
    "-I": "12",
    "M": "00",
    "-M": "0",
    "S": "00",
    "-S": "0",
    "f": "000000",
    "T": "00:00:00",
    "R": "00:00",
    "X": "00:00:00",
    "u": "5",
    "w": "5",
    "z": "",
    "Z": "",
}
# A clock for them that does not move, in Jinja: functions cannot be handed to a template.
_CODES = "".join(f".replace('%{code}', '{part}')" for code, part in _DATE_PARTS.items())
_CLOCK = "{% macro strftime_now(format) %}{{ format" + _CODES + " }}{% endmacro %}\n"
# Takes the place of a message where only what a template puts around it is looked at.
_MARK = "1847205936"

Ids = tuple[int, ...]
Prompt = str | Sequence[Mapping[str, str]]  # a message, or the turns of a chat (role, content)
_Text = TypeVar("_Text")


class TokenError(UserError):
    """A text that cannot be turned into the token ids asked for."""


def tuple_of_texts(texts: Iterable[_Text]) -> tuple[_Text, ...]:
    """Texts as a tuple; a single text would be taken for its letters."""
    if isinstance(texts, str):
        raise TypeError(f"expected several texts, not {texts!r}; write ({texts!r},)")
    return tuple(texts)


@dataclass(frozen=True)
class SubjectPrompt:
    """A prompt's token ids and the index of its subject's last token."""

    ids: Ids
    subject_last: int


def check_prompt(prompt: str) -> None:
    """Refuse a prompt that no answer can follow: an empty one, or one that ends with a blank."""
    if prompt[-1:].isspace() and prompt[-1] not in _LINE_BREAKS:
        raise TokenError(
            f"prompt {prompt[-60:]!r} ends with a blank; remove it: answers bring their own"
        )
    if not prompt.strip():
        raise TokenError("a prompt is empty")


def check_length(lm: LanguageModel, text: str, tokens: int) -> None:
    """Refuse a text of this many tokens if the context holds fewer."""
    limit = lm.context_length
    if tokens > limit:
        raise TokenError(
            f"{text[:60]!r}: {tokens} tokens exceed the context of {limit}; shorten it"
        )


def ids_of_prompts(lm: LanguageModel, prompts: Iterable[str]) -> dict[str, Ids]:
    """Token ids of prompts, with the tokenizer's own special tokens; each distinct one once."""
    distinct = list(dict.fromkeys(prompts))
    for prompt in distinct:
        check_prompt(prompt)
    return dict(zip(distinct, _encoded(lm, distinct), strict=True))


def prompt_ids(lm: LanguageModel, prompt: str) -> Ids:
    """Token ids of one prompt."""
    return ids_of_prompts(lm, [prompt])[prompt]


def prompt_prefix(lm: LanguageModel) -> Ids:
    """The special tokens that the tokenizer puts before every prompt."""
    return tuple(lm.tokenizer("")["input_ids"])


def ids_of_answers(
    lm: LanguageModel, answers: Iterable[str], separator: str = " "
) -> dict[str, Ids]:
    """Token ids of answers as a text has them after ``separator_after``; each distinct one once."""
    distinct = list(dict.fromkeys(answers))
    if not all(answer.strip() for answer in distinct):
        raise TokenError("an answer is empty")
    before = _ANCHORS[separator]
    texts = [before, *(f"{before}{separator}{answer.strip()}" for answer in distinct)]
    anchor, *joint = _encoded(lm, texts, add_special_tokens=False)
    for answer, ids in zip(distinct, joint, strict=True):
        if ids[: len(anchor)] != anchor or len(ids) == len(anchor):
            raise TokenError(f"answer {answer!r} cannot be separated from the text before it")
    return {answer: ids[len(anchor) :] for answer, ids in zip(distinct, joint, strict=True)}


def answer_ids(lm: LanguageModel, answer: str, separator: str = " ") -> Ids:
    """Token ids of one answer."""
    return ids_of_answers(lm, [answer], separator)[answer]


def separator_after(prompt: str) -> str:
    """What is between a prompt and its answer: a blank, or nothing.

    Nothing after a line break, an opening quote or bracket, or a script without blanks.
    """
    last = prompt[-1:] or "a"
    if last in _LINE_BREAKS or unicodedata.category(last) in ("Ps", "Pi"):
        return ""
    last_letter = next((sign for sign in reversed(prompt) if sign.isalpha()), "a")
    has_no_blanks = _WITHOUT_BLANKS.match(unicodedata.name(last_letter, ""))
    return "" if has_no_blanks or _OPENING.search(prompt) else " "


def ids_of_questions(
    lm: LanguageModel, questions: Sequence[tuple[str, Sequence[str]]]
) -> list[tuple[Ids, list[Ids]]]:
    """Token ids of prompts, each with its answers; each distinct text tokenised once.

    ``questions`` are pairs of a prompt and its answers.
    """
    prompts = ids_of_prompts(lm, (prompt for prompt, _ in questions))
    separators = {prompt: separator_after(prompt) for prompt in prompts}
    texts: dict[str, list[str]] = {}
    for prompt, answers in questions:
        texts.setdefault(separators[prompt], []).extend(answers)
    ids_after = {
        separator: ids_of_answers(lm, answers, separator) for separator, answers in texts.items()
    }
    tokenised = []
    for prompt, answers in questions:
        ids_of_prompt = prompts[prompt]
        ids_by_answer = ids_after[separators[prompt]]
        answer_ids_here = [ids_by_answer[answer] for answer in answers]
        longest = max((len(ids) for ids in answer_ids_here), default=1)
        # The last token of an answer is predicted and not read.
        check_length(lm, f"{prompt} …", len(ids_of_prompt) + longest - 1)
        tokenised.append((ids_of_prompt, answer_ids_here))
    return tokenised


def subject_prompts(
    lm: LanguageModel, templates: Sequence[str], subject: str
) -> list[SubjectPrompt]:
    """Fill each template's ``{}`` and find the last token that starts before the subject's end."""
    prompts = [template.replace("{}", subject) for template in templates]
    for prompt in prompts:
        check_prompt(prompt)
    encoded = lm.tokenizer(prompts, return_offsets_mapping=True)
    with_offsets = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
    with_subject = []
    for template, (ids, offsets) in zip(templates, with_offsets, strict=True):
        subject_end = template.index("{}") + len(subject.rstrip())  # in letters
        # Special tokens have empty spans and are never the subject's last token.
        before_end = [
            position
            for position, (start, end) in enumerate(offsets)
            if start < subject_end and end > start
        ]
        if not before_end:
            raise TokenError(f"the tokenizer drops the subject {subject!r}")
        with_subject.append(SubjectPrompt(tuple(ids), before_end[-1]))
    return with_subject


def subject_prompt(lm: LanguageModel, template: str, subject: str) -> SubjectPrompt:
    """Fill a template's ``{}`` and find the last token that starts before the subject's end."""
    return subject_prompts(lm, [template], subject)[0]


def chat_text(lm: LanguageModel, prompt: Prompt) -> str:
    """A user's message, or turns that end with one, in the model's chat template, up to the reply.

    Templates are rendered nowhere else:

    - one that has a switch for thinking (``enable_thinking``, ``thinking``) is told not to think, and
      a thought that it opens all the same is closed at once: the reply begins where an answer does;
    - an instruction (``system``) that a template refuses or drops is put before the first message;
    - one that prints today's date prints ``CHAT_DATE``.

    Whatever a template raises is a ``TokenError``.
    """
    if not getattr(lm.tokenizer, "chat_template", None):
        raise TokenError(f"{lm.name} has no chat template; use chat=False")
    turns = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    try:
        accepted = _accepted_turns(lm, turns)
        text = _rendered(lm, accepted)
        *earlier, last = accepted
        marked = _rendered(lm, [*earlier, {**last, "content": _MARK}])
    except Exception as error:  # a template is a program, which may fail in any way
        reason = " ".join(str(error).split())[:100]
        raise TokenError(
            f"the chat template of {lm.name} fails ({type(error).__name__}: {reason}):"
            " correct it, or use chat=False"
        ) from error
    _, shown, opening = marked.rpartition(_MARK)
    if not shown:
        raise TokenError(
            f"the chat template of {lm.name} does not show a message that is a text: correct it,"
            " or use chat=False"
        )
    if not text.endswith(opening):  # it depends on the message
        opening = text
    return text.removesuffix(opening) + _with_thought_closed(opening)


def _rendered(lm: LanguageModel, turns: Sequence[Mapping[str, str]]) -> str:
    """The turns in the template as it is, up to the reply."""
    template = lm.tokenizer.get_chat_template()
    rendered = lm.tokenizer.apply_chat_template(
        [dict(turn) for turn in turns],
        chat_template=_CLOCK + template if "strftime_now" in template else template,
        tokenize=False,
        add_generation_prompt=True,
        # Names that a template does not use are ignored.
        enable_thinking=False,
        thinking=False,
        date_string=CHAT_DATE,
    )
    return str(rendered)


def _accepted_turns(
    lm: LanguageModel, turns: Sequence[Mapping[str, str]]
) -> Sequence[Mapping[str, str]]:
    """The turns, or those with instructions merged where the template would refuse or drop these."""
    others = [turn for turn in turns if turn["role"] != "system"]
    if len(others) == len(turns):
        return turns
    merged: list[Mapping[str, str]] = []
    instructions: list[str] = []
    for turn in turns:
        if turn["role"] == "system":
            instructions.append(turn["content"])
        elif turn["role"] == "user" and instructions:
            merged.append({**turn, "content": "\n\n".join([*instructions, turn["content"]])})
            instructions = []
        else:
            merged.append(turn)
    try:
        text = _rendered(lm, turns)
    except Exception:  # refused, by whatever error; a template that is broken fails again
        return merged
    try:
        dropped = text == _rendered(lm, others)
    except Exception:  # the template needs an instruction
        return turns
    return merged if dropped else turns


def _with_thought_closed(opening: str) -> str:
    """The beginning of a reply, with a thought that it leaves open closed."""
    marks = list(_THOUGHT.finditer(opening))
    if not marks:
        return opening
    left, name, right = marks[-1].groups()
    beginning = re.match("begin|start", name)  # begin_of_thought is closed by end_of_thought
    closing_name = f"end{name[beginning.end() :]}" if beginning else f"/{name}"
    closing = left + closing_name + right
    if closing in opening[marks[-1].end() :]:
        return opening
    return f"{opening.rstrip()}\n\n{closing}\n\n"


@dataclass(frozen=True)
class ChatFrame:
    """What ``chat_prompt`` puts around a message; empty texts for a model without a chat template."""

    before: str = ""
    after: str = ""

    @classmethod
    def of(cls, lm: LanguageModel) -> ChatFrame:
        """The model's."""
        if not getattr(lm.tokenizer, "chat_template", None):
            return cls()
        try:
            before, _, after = chat_prompt(lm, _MARK).partition(_MARK)
        except TokenError:  # so no prompt can have been made by it
            return cls()
        return cls(before, after)

    def message(self, prompt: str) -> str:
        """The message of a prompt; a prompt without the frame is all message."""
        without_frame = prompt.removeprefix(self.before).removesuffix(self.after)
        return without_frame if self._is_around(prompt) else prompt

    def with_text(self, text: str, prompt: str) -> str:
        """The prompt with a text before its message."""
        start = len(self.before) if self._is_around(prompt) else 0
        return prompt[:start] + text + prompt[start:]

    def _is_around(self, prompt: str) -> bool:
        is_long_enough = len(prompt) > len(self.before) + len(self.after)
        return is_long_enough and prompt.startswith(self.before) and prompt.endswith(self.after)


def messages_of(lm: LanguageModel, prompts: Sequence[str]) -> list[str]:
    """The message of each prompt, which edits are made of and asked about."""
    frame = ChatFrame.of(lm)
    return [frame.message(prompt) for prompt in prompts]


def chat_prompt(lm: LanguageModel, message: str) -> str:
    """A message in the chat template, without special tokens that the tokenizer puts before a text."""
    text = chat_text(lm, message)
    prompt = text.removeprefix(lm.tokenizer.decode(prompt_prefix(lm)))
    ids_of_text = _encoded(lm, [text], add_special_tokens=False)
    if [prompt_ids(lm, prompt)] != ids_of_text:
        raise TokenError("the tokenizer adds special tokens that its chat template lacks")
    return prompt


def _encoded(lm: LanguageModel, texts: Sequence[str], **options: bool) -> list[Ids]:
    """Token ids of each text; ``options`` are the tokenizer's."""
    if not texts:  # which the tokenizer refuses
        return []
    options["return_attention_mask"] = False
    return [tuple(ids) for ids in lm.tokenizer(list(texts), **options)["input_ids"]]
