"""What the pipeline asks a model (packaged prompts), and how its free text is read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import yaml

from helpers.models import LanguageModel
from helpers.models.tokens import Prompt
from helpers.paths import PACKAGED
from helpers.scoring.naming import mentions
from helpers.scoring.responses import Sampling, sample_responses, uses_chat
from helpers.thinkedit.graph import Triplet
from helpers.thinkedit.grow.wordings import Wordings

PROMPTS = yaml.safe_load((PACKAGED / "thinkedit" / "prompts.yaml").read_text("utf-8"))
_BULLET = re.compile(r"^\s*(?:[-*•]|\(?\d{1,2}[.)])\s+")
# A full stop ends a sentence before white space and no small letter, not after an initial or a common title.
_SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!\b[A-Z]\.)(?<!\b(?:Mr|Ms|Dr|St)\.)(?<!\bMrs\.)(?<!\bProf\.)\s+(?![a-z])"
)
# A conclusion is no fact, and a pronoun names nothing.
_OPENING = re.compile(
    r"(?:so|therefore|thus|however|the answer is|answer|it|he|she|they|this|that|these|there)\b",
    re.IGNORECASE,
)
_NAME_AT_END = re.compile(
    r"(?P<relation>[a-z](?:.*?[a-z])?)\s+(?:the\s+)?"
    r"(?P<name>[^\W\d_a-z][^\s,]*(?:\s+(?:(?:of|and|the|de|la|du|von|van)\s+)*[^\W\d_a-z][^\s,]*)*)"
)
SAMPLING = Sampling(max_new_tokens=32, stop="\n")
_MAX_WORDS = 8  # a longer subject, relation or object is a sentence, not an entity


def question_prompt(path: Sequence[Triplet]) -> str:
    """Prompt for a question about a triplet (a path of one) or a chain."""
    if len(path) == 1:
        return str(PROMPTS["triplet_question"].format(**asdict(path[0])))
    links = [link for triplet in path for link in (triplet.relation, triplet.object)]
    return str(PROMPTS["chain_question"].format(chain=" -> ".join([path[0].subject, *links])))


def answer_prompt(question: str) -> str:
    """Prompt for a direct answer."""
    return str(PROMPTS["answer"].format(question=question))


def solved_prompt(name: str, question: str) -> list[dict[str, str]]:
    """Chat with two solved examples, for reasoning ("thought") or a statement's triplet ("extraction")."""
    return _chat(PROMPTS[name], PROMPTS[f"solved_{name}s"], question)


def as_chat(prompt_text: str) -> list[dict[str, str]]:
    """A prompt of Algorithm 1 as a chat: its paragraphs are an instruction, solved examples, each of which
    ends with ``field: reply``, and what is asked. A bare question gets those of ``solved_answers``.
    """
    full_text = (
        prompt_text if "\n\n" in prompt_text else f"{PROMPTS['solved_answers']}\n\n{prompt_text}"
    )
    instruction, *examples, question = full_text.split("\n\n")
    reply_to = {}
    for example in examples:
        lines_above, _, last_line = example.rpartition("\n")
        field_name, _, reply = last_line.partition(": ")
        reply_to[f"{lines_above}\n{field_name}:"] = reply
    return _chat(instruction, reply_to, question)


def _chat(instruction: str, reply_to: Mapping[str, str], question: str) -> list[dict[str, str]]:
    turns = [("system", instruction)]
    for solved_question, reply in reply_to.items():
        turns += [("user", solved_question), ("assistant", reply)]
    return [{"role": role, "content": text} for role, text in (*turns, ("user", question))]


def question_of(response: str) -> str:
    """The first question in the text, or an empty string."""
    for line in response.splitlines():
        match = re.search(r"[^?]*\?", line.removeprefix("Question:"))
        if match and match.group().strip(" ?"):
            return _BULLET.sub("", match.group()).strip()
    return ""


def statements(thoughts: Sequence[str], question: str) -> list[str]:
    """The lines and sentences of reasoning about a question, each once, without bullets; not those that name
    an entity of the solved examples which the question does not name.
    """
    sentences: dict[str, None] = {}
    for thought in thoughts:
        for line in thought.splitlines():
            without_bullet = _BULLET.sub("", line).strip()
            for sentence in _SENTENCE_END.split(without_bullet):
                sentences[sentence.strip()] = None
    entities_of_examples = [
        entity for entity in PROMPTS["examples"] if not mentions(question, (entity,))
    ]
    return [
        sentence
        for sentence in sentences
        if len(sentence.split()) >= 3
        and not _OPENING.match(sentence)
        and not any(mentions(sentence, (entity,)) for entity in entities_of_examples)
    ]


def triplets_of(response: str, statement: str, wordings: Wordings) -> list[Triplet]:
    """The triplets that a model wrote for a statement, as ``a | b | c``, each once.

    A line that words a known relation is read by it. One of two parts, ``a | b c``, is split before the name
    at its end. Omitted are other lines, entities that the statement does not hold, and overlong parts.
    """
    triplets: dict[tuple[str, str, str], Triplet] = {}
    for line in response.splitlines():
        triplet_texts = _triplet_parts(line, wordings)
        if len(triplet_texts) != 3:
            continue
        subject_name, relation, object_name = (
            triplet_text.strip(' ."`()').removeprefix("the ") for triplet_text in triplet_texts
        )
        if mentions(statement, (subject_name,)) and mentions(statement, (object_name,)):
            triplet = Triplet(wordings.name(subject_name), relation, wordings.name(object_name))
            is_short = all(
                1 <= len(triplet_text.split()) <= _MAX_WORDS for triplet_text in triplet.key
            )
            if is_short and triplet.key[0] != triplet.key[2]:
                triplets.setdefault(triplet.key, triplet)
    return list(triplets.values())


def _triplet_parts(line: str, wordings: Wordings) -> list[str]:
    """What a line states, by a known relation or else as it is divided; three parts where it is a triplet."""
    triplet_texts = [triplet_text.strip() for triplet_text in _BULLET.sub("", line).split("|")]
    if worded_fact := wordings.read(" ".join(triplet_texts)):
        return [*worded_fact]
    if len(triplet_texts) == 2 and (relation_and_name := _NAME_AT_END.fullmatch(triplet_texts[1])):
        return [triplet_texts[0], relation_and_name["relation"], relation_and_name["name"]]
    return triplet_texts


@dataclass(frozen=True)
class ModelRespondent:
    """A language model that the pipeline asks: through its chat template if it has one, else by completion,
    up to the first empty line. With ``turns``, every prompt is a chat of its own (``as_chat``).
    """

    lm: LanguageModel
    sampling: Sampling = SAMPLING
    turns: bool = False

    @property
    def fingerprint(self) -> str:
        """Weights, tokenizer, type, device and sampling: with n and seed, what determines responses."""
        lm = self.lm
        settings = asdict(self._sampling(0))
        del settings["seed"]
        settings |= {"turns": True} if self.turns else {}
        settings_in_words = ", ".join(f"{name}={value!r}" for name, value in settings.items())
        return f"{lm.fingerprint}, {lm.dtype_name} on {lm.device.type} ({settings_in_words})"

    def respond(
        self, prompts: Sequence[Prompt], *, n: int, seed: int, **changes: Any
    ) -> list[list[str]]:
        """``n`` sampled responses per prompt; ``changes`` are fields of the sampling."""
        sampling = self._sampling(seed, **changes)
        if self.turns:
            prompts = [as_chat(text) if isinstance(text, str) else text for text in prompts]
        return sample_responses(self.lm, prompts, n=n, sampling=sampling)

    def _sampling(self, seed: int, **changes: Any) -> Sampling:
        sampling = replace(self.sampling, **changes)
        chat = self.turns or uses_chat(self.lm, self.sampling)
        stop = sampling.stop if chat else sampling.stop or "\n\n"
        return replace(sampling, stop=stop, chat=chat, seed=seed)
