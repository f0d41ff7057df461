"""Published runs of ThinkEdit, and all metrics of their scores; needs no model and no benchmark text.

A run is one model on one layout of the edits, and is named after both (``run_name``). Its tables are
"exact: METHOD, MODE", and so "negated", "sampled" and "texts" (by how the edits were looked at; "none,
before" is the unedited model); and what their numbers are of: *chains* (which facts make up which chains)
and *edits* (how much each edit holds). Some also have *draws* and *estimators* of the unedited model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pandas as pd

from helpers import paths
from helpers.paths import file_name
from helpers.results import text
from helpers.results.archive import ArchiveError, Run
from helpers.thinkedit import metrics
from helpers.thinkedit.knowgic import LAYOUTS
from helpers.thinkedit.metrics import DEFAULT, Known

DRAWN = ("samples", "temperature", "seed", "max_new_tokens", "first_line")  # of samples and texts
KEYS = ["model", "method"]


def run_name(model: str, layout: str) -> str:
    """The model's name alone for June 2025's edits, which are the paper's; else with the layout's."""
    return file_name(model) if layout == "2025-06" else paths.run_name(model, Path(layout).stem)


def is_recalled(run: Run) -> bool:
    """Whether a run's edits are taken from what its model recalls."""
    return str(run.about.source.get("layout", "")).startswith("recalled-")


def scores_of(runs: Sequence[Run], kind: str) -> pd.DataFrame:
    """One kind of table of several runs, with the model as a column; ArchiveError where one is missing."""
    parts = [run.joined(kind).assign(model=run.about.source["model"]) for run in runs]
    return pd.concat(parts, ignore_index=True)


def caption_of(runs: Sequence[Run], *words: str, kind: str = "exact") -> str:
    """What scores of a kind are of: models, edits, preset, dtype and device, how samples were drawn."""
    models: dict[tuple[str, ...], list[str]] = {}
    for run in runs:
        made = {**run.about.source, **run.about.caption}
        settings = run.about.settings[next(name for name in run.tables if name.startswith(kind))]
        layout = made["layout"]
        own = (
            f"KnowGIC {layout}" if layout in LAYOUTS else f"edits of {layout}",
            f"{run.joined(kind)['case_id'].nunique()} edits",
            f"preset {made['preset']}",
            f"{made['dtype']} on {made['device']}",
            *(f"{name} {settings[name]}" for name in DRAWN if name in settings),
        )
        models.setdefault(own, []).append(text.model_words(made["model"]))
    return "\n".join(
        ", ".join([f"ours: {', '.join(names)}", *own, *words]) for own, names in models.items()
    )


def facts_of(
    run: Run, method: str, *, mode: str, rule: Known = DEFAULT, estimator: str = "exact"
) -> pd.DataFrame:
    """Each fact before and after a method's stored edits, as ``metrics.facts_table`` gives them.

    Raises:
        ArchiveError: the run has no scores of this method and mode.
    """
    before, after = f"{estimator}: none, before", f"{estimator}: {method}, {mode}"
    if after not in run.tables:
        raise ArchiveError(f"run {run.name!r} has no {estimator} scores of {method}, {mode}")
    return metrics.facts_table(run.tables[before], run.tables[after], rule=rule)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What edits did, with columns model, method and mode: a row per chain, and per term of a mean.

    ``chains`` are of ``metrics.chain_table``, ``terms`` of ``metrics.terms_of`` and, of exact scores, also
    of ``metrics.success_terms``.
    """

    chains: pd.DataFrame
    terms: pd.DataFrame

    def where(self, chosen: Callable[[pd.DataFrame], pd.Series]) -> Evaluation:
        """The rows that are chosen."""
        return Evaluation(self.chains[chosen(self.chains)], self.terms[chosen(self.terms)])

    def only(self, mode: str) -> Evaluation:
        """One mode; ArchiveError where there are no results of it."""
        if mode not in (there := set(self.chains["mode"])):
            raise ArchiveError(f"no results of mode {mode!r}; there are {there}")
        return self.where(lambda table: table["mode"] == mode)

    def by_method(self, mode: str) -> dict[tuple[str, str], pd.DataFrame]:
        """Terms of each (model, method)."""
        groups = self.only(mode).terms.groupby(KEYS, sort=True)
        return {(str(model), str(method)): part for (model, method), part in groups}


@lru_cache(maxsize=16)
def evaluate(
    runs: tuple[Run, ...],
    *,
    estimator: str = "exact",
    rule: Known = DEFAULT,
) -> Evaluation:
    """All metrics of published runs.

    Args:
        runs: published runs.
        estimator: "exact" or "sampled".
        rule: of exact scores, see ``metrics.facts_table``.
    """
    empty = pd.DataFrame(columns=[*KEYS, "mode"])
    chains, terms = [empty], [empty]
    for run in runs:
        index = run.tables["chains"]
        for part in sorted(name for name in run.tables if name.startswith(f"{estimator}: ")):
            method, mode = part.removeprefix(f"{estimator}: ").split(", ")
            if mode == "before":
                continue
            facts = facts_of(run, method, mode=mode, rule=rule, estimator=estimator)
            of = {"model": run.about.source["model"], "method": method, "mode": mode}
            folded = metrics.chain_table(facts, index)
            chains.append(folded.assign(**of))
            terms.append(metrics.terms_of(facts, folded, index).assign(**of))
            if estimator == "exact":
                terms.append(metrics.success_terms(run.tables[part]).assign(**of))
    joined = (pd.concat(parts[1:] or parts, ignore_index=True) for parts in (chains, terms))
    return Evaluation(*joined)


def split_app(found: Evaluation) -> tuple[Evaluation, Evaluation]:
    """The methods as they are, and their versions with APP under the same names, to set side by side."""
    with_app = found.where(lambda table: table["method"].str.endswith("+app"))
    renamed = (
        table.assign(method=table["method"].str.removesuffix("+app"))
        for table in (with_app.chains, with_app.terms)
    )
    return found.where(lambda table: ~table["method"].str.endswith("+app")), Evaluation(*renamed)
