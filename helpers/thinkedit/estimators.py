"""How the two estimators of a fact's probability relate: exact scoring, and shares of responses.

Exact scoring gives the probability that the response *begins* with an accepted name. The paper counts a
name anywhere in the response, so later mentions come on top. And a share of five responses scatters:
two draws of the same unedited model differ, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from helpers.models.language_model import LanguageModel
from helpers.scoring.answers import Question, score_answers
from helpers.scoring.naming import Aliases, begins, exclusive, log_naming, mentions, names_of
from helpers.scoring.responses import Sampling, sample_responses, uses_chat
from helpers.thinkedit.edits import Fact
from helpers.thinkedit.grow.language import answer_prompt

DRAWN = Sampling(temperature=1.0, max_new_tokens=12, chat=False)


def compare(
    language_model: LanguageModel,
    facts: Sequence[Fact],
    aliases: Aliases,
    *,
    n: int,
    sampling: Sampling = DRAWN,
) -> pd.DataFrame:
    """Exact probabilities beside shares of responses, for each form of the prompt.

    Args:
        aliases: other names that count.
        n: responses per fact and form.
        sampling: how they are drawn; at temperature 1 a response begins with a name as often as the
            exact probability says.

    Returns:
        One row per (fact, form): ``fact`` (its place), ``form`` (cloze, question: the question as
        text, chat: through the chat template, where the model has one), ``exact`` (NaN for chat),
        shares of responses that begin with a name (``begins``) and that hold one anywhere
        (``mentions``), ``n``.
    """
    forms = {"cloze": [fact.cloze for fact in facts]}
    forms["question"] = [answer_prompt(fact.question) for fact in facts]
    asked = [(form, prompts, sampling) for form, prompts in forms.items()]
    chat = replace(sampling, chat=None)
    if uses_chat(language_model, chat):
        asked.append(("chat", [fact.question for fact in facts], chat))
    rows = []
    for form, prompts, drawn in asked:
        responses = sample_responses(language_model, prompts, n=n, sampling=drawn)
        for place, (fact, prompt, texts) in enumerate(zip(facts, prompts, responses, strict=True)):
            names = names_of(fact.object, aliases)
            exact = np.nan if form == "chat" else naming_probability(language_model, prompt, names)
            shares = [np.mean([test(text, names) for text in texts]) for test in (begins, mentions)]
            rows.append((place, form, exact, *shares, n))
    return pd.DataFrame(rows, columns=["fact", "form", "exact", "begins", "mentions", "n"])


def naming_probability(language_model: LanguageModel, prompt: str, names: Sequence[str]) -> float:
    """Probability that the model's next words after a prompt are one of the names."""
    sums = score_answers(language_model, [Question(prompt, tuple(names))])["sum"].to_numpy()
    return float(np.exp(log_naming(sums[exclusive(language_model, names)])))
