"""The command that draws the unedited model again and again, and sets exact scoring beside sampling.

python -m helpers.thinkedit.publish_estimators --model smollm2-135m --publish
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from helpers.models import load
from helpers.paths import RUNS
from helpers.results.archive import About, archive
from helpers.results.store import ResultsStore
from helpers.thinkedit.estimators import DRAWN, compare
from helpers.thinkedit.knowgic import load_aliases, load_edits
from helpers.thinkedit.run import ThinkEditRun
from helpers.thinkedit.scores import ANSWERS
from helpers.thinkedit.stored_scores import run_name


def draws(run: ThinkEditRun, *, seeds: int) -> pd.DataFrame:
    """Sampled scores of the unedited model, one set for each seed; kept in the run's store.

    Args:
        run: with the estimator "sampled".
        seeds: how many independent draws.

    Returns:
        One row per (seed, case_id, item), columns as in ``sampled_scores``.
    """
    tables = [
        replace(run, sampling=replace(run.drawn, seed=seed)).before().assign(seed=seed)
        for seed in range(seeds)
    ]
    return pd.concat(tables, ignore_index=True)


def compared(run: ThinkEditRun, *, facts: int, n: int) -> pd.DataFrame:
    """``estimators.compare`` on the facts that the unedited model gives the highest probability.

    Args:
        run: with the estimator "exact".
        facts: how many.
        n: responses per fact and form.

    Returns:
        The comparison, with the facts' case_id and item.
    """
    scores = run.before()
    scores = scores[scores["form"] == "fact"]
    best = scores.nlargest(facts, "original_named")[["case_id", "item"]].reset_index(drop=True)
    by_id = {edit.case_id: edit for edit in run.edits}
    asked = [by_id[case_id].facts[item] for case_id, item in best.itertuples(index=False)]
    table = compare(run.language_model, asked, run.aliases, n=n, sampling=DRAWN)
    return table.merge(best, left_on="fact", right_index=True)


def main(
    model: str = "smollm2-135m",
    layout: str = "2025-06",
    seeds: Annotated[int, typer.Option(help="independent draws of five responses")] = 5,
    facts: Annotated[int, typer.Option(help="the most probable facts, to compare on")] = 16,
    n: Annotated[int, typer.Option(help="responses per fact and form of the prompt")] = 200,
    dtype: str = "float32",
    device: str = "cpu",
    accept_terms: bool = False,
    store: Path = RUNS / "results",
    publish: Annotated[bool, typer.Option(help="add the tables to the published run")] = False,
) -> None:
    """Draw, compare and, with --publish, write the tables."""
    try:
        edits, aliases = load_edits(layout), load_aliases(layout)
        language_model = load(model, dtype=dtype, device=device, accept_terms=accept_terms)
    except (RuntimeError, ValueError) as error:  # what the options, the network or a file got wrong
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    options: dict[str, Any] = {"layout": layout, "progress": True}
    common = (language_model, edits, edits, aliases, ResultsStore(store))
    sampled = ThinkEditRun(*common, estimator="sampled", sampling=ANSWERS, **options)
    exact = ThinkEditRun(*common, estimator="exact", **options)
    tables = {
        "draws": draws(sampled, seeds=seeds),
        "estimators": compared(exact, facts=facts, n=n),
    }
    drawn = asdict(ANSWERS)
    del drawn["seed"]  # a column: each draw has its own
    made = {
        "draws": {"samples": sampled.samples, **drawn, "seeds": seeds},
        "estimators": {"n": n, **asdict(DRAWN)},
    }
    typer.echo(tables["estimators"].to_string())
    if publish:
        source = {**language_model.identity, "layout": layout}
        about = About(source, made)
        typer.echo(str(archive("thinkedit").put(run_name(model, layout), tables, about)))


if __name__ == "__main__":
    typer.run(main)
