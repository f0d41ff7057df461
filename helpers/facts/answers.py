"""What a model gives for facts before and after their edits, and the table's rows that are made of both."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from helpers.facts.benchmark import GREEDY, target_ids
from helpers.facts.fact import Fact, fact_warnings
from helpers.models import LanguageModel
from helpers.models.tokens import Ids, subject_prompt
from helpers.peak.metrics import KEYS, METRICS, metrics_table
from helpers.results.evaluation import Evaluation, joined
from helpers.results.statistics import Kind
from helpers.results.store import Cases, Results
from helpers.scoring.naming import starts
from helpers.scoring.responses import response_text

END = -1  # no token's id: where a continuation stops by itself
# Columns of damage, and PEAK's metric at the edit prompt that each of them is.
_DAMAGE = {"CPC": "CPC_hard", "AFF": "AFF_hard", "ANF": "ANF_hard"}
FACT_MEASURES: dict[str, Kind] = {  # of the table, with how their values are distributed
    "efficacy": "share",
    "generality": "share",
    "locality": "fraction",
    **{column: METRICS[metric].kind for column, metric in _DAMAGE.items()},
}


@dataclass(frozen=True)
class Answers:
    """What one model gives for a fact."""

    probability: float  # of the whole target at the edit prompt, the product over its tokens
    tokens: tuple[Ids, ...]  # greedy continuations of ``Fact.prompts``


@dataclass(frozen=True)
class FactRows:
    """What is stored of the facts of an evaluation, by their numbers but for the long table of scores.

    It is read once: each look at an evaluation's results reads all weights.
    """

    scores: pd.DataFrame
    answers: Mapping[int, Answers]
    edits: Mapping[int, Mapping[Hashable, Any]]  # their diagnostics; none of the unedited model
    warnings: Mapping[int, str]

    @classmethod
    def of(cls, cases: Cases[Fact], results: Results) -> FactRows:
        """The rows of finished facts."""
        scores = cases.read(results)
        of_targets = scores[scores["list"] == "target"]
        probabilities = dict(zip(of_targets["case_id"], np.exp(of_targets["sum"]), strict=True))
        texts = cases.read(results, "continuations")
        tokens: dict[int, list[Ids]] = {}
        for case_id, ids in zip(texts["case_id"], texts["tokens"], strict=True):
            tokens.setdefault(case_id, []).append(tuple(map(int, ids)))
        answers = {
            case_id: Answers(float(probabilities[case_id]), tuple(of_prompts))
            for case_id, of_prompts in tokens.items()
        }
        diagnostics = cases.read(results, "edits").to_dict("records")
        warnings = cases.read(results, "warnings")
        return cls(
            scores,
            answers,
            {row["case_id"]: row for row in diagnostics},
            dict(zip(warnings["case_id"], warnings["warning"], strict=True)),
        )

    @property
    def usable_scores(self) -> pd.DataFrame:
        """The scores without those under an edit that was given up."""
        given_up = [case_id for case_id, edit in self.edits.items() if edit["failure"]]
        return self.scores[~self.scores["case_id"].isin(given_up)]


def finished_rows(evaluation: Evaluation[Fact], results: Results) -> FactRows:
    """What is stored of an evaluation in its ``results``, once what is missing there was made."""
    if evaluation.cases.missing(results):
        evaluation.complete()
    return FactRows.of(evaluation.cases, results)


def fact_table(
    lm: LanguageModel,
    facts: Sequence[Fact],
    before: FactRows,
    after: FactRows,
    *,
    together: bool,
    edits_subject_token: bool,
) -> pd.DataFrame:
    """A row a fact of what its edit did, as ``edit_facts`` describes it.

    Args:
        together: whether one edit was made of all facts.
        edits_subject_token: whether the editor writes at the subject's last token.
    """
    usable_scores = after.usable_scores
    damage = pd.DataFrame()
    if len(usable_scores):
        damage = metrics_table(joined(before.scores, usable_scores, KEYS))
    rows = []
    for fact in facts:
        case_id = fact.case_id
        edit = after.edits[case_id]
        row = fact_row(lm, fact, before.answers[case_id], after.answers[case_id], edit["failure"])
        if fact.correct and fact.false:
            for column, metric in _DAMAGE.items():
                is_measured = case_id in damage.index  # an edit that was given up has none
                row[column] = damage.loc[case_id, metric] if is_measured else float("nan")
        warnings = fact_warnings(fact, facts, together=together)
        if edits_subject_token and not subject_prompt(lm, fact.prompt, fact.subject).subject_last:
            warnings.append(
                "the subject is the first token, which holds no fact: put a word before it"
            )
        if edit["exploding"]:
            warnings.append("the update is as large as the weights")
        if after.warnings[case_id]:
            warnings.append(after.warnings[case_id])
        if warnings:
            row["warning"] = "; ".join(warnings)
        rows.append(row)
    return pd.DataFrame(rows)


def fact_row(
    lm: LanguageModel, fact: Fact, before: Answers, after: Answers, failure: str
) -> dict[str, object]:
    """A fact's row without damage and warnings; ``failure`` is why the edit was given up, if it was."""
    targets = target_ids(lm, fact)
    known_before = gives(lm, before.tokens[0], targets[0])
    given_after = [gives(lm, *pair) for pair in zip(after.tokens, targets, strict=True)]
    row: dict[str, object] = {
        "fact": fact.request.text,
        "target": fact.target,
        "outcome": outcome(failure, known_before=known_before, given_after=given_after[0]),
        "generated before": shown_text(lm, before.tokens[0]),
        "generated after": shown_text(lm, after.tokens[0]),
        "P before": before.probability,
        "P after": after.probability,
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
    return row


def text_rows(
    lm: LanguageModel,
    facts: Sequence[Fact],
    before: Mapping[int, Answers],
    after: Mapping[int, Answers],
) -> pd.DataFrame:
    """Every prompt of the facts and what it is for, with the greedy continuations before and after."""
    rows = []
    for fact in facts:
        roles = ["prompt", *["paraphrase"] * len(fact.paraphrases)]
        roles += ["locality"] * len(fact.locality)
        for prompt_index, (role, prompt) in enumerate(zip(roles, fact.prompts, strict=True)):
            row = {"fact": fact.request.text, "target": fact.target, "role": role, "text": prompt}
            row["before"] = shown_text(lm, before[fact.case_id].tokens[prompt_index])
            row["after"] = shown_text(lm, after[fact.case_id].tokens[prompt_index])
            rows.append(row)
    return pd.DataFrame(rows)


def gives(lm: LanguageModel, tokens: Ids, target: Ids) -> bool:
    """Whether a continuation begins with the target's tokens, and the name that they are ends there."""
    if tokens[: len(target)] != target:
        return False
    text, name = (lm.tokenizer.decode(ids, skip_special_tokens=True) for ids in (tokens, target))
    return 0 in starts(text, name)


def outcome(failure: str, *, known_before: bool, given_after: bool) -> str:
    """What became of an edit, in the table's words."""
    if failure:
        return f"given up: {failure}"
    if known_before:
        return "known before"
    return "written" if given_after else "not written"


def shown_text(lm: LanguageModel, tokens: Ids) -> str:
    """The beginning of a continuation, up to the line's end."""
    return response_text(lm, tokens[: GREEDY.max_new_tokens], GREEDY)


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
