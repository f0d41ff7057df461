"""The pipeline's prompt templates (the paper's Figures 8–10 are images; these are our own wording).

Every prompt carries its worked examples and ends in an open field, so the same text serves an instruct
model (as the user's message of its chat template) and a base model (as text to complete).
"""

from __future__ import annotations

from collections.abc import Sequence

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
Answer the question step by step. Write one short fact per line that names everything it is about, \
then the answer.

Question: In which country is Mount Etna?
Mount Etna is located in Sicily.
Sicily is a part of Italy.
The answer is Italy.

Question: Where was the husband of Marie Curie born?
Marie Curie was married to Pierre Curie.
Pierre Curie was born in Paris.
The answer is Paris.

Question: Which instrument did the composer of The Moldau play?
The Moldau was composed by Bedřich Smetana.
Bedřich Smetana played the piano.
The answer is the piano.

Question: {question}
"""

FACT_EXTRACTION = """\
Write every fact of the statement as: subject | relation | object

Statement: Marie Curie, who was born in Warsaw, discovered radium.
Marie Curie | was born in | Warsaw
Marie Curie | discovered | radium

Statement: Mount Etna is located in Sicily.
Mount Etna | is located in | Sicily

Statement: The Moldau was composed by Bedřich Smetana.
The Moldau | was composed by | Bedřich Smetana

Statement: {statement}
"""

TEMPLATES = {
    "triplet-based question": TRIPLET_QUESTION,
    "chain-based question": CHAIN_QUESTION,
    "answer": ANSWER,
    "chain of thought": CHAIN_OF_THOUGHT,
    "fact extraction": FACT_EXTRACTION,
}


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


def thought_prompt(question: str) -> str:
    """Prompt for step-by-step reasoning."""
    return CHAIN_OF_THOUGHT.format(question=question).rstrip("\n")


def extraction_prompt(statement: str) -> str:
    """Prompt for the triplets of one statement."""
    return FACT_EXTRACTION.format(statement=statement).rstrip("\n")
