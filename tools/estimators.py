"""Draw the unedited model again and again, and set exact scoring next to sampling (notebook 06, E).

    python -m tools.estimators smollm2-135m

Exact scoring gives the probability that the response *begins* with an accepted name. The paper counts a
name anywhere in the response. And two draws of five responses of the same unedited model differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import typer

from helpers.models import LanguageModel, load
from helpers.paths import RUNS
from helpers.results.archive import About, archive
from helpers.results.store import ResultsStore
from helpers.scoring.answers import Question, score_answers
from helpers.scoring.naming import Aliases, exclusive, fold, log_naming, names_of, starts
from helpers.scoring.responses import Sampling, sample_responses, uses_chat
from helpers.thinkedit.evaluation import run_name
from helpers.thinkedit.grow.language import answer_prompt
from helpers.thinkedit.knowgic import ChainFact, load_aliases, load_edits
from helpers.thinkedit.run import ThinkEditRun
from helpers.thinkedit.scores import ANSWERS

SEEDS = 5  # independent draws of five responses
FACTS, RESPONSES = 16, 200  # the most probable facts; responses per fact and form of the prompt
DRAWN = Sampling(temperature=1.0, max_new_tokens=12, chat=False)


def compare(
    language_model: LanguageModel, facts: Sequence[ChainFact], aliases: Aliases, *, n: int
) -> pd.DataFrame:
    """``exact`` probability (NaN in a chat), shares of ``n`` responses that begin with or hold a name."""
    chat = replace(DRAWN, chat=None)
    asked = [
        ("cloze", [fact.cloze for fact in facts], DRAWN),
        ("question", [answer_prompt(fact.question) for fact in facts], DRAWN),
        ("chat", [fact.question for fact in facts], chat),
    ]
    rows = []
    for form, prompts, sampling in asked if uses_chat(language_model, chat) else asked[:2]:
        responses = sample_responses(language_model, prompts, n=n, sampling=sampling)
        for place, (fact, prompt, texts) in enumerate(zip(facts, prompts, responses, strict=True)):
            names = names_of(fact.object, aliases)
            sums = score_answers(language_model, [Question(prompt, names)])["sum"].to_numpy()
            exact = np.exp(log_naming(sums[exclusive(language_model, names)]))
            folded = [fold(name) for name in names]
            found = [[at for name in folded for at in starts(fold(t), name)] for t in texts]
            shares = np.mean([0 in places for places in found]), np.mean([*map(bool, found)])
            rows.append((place, form, np.nan if form == "chat" else exact, *shares, n))
    return pd.DataFrame(rows, columns=["fact", "form", "exact", "begins", "mentions", "n"])


def main(model: str) -> None:
    """Draw, compare on the facts that the unedited model gives the highest probability, and publish."""
    edits, aliases, language_model = load_edits(), load_aliases(), load(model)
    common = (language_model, edits, edits, aliases, ResultsStore(RUNS / "results"))
    exact = ThinkEditRun(*common).before().query("form == 'fact'")
    best = exact.nlargest(FACTS, "original_named")[["case_id", "item"]].reset_index(drop=True)
    by_id = {edit.case_id: edit for edit in edits}
    asked = [by_id[case_id].facts[item] for case_id, item in best.to_numpy()]
    drawn = [replace(ANSWERS, seed=seed) for seed in range(SEEDS)]
    runs = (ThinkEditRun(*common, estimator="sampled", sampling=each) for each in drawn)
    draws = [run.before().assign(seed=seed) for seed, run in enumerate(runs)]
    compared = compare(language_model, asked, aliases, n=RESPONSES)
    tables = {"draws": pd.concat(draws), "estimators": compared.join(best, on="fact")}
    print(compared.to_string())
    how = {name: value for name, value in asdict(ANSWERS).items() if name != "seed"}
    made = {
        "draws": {"samples": 5, **how, "seeds": SEEDS},
        "estimators": {"n": RESPONSES, **asdict(DRAWN)},
    }
    about = About({**language_model.identity, "layout": "2025-06"}, made)
    print(archive("thinkedit").put(run_name(model, "2025-06"), tables, about))


if __name__ == "__main__":
    typer.run(main)
