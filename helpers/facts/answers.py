"""What a model gives for a fact before and after its edit, and the table's row that is made of both."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from helpers.editing.edit import Edit
from helpers.facts.fact import Fact
from helpers.models import LanguageModel
from helpers.models.tokens import Ids, answer_ids, separator_after, subject_prompt
from helpers.peak.metrics import additivity, keep_answers
from helpers.results.statistics import Kind
from helpers.scoring.answers import Question, score_answers
from helpers.scoring.naming import starts
from helpers.scoring.responses import Sampling, response_text, sample_tokens

GREEDY = Sampling(temperature=0, max_new_tokens=12, stop="\n", chat=False)
LONGEST_LETTER = 4  # tokens, of bytes; their number shows whether a word goes on after the target
END = -1  # no token's id: where a continuation stops by itself
_DAMAGE = ("CPC", "AFF", "ANF")
FACT_MEASURES: dict[str, Kind] = {  # of the table, with how their values are distributed
    "efficacy": "share",
    "generality": "share",
    "locality": "fraction",
    "CPC": "number",
    "AFF": "fraction",
    "ANF": "fraction",
}
# Of an edit's diagnostics, what its row depends on.
_ROW_DIAGNOSTICS = ("failure", "exploding", "layers")


@dataclass(frozen=True)
class Answers:
    """What one model gives for a fact.

    ``tokens`` are its greedy continuations of ``fact.prompts``, fewer where the text ends; ``sums`` and
    ``means`` the log-probabilities of target, correct and false answers, whole and a token.
    """

    tokens: list[Ids]
    sums: list[float]
    means: list[float]

    version: ClassVar[int] = 1  # raise it when the same fact gets other answers

    def to_row(self) -> dict[str, str]:
        """As the results store keeps them."""
        return {"tokens": json.dumps(self.tokens), "scores": json.dumps([self.sums, self.means])}

    @classmethod
    def from_row(cls, row: Mapping[Any, Any]) -> Answers:
        """The answers that ``to_row`` gave."""
        sums, means = json.loads(row["scores"])
        return cls([tuple(ids) for ids in json.loads(row["tokens"])], sums, means)


def answers_to(
    lm: LanguageModel, facts: Sequence[Fact], edits: Sequence[Edit], owners: Sequence[int]
) -> list[Answers]:
    """What the model gives for each fact, under the edit that ``owners`` name for it."""
    questions = [
        Question(fact.prompts[0], (fact.target, *fact.correct, *fact.false)) for fact in facts
    ]
    scores = score_answers(lm, questions, edits, owners)
    prompts: list[str] = []
    prompt_owners: list[int] = []
    token_counts = [_token_count(lm, fact) for fact in facts]
    for fact, owner in zip(facts, owners, strict=True):
        prompts += fact.prompts
        prompt_owners += [owner] * len(fact.prompts)
    sampling = replace(GREEDY, max_new_tokens=max(token_counts), stop=None)
    continuations = iter(sample_tokens(lm, prompts, edits, prompt_owners, sampling))
    answers = []
    scores_of_facts = scores.groupby("question", sort=True)
    for fact, token_count, (_, fact_scores) in zip(
        facts, token_counts, scores_of_facts, strict=True
    ):
        tokens = [next(continuations)[0][:token_count] for _ in fact.prompts]
        answers.append(Answers(tokens, fact_scores["sum"].tolist(), fact_scores["mean"].tolist()))
    return answers


def _token_count(lm: LanguageModel, fact: Fact) -> int:
    """Tokens after which it is decided whether a continuation gives the fact's target."""
    longest_target = max(map(len, _target_ids(lm, fact)))
    return max(GREEDY.max_new_tokens, longest_target + LONGEST_LETTER)


def _target_ids(lm: LanguageModel, fact: Fact) -> list[Ids]:
    """The target's tokens after each of the fact's prompts."""
    return [answer_ids(lm, fact.target, separator_after(prompt)) for prompt in fact.prompts]


def fact_row(
    lm: LanguageModel,
    fact: Fact,
    before: Answers,
    after: Answers,
    diagnostics: Mapping[str, Any],
) -> dict[str, object]:
    """A fact's row of the table that ``edit_facts`` describes, without columns it does not ask for."""
    targets = _target_ids(lm, fact)
    known_before = gives(lm, before.tokens[0], targets[0])
    given_after = [gives(lm, *pair) for pair in zip(after.tokens, targets, strict=True)]
    row: dict[str, object] = {
        "fact": fact.request.text,
        "target": fact.target,
        "outcome": outcome(diagnostics, known_before=known_before, given_after=given_after[0]),
        "generated before": shown_text(lm, before),
        "generated after": shown_text(lm, after),
        "P before": float(np.exp(before.sums[0])),
        "P after": float(np.exp(after.sums[0])),
        "efficacy": float("nan") if known_before else float(given_after[0]),
    }
    first_locality = 1 + len(fact.paraphrases)
    if fact.paraphrases:
        row["generality"] = np.mean(given_after[1:first_locality])
    if fact.locality:
        continuations = zip(
            before.tokens[first_locality:], after.tokens[first_locality:], strict=True
        )
        row["locality"] = np.mean([shared_beginning(*pair) for pair in continuations])
    if fact.correct and fact.false:
        row |= damage(fact, before, after)
    return row


def text_rows(
    lm: LanguageModel, facts: Sequence[Fact], before: Sequence[Answers], after: Sequence[Answers]
) -> pd.DataFrame:
    """Every prompt of the facts and what it is for, with the greedy continuations before and after."""
    rows = []
    for fact, answers_before, answers_after in zip(facts, before, after, strict=True):
        roles = ["prompt", *["paraphrase"] * len(fact.paraphrases)]
        roles += ["locality"] * len(fact.locality)
        for prompt_index, (role, prompt) in enumerate(zip(roles, fact.prompts, strict=True)):
            row = {"fact": fact.request.text, "target": fact.target, "role": role, "text": prompt}
            row["before"] = shown_text(lm, answers_before, prompt_index)
            row["after"] = shown_text(lm, answers_after, prompt_index)
            rows.append(row)
    return pd.DataFrame(rows)


def gives(lm: LanguageModel, tokens: Ids, target: Ids) -> bool:
    """Whether a continuation begins with the target's tokens, and the name that they are ends there."""
    if not begins_with(tokens, target):
        return False
    text, name = (lm.tokenizer.decode(ids, skip_special_tokens=True) for ids in (tokens, target))
    return 0 in starts(text, name)


def begins_with(tokens: Ids, target: Ids) -> bool:
    """Whether the target's tokens are the first ones."""
    return tokens[: len(target)] == target


def outcome(diagnostics: Mapping[str, Any], *, known_before: bool, given_after: bool) -> str:
    """What became of an edit, in the table's words."""
    if failure := diagnostics.get("failure"):
        return f"given up: {failure}"
    if known_before:
        return "known before"
    return "written" if given_after else "not written"


def shown_text(lm: LanguageModel, answers: Answers, prompt_index: int = 0) -> str:
    """The beginning of the continuation of one of the fact's prompts, up to the line's end."""
    return response_text(lm, answers.tokens[prompt_index][: GREEDY.max_new_tokens], GREEDY)


def shared_beginning(before: Ids, after: Ids) -> float:
    """Share of the first continuation that the second repeats before it departs; an end is a token."""
    tokens_before = (*before, END)[: GREEDY.max_new_tokens]
    tokens_after = (*after, END)[: GREEDY.max_new_tokens]
    shared_count = 0
    for token_before, token_after in zip(tokens_before, tokens_after, strict=False):
        if token_before != token_after:
            break
        shared_count += 1
    return shared_count / len(tokens_before)


def damage(fact: Fact, before: Answers, after: Answers) -> dict[str, float]:
    """CPC, AFF and ANF at the edit prompt, over the answers that the unedited model ranks as it should."""
    correct_before, false_before = answer_lists(fact, before)
    correct_after, false_after = answer_lists(fact, after)
    counted_answers = keep_answers(correct_before, false_before, false_before)
    correct = np.array([correct_before, correct_after])[:, counted_answers.correct]
    false = np.array([false_before, false_after])[:, counted_answers.hard]
    measures = additivity(correct, false)
    return {name: measures[name] for name in _DAMAGE}


def answer_lists(fact: Fact, answers: Answers) -> tuple[np.ndarray, np.ndarray]:
    """Mean log-probabilities of the correct and of the false answers; the target's comes before them."""
    _, correct, false = np.split(np.array(answers.means), [1, 1 + len(fact.correct)])
    return correct, false


def diagnostics_for_row(edit: Edit) -> dict[str, Any]:
    """What an edit's row depends on of its diagnostics."""
    return {name: value for name, value in edit.diagnostics.items() if name in _ROW_DIAGNOSTICS}


def edit_warnings(
    lm: LanguageModel, fact: Fact, diagnostics: Mapping[str, Any], *, edits_subject_token: bool
) -> list[str]:
    """What is odd about an edit that was made, from its diagnostics."""
    messages = []
    if edits_subject_token and not subject_prompt(lm, fact.prompt, fact.subject).subject_last:
        messages.append("the subject is the first token, which holds no fact: put a word before it")
    if diagnostics.get("exploding"):
        messages.append("the update is as large as the weights")
    layers = diagnostics.get("layers", {}).values()
    return messages + [layer["warning"] for layer in layers if "warning" in layer]
