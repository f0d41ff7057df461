"""Facts as a benchmark: what a model is asked about each, and how the edits that they ask for are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from operator import attrgetter

import pandas as pd

from helpers.editing.edit import Edit
from helpers.editing.editor import Editor
from helpers.facts.fact import Fact
from helpers.models import LanguageModel
from helpers.models.tokens import Ids, answer_ids, separator_after
from helpers.peak.records import PeakRecord
from helpers.peak.run import questions
from helpers.results.evaluation import (
    Asked,
    Benchmark,
    CaseEdits,
    Mode,
    Tables,
    score_cases,
    with_owners,
)
from helpers.scoring.responses import Sampling, sample_tokens

GREEDY = Sampling(temperature=0, max_new_tokens=12, stop="\n", chat=False)
LONGEST_LETTER = 4  # tokens, of bytes; their number shows whether a word continues after the target


def fact_benchmark(facts: Sequence[Fact]) -> Benchmark[Fact]:
    """The facts, each once, whichever file and line they are from."""
    return Benchmark(
        name="facts",
        version=1,  # raise it when what is asked, or how, changes
        data={},
        path="",
        cases=tuple(dict.fromkeys(facts)),
        request=attrgetter("request"),
        questions=answers_asked,
        relation=attrgetter("prompt"),
        content=asdict,
        settings={"texts": Sampling.version},
        score=fact_tables,
        items="facts",
        called=lambda fact: f"fact {fact.request.text!r}",
    )


def record_of(fact: Fact) -> PeakRecord:
    """A user's fact as a record that is in no data set; its false answers count as both kinds."""
    paraphrases = fact.prompts[1 : 1 + len(fact.paraphrases)]
    return PeakRecord(
        case_id=0,
        relation="",
        prompt=fact.prompt,
        subject=fact.subject,
        target_new=fact.target,
        target_true=fact.correct[0] if fact.correct else "",
        correct=fact.correct,
        hard_false=fact.false,
        random_false=fact.false,
        paraphrases=paraphrases,
        locality=(),
    )


def answers_asked(fact: Fact) -> Asked:
    """All answers of a fact at its prompt, as PEAK asks for those of a record."""
    fact_questions, keys = questions(replace(record_of(fact), paraphrases=()))
    return fact_questions, keys.assign(case_id=fact.case_id)


def fact_tables(lm: LanguageModel, facts: Sequence[Fact], edits: CaseEdits = None) -> Tables:
    """Scores of the facts' answers, continuations of their prompts, and what their edits warn of."""
    all_edits, owners = with_owners(edits, len(facts))
    warnings = []
    for fact, owner in zip(facts, owners, strict=True):
        text = _layer_warnings(all_edits[owner]) if owner >= 0 else ""
        warnings.append({"case_id": fact.case_id, "warning": text})
    return {
        "scores": score_cases(lm, facts, answers_asked, edits),
        "continuations": continuations(lm, facts, all_edits, owners),
        "warnings": pd.DataFrame(warnings),
    }


def continuations(
    lm: LanguageModel, facts: Sequence[Fact], edits: Sequence[Edit], owners: Sequence[int]
) -> pd.DataFrame:
    """The greedy tokens after every prompt of the facts, each fact under its owner's edit.

    Returns:
        Columns case_id and tokens, prompts in the order of ``Fact.prompts``; fewer tokens where a text ends.
    """
    case_ids: list[int] = []
    prompts: list[str] = []
    prompt_owners: list[int] = []
    token_counts: list[int] = []
    for fact, owner in zip(facts, owners, strict=True):
        prompt_count = len(fact.prompts)
        case_ids += [fact.case_id] * prompt_count
        prompts += fact.prompts
        prompt_owners += [owner] * prompt_count
        token_counts += [_token_count(lm, fact)] * prompt_count
    sampling = replace(GREEDY, max_new_tokens=max(token_counts), stop=None)
    responses = sample_tokens(lm, prompts, edits, prompt_owners, sampling)
    tokens = [
        list(response[:count]) for (response,), count in zip(responses, token_counts, strict=True)
    ]
    return pd.DataFrame({"case_id": case_ids, "tokens": tokens})


def _token_count(lm: LanguageModel, fact: Fact) -> int:
    """Tokens after which it is decided whether a continuation gives the fact's target."""
    longest_target = max(map(len, target_ids(lm, fact)))
    return max(GREEDY.max_new_tokens, longest_target + LONGEST_LETTER)


def target_ids(lm: LanguageModel, fact: Fact) -> list[Ids]:
    """The target's tokens after each of the fact's prompts."""
    return [answer_ids(lm, fact.target, separator_after(prompt)) for prompt in fact.prompts]


def _layer_warnings(edit: Edit) -> str:
    layers = edit.diagnostics.get("layers", {}).values()
    return "; ".join(layer["warning"] for layer in layers if "warning" in layer)


def joint_mode(facts: Sequence[Fact]) -> Mode[Fact]:
    """The mode in which one edit is made of all facts."""

    def edit_of_all(editor: Editor, asked: Sequence[Fact]) -> list[Edit]:
        return [joint_edit(editor, facts)] * len(asked)

    return Mode("together", edit_of_all, of_all=True)


def joint_edit(editor: Editor, facts: Sequence[Fact]) -> Edit:
    """One edit of all facts, each once."""
    return editor.edit_jointly([fact.request for fact in dict.fromkeys(facts)])
