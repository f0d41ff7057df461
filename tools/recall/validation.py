"""Which proposed facts a model itself holds: Algorithm 1 for many facts at once, cached in the store.

Two things are asked of a fact. Its *probability* is the whole probability of naming the object after
the cloze, as the exact estimator takes it. It is *answered* if the model's most probable response to
one of the questions, tried in their order, contains the object or an alias.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from helpers.models.language_model import LanguageModel
from helpers.results.store import Cases, ResultsStore
from helpers.scoring.answers import Question
from helpers.scoring.naming import mentions, names_of
from helpers.scoring.responses import Sampling, sample_responses, uses_chat
from helpers.thinkedit.grow.language import answer_prompt
from helpers.thinkedit.grow.people import Proposal
from helpers.thinkedit.grow.wordings import Wordings
from helpers.thinkedit.probes import Probe
from helpers.thinkedit.scores import exact_scores

VERSION = 1
GREEDY = Sampling(temperature=0, max_new_tokens=24, stop="\n")


@dataclass(frozen=True)
class Validation:
    """One model asked about proposals.

    Args:
        language_model: the model.
        wordings: questions, clozes, examples and aliases.
        store: where answers and probabilities are kept.
        examples: how many solved examples come before a question (none of them is about a fact asked).
        attempts: questions tried, the paper's k_max.
    """

    language_model: LanguageModel
    wordings: Wordings
    store: ResultsStore
    examples: int = 0
    attempts: int = 1
    chunk: int = 256

    @property
    def sampling(self) -> Sampling:
        """How answers are drawn: with examples as a completion, else as the model is usually asked."""
        return replace(GREEDY, chat=False) if self.examples else GREEDY

    def settings(self, asked: str) -> dict[str, Any]:
        """What "clozes" or "questions" give depends on, besides the texts."""
        own: dict[str, Any] = {"scored_by": {"answers": Question.version}}
        if asked == "questions":
            shown = [list(pair) for pair in self.wordings.examples[: self.examples]]
            own = {
                "examples": shown,
                "sampling": asdict(self.sampling),
                "drawn_by": Sampling.version,
            }
        identity = self.language_model.identity
        return {"benchmark": "recalled", "version": VERSION, "asked": asked, **identity, **own}

    def probabilities(self, proposals: Sequence[Proposal], clozes: Sequence[str]) -> np.ndarray:
        """Whole probability of each proposal's object after its cloze, [proposals]."""
        aliases = self.wordings.aliases
        probes = {
            _number(cloze, p.subject, *names_of(p.object, aliases)): Probe(
                0, "fact", 0, cloze.replace("{}", p.subject), p.object
            )
            for p, cloze in zip(proposals, clozes, strict=True)
        }

        def made(chunk: Sequence[tuple[int, Probe]]) -> Mapping[str, pd.DataFrame]:
            numbered = [replace(probe, case_id=number) for number, probe in chunk]
            return {"scores": exact_scores(self.language_model, numbered, aliases)}

        cases = Cases({number: (number, probe) for number, probe in probes.items()}, self.chunk)
        table = cases.completed(self.store.open(self.settings("clozes")), made)
        named = np.exp(table.set_index("case_id")["original_named"])
        wanted = [
            _number(cloze, p.subject, *names_of(p.object, aliases))
            for p, cloze in zip(proposals, clozes, strict=True)
        ]
        return np.asarray(named.loc[wanted], dtype=float)

    def answers(self, questions: Sequence[str]) -> list[str]:
        """The model's most probable response to each question."""
        distinct = {_number(question): question for question in questions}

        def made(chunk: Sequence[tuple[int, str]]) -> Mapping[str, pd.DataFrame]:
            prompts = [self.prompt(question) for _, question in chunk]
            responses = sample_responses(self.language_model, prompts, n=1, sampling=self.sampling)
            rows = [(n, text) for (n, _), (text,) in zip(chunk, responses, strict=True)]
            return {"scores": pd.DataFrame(rows, columns=["case_id", "response"])}

        cases = Cases({number: (number, text) for number, text in distinct.items()}, self.chunk)
        table = cases.completed(self.store.open(self.settings("questions")), made)
        found = table.set_index("case_id")["response"]
        return [str(found[_number(question)]) for question in questions]

    def questions_that_validate(self, proposals: Sequence[Proposal]) -> list[str]:
        """For each proposal the first question whose answer names its object; empty where none does."""
        validated = [""] * len(proposals)
        for attempt in range(self.attempts):
            asked = {}
            for place, proposal in enumerate(proposals):
                wording = self.wordings.relations[proposal.relation]
                if not validated[place] and attempt < len(wording.questions):
                    asked[place] = wording.questions[attempt].replace("{}", proposal.subject)
            responses = self.answers(list(asked.values()))
            for (place, question), response in zip(asked.items(), responses, strict=True):
                if mentions(response, names_of(proposals[place].object, self.wordings.aliases)):
                    validated[place] = question
        return validated

    def prompt(self, question: str) -> str:
        """The text the model gets: a message for chat models asked without examples, else to complete."""
        if not self.examples and uses_chat(self.language_model, GREEDY):
            return question
        shown = self.wordings.examples[: self.examples]
        solved = "".join(f"{answer_prompt(known)} {answer}\n\n" for known, answer in shown)
        return solved + answer_prompt(question)


def _number(*texts: str) -> int:
    """A number for the store that depends on the texts alone."""
    digest = hashlib.sha256("\x1f".join(texts).encode()).digest()
    return int.from_bytes(digest[:7], "big")
