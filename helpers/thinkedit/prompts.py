"""The pipeline's prompt templates (the paper's Figures 8–10 are images; these are our own wording).

The prompts of Algorithm 1 carry their worked examples and end in an open field, so the same text
serves an instruct model (as the user's message of its chat template) and a base model (as text to
complete). Those of Algorithm 2 are chats: an instruction, two solved examples of other domains, and
what is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from helpers.scoring.naming import mentions
from helpers.thinkedit.graph import Triplet

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
