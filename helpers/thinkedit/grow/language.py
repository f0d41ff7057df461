"""The pipeline's prompt templates (the paper's Figures 8–10 are images; these are our own wording).

The prompts of Algorithm 1 carry their worked examples and end in an open field, so the same text
serves an instruct model (as the user's message of its chat template) and a base model (as text to
complete). Those of Algorithm 2 are chats: an instruction, two solved examples of other domains, and
what is asked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from helpers.models.language_model import LanguageModel
from helpers.models.tokens import Prompt
from helpers.scoring.naming import mentions
from helpers.scoring.responses import Sampling, sample_responses, uses_chat
from helpers.thinkedit.graph import Triplet
from helpers.thinkedit.grow.wordings import Wordings

TRIPLET_QUESTION = """\
Write one direct question about the subject whose answer is the object. Do not name the object.

Subject: Mount Etna | Relation: is located in | Object: Sicily
Question: Where is Mount Etna located?

Subject: Marie Curie | Relation: was married to | Object: Pierre Curie
Question: Who was Marie Curie married to?

Subject: Bedřich Smetana | Relation: composed | Object: The Moldau
Question: Which work did Bedřich Smetana compose?

Subject: {subject} | Relation: {relation} | Object: {object}
Question:"""

CHAIN_QUESTION = """\
Write one question that asks for the last entity of a chain, starting from the first. \
Do not name the entities in between or the last one.

Chain: Mount Etna -> is located in -> Sicily -> has the capital -> Palermo
Question: What is the capital of the island on which Mount Etna is located?

Chain: Marie Curie -> was married to -> Pierre Curie -> was born in -> Paris
Question: Where was the husband of Marie Curie born?

Chain: The Moldau -> was composed by -> Bedřich Smetana -> played the -> piano
Question: Which instrument did the composer of The Moldau play?

Chain: {chain}
Question:"""

ANSWER = """\
Question: {question}
Answer:"""

CHAIN_OF_THOUGHT = """\
Answer step by step. Write one short fact per line. \
In every line, name every person, place and thing in full. The last line begins with "Therefore"."""

THOUGHTS = {
    "Which instrument did the composer of Rusalka play?": """\
Rusalka was composed by Antonín Dvořák.
Antonín Dvořák was born in Bohemia.
Antonín Dvořák played the viola.
Therefore the composer of Rusalka played the viola.""",
    "Which element did the wife of Pierre Curie discover?": """\
Pierre Curie was married to Marie Curie.
Marie Curie worked in the field of radioactivity.
Marie Curie discovered polonium.
Therefore the wife of Pierre Curie discovered polonium.""",
}

FACT_EXTRACTION = """\
Write the fact of the statement as: subject | relation | object"""

FACTS = {
    "Rusalka was composed by Antonín Dvořák.": "Rusalka | was composed by | Antonín Dvořák",
    "Marie Curie, a chemist, discovered polonium.": "Marie Curie | discovered | polonium",
}

# A small model repeats them; what names one is no thought of its own.
_EXAMPLES = [
    *("Rusalka", "Antonín Dvořák", "Bohemia", "viola"),
    *("Pierre Curie", "Marie Curie", "radioactivity", "polonium"),
]


def question_prompt(path: Sequence[Triplet]) -> str:
    """Prompt for a question about a triplet (a path of one) or a chain.

    Raises:
        ValueError: an empty path.
    """
    if not path:
        raise ValueError("an empty chain has no question")
    if len(path) == 1:
        (triplet,) = path
        return TRIPLET_QUESTION.format(
            subject=triplet.subject, relation=triplet.relation, object=triplet.object
        )
    links = [part for triplet in path for part in (triplet.relation, triplet.object)]
    return CHAIN_QUESTION.format(chain=" -> ".join([path[0].subject, *links]))


def answer_prompt(question: str) -> str:
    """Prompt for a direct answer."""
    return ANSWER.format(question=question)


def thought_prompt(question: str) -> list[dict[str, str]]:
    """Chat for step-by-step reasoning, one fact per line."""
    return _chat(CHAIN_OF_THOUGHT, THOUGHTS, question)


def extraction_prompt(statement: str) -> list[dict[str, str]]:
    """Chat for the triplet of one statement."""
    return _chat(FACT_EXTRACTION, FACTS, statement)


def repeats_example(statement: str, question: str) -> bool:
    """Whether a statement names an entity of the solved examples that the question does not name."""
    return any(mentions(statement, (e,)) and not mentions(question, (e,)) for e in _EXAMPLES)


def _chat(instruction: str, solved: Mapping[str, str], asked: str) -> list[dict[str, str]]:
    turns = [("system", instruction)]
    for message, reply in solved.items():
        turns += [("user", message), ("assistant", reply)]
    return [{"role": role, "content": text} for role, text in (*turns, ("user", asked))]


def _shown(turns: Sequence[Mapping[str, str]]) -> str:
    return "\n\n".join(f"<{turn['role']}>\n{turn['content']}" for turn in turns)


TEMPLATES = {
    "triplet-based question": TRIPLET_QUESTION,
    "chain-based question": CHAIN_QUESTION,
    "answer": ANSWER,
    "chain of thought": _shown(thought_prompt("{question}")),
    "fact extraction": _shown(extraction_prompt("{statement}")),
}

_BULLET = re.compile(r"^\s*(?:[-*•]|\(?\d{1,2}[.)])\s+")
# A full stop ends a sentence only before white space and not after an initial or a common title.
_SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!\b[A-Z]\.)(?<!\bMr\.)(?<!\bMs\.)(?<!\bDr\.)(?<!\bSt\.)(?<!\bMrs\.)(?<!\bProf\.)\s+"
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
_MAX_WORDS = 8  # a longer subject, relation or object is a sentence, not an entity


def question_of(text: str) -> str:
    """The first question in the text, or an empty string."""
    for line in text.splitlines():
        found = re.search(r"[^?]*\?", line.removeprefix("Question:"))
        if found and found.group().strip(" ?"):
            return _BULLET.sub("", found.group()).strip()
    return ""


def fallback_question(triplet: Triplet) -> str:
    """A question made from the cloze, for models that do not write one."""
    return f"{triplet.prompt.replace('{}', triplet.subject)} what?"


def statements(text: str) -> list[str]:
    """Split reasoning into statements: one per line and sentence, without bullets, each once."""
    found: dict[str, None] = {}
    for line in text.splitlines():
        for sentence in _SENTENCE_END.split(_BULLET.sub("", line).strip()):
            statement = sentence.strip()
            if len(statement.split()) >= 3 and not _OPENING.match(statement):
                found.setdefault(statement)
    return list(found)


def triplets_of(text: str, statement: str, wordings: Wordings | None = None) -> list[Triplet]:
    """The triplets that a model wrote for a statement, as ``a | b | c`` or ``(a, b, c)``, each once.

    A line that words a known relation is read by it, however it is split. One of two parts,
    ``a | b c``, is split before the name at its end.

    Args:
        text: what the model wrote.
        statement: what it was asked about; a triplet with an entity that is not in it is left out.
        wordings: the known relations, and the names that stand for their entities' aliases.

    Left out, too, are lines of other shapes, empty or overlong parts, and an entity's relation to itself:
    they are not facts.
    """
    found: dict[tuple[str, str, str], Triplet] = {}
    for line in text.splitlines():
        for parts in _parts(_BULLET.sub("", line).strip(), wordings):
            subject, relation, goal = (_bare(part).removeprefix("the ") for part in parts)
            if not all(mentions(statement, (entity,)) for entity in (subject, goal)):
                continue
            if wordings is not None:
                subject, goal = wordings.name(subject), wordings.name(goal)
            triplet = Triplet(subject, relation, goal)
            if _is_atomic(triplet):
                found.setdefault(triplet.key, triplet)
    return list(found.values())


def _parts(line: str, wordings: Wordings | None) -> list[tuple[str, str, str]]:
    groups = [group.split(",") for group in re.findall(r"\(([^()]*)\)", line)]
    if listed := [(parts[0], parts[1], parts[2]) for parts in groups if len(parts) == 3]:
        return listed
    parts = [part.strip() for part in line.split("|")]
    if wordings is not None and (worded := wordings.read(" ".join(parts))):
        return [worded]
    if len(parts) == 2 and (named := _NAME_AT_END.fullmatch(parts[1])):
        return [(parts[0], named["relation"], named["name"])]
    return [(parts[0], parts[1], parts[2])] if len(parts) == 3 else []


def _bare(part: str) -> str:
    """Without blanks, full stops, brackets and quotes around it; the apostrophe of 's stays."""
    bare = part.strip(' ."`()')
    quoted = len(bare) > 1 and bare.startswith("'") and bare.endswith("'")
    return bare.strip("'").strip(" .") if quoted else bare


def _is_atomic(triplet: Triplet) -> bool:
    parts = (triplet.subject, triplet.relation, triplet.object)
    sized = all(1 <= len(part.split()) <= _MAX_WORDS for part in parts)
    return sized and triplet.key[0] != triplet.key[2]


@dataclass(frozen=True)
class ModelRespondent:
    """Responds by batched sampling: instruct models through their chat template, others by completion.

    A completion ends at the first empty line, because the prompts separate their examples by one.
    ``rows`` responses are generated at the same time; it does not change them.
    """

    language_model: LanguageModel
    sampling: Sampling = field(default_factory=lambda: Sampling(max_new_tokens=64))
    rows: int = 64

    @property
    def chat(self) -> bool:
        """Whether prompts go through the chat template."""
        return uses_chat(self.language_model, self.sampling)

    @property
    def fingerprint(self) -> str:
        """Weights, tokenizer, type, device and sampling: what determines responses besides n and seed."""
        model = self.language_model
        settings = {k: v for k, v in asdict(self._sampling(0)).items() if k != "seed"}
        listed = ", ".join(f"{name}={value!r}" for name, value in settings.items())
        return f"{model.fingerprint}, {model.dtype_name} on {model.device.type} ({listed})"

    def respond(
        self, prompts: Sequence[Prompt], *, n: int, seed: int, **changes: Any
    ) -> list[list[str]]:
        """``n`` sampled responses per prompt; ``changes`` are fields of the sampling."""
        sampling = self._sampling(seed, **changes)
        return sample_responses(
            self.language_model, prompts, n=n, sampling=sampling, rows=self.rows
        )

    def _sampling(self, seed: int, **changes: Any) -> Sampling:
        sampling = replace(self.sampling, **changes)
        stop = sampling.stop if self.chat else sampling.stop or "\n\n"
        return replace(sampling, stop=stop, chat=self.chat, seed=seed)
