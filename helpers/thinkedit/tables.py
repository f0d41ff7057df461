"""Published runs of ThinkEdit and their tables, the paper's in the same form; needs no model.

A run is one model on one layout of the edits. Its tables are "exact: METHOD, MODE", and so "sampled" and
"texts" ("none, before" is the unedited model), and *chains* (which facts make up which chains). Means are
pooled as the authors pool: Definitions 3 and 4 over all edits at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pandas as pd
from pandas import DataFrame as Table

from helpers.results.archive import ArchiveError, Run
from helpers.results.notes import with_power
from helpers.results.statistics import Estimate, share_interval
from helpers.results.text import model_words, published_table, survivors, with_interval
from helpers.thinkedit import metrics
from helpers.thinkedit.knowgic import LAYOUTS
from helpers.thinkedit.metrics import DEEP, DEFAULT, DIRECT, OVERALL, OWN, Known, pooled, sums_of

KEYS = ["model", "method"]
STEPS = (OVERALL, "1", "2", "3", "4", "5")
MEASURES = ("IFR", "CKP")
SHARES = ("Efficacy", "Generalisation", "Specificity")
LONGER = "2 or more"
KINDS = (DIRECT, OWN, "CKP")  # facts by what they are about
_DRAWN = ("samples", "temperature", "seed", "max_new_tokens", "first_line")  # of samples and texts
_ORDER = ("none", "alphaedit", "memit", "rect", "prune", "prune-added", "rome")  # the paper's


def is_recalled(run: Run) -> bool:
    """Whether a run's edits are taken from what its model recalls."""
    return bool(run.about.source.get("layout") == f"recalled-{run.about.source['model']}")


def model_of(run: Run) -> str:
    """A run's model, with its edits where they are neither the paper's nor of what the model recalls."""
    layout = run.about.source.get("layout", "2025-06")
    other = not is_recalled(run) and layout != "2025-06"
    return run.about.source["model"] + f", {layout}" * other


def caption_of(runs: Sequence[Run], *words: str, kind: str = "exact") -> str:
    """What scores of a kind are of: models, edits, preset, dtype and device, how samples were drawn."""
    models: dict[tuple[str, ...], list[str]] = {}
    for run in runs:
        made = {**run.about.source, **run.about.caption}
        first = next(name for name in run.tables if name.startswith(kind))
        settings = run.about.settings[first]
        layout = "what it recalls" if is_recalled(run) else made["layout"]
        own = (
            f"edits of {f'KnowGIC {layout}' if layout in LAYOUTS else layout}",
            f"preset {made['preset']}",
            f"{made['dtype']} on {made['device']}",
            *(f"{name} {settings[name]}" for name in _DRAWN if name in settings),
        )
        n = run.joined(kind)["case_id"].nunique()
        models.setdefault(own, []).append(f"{model_words(made['model'])}, {n} edits")
    return "\n".join(
        ", ".join([f"ours: {'; '.join(names)}", *own, *words]) for own, names in models.items()
    )


def facts_of(
    run: Run, method: str, *, mode: str, rule: Known = DEFAULT, estimator: str = "exact"
) -> Table:
    """``metrics.facts_table`` of a method's stored edits; ArchiveError where there are none."""
    before = f"{estimator}: none, before"
    after = f"{estimator}: {method}, {mode}"
    if after not in run.tables:
        raise ArchiveError(f"run {run.name!r} has no {estimator} scores of {method}, {mode}")
    return metrics.facts_table(run.tables[before], run.tables[after], rule=rule)


@lru_cache(maxsize=16)
def evaluate(runs: tuple[Run, ...], *, estimator: str = "exact", rule: Known = DEFAULT) -> Table:
    """``metrics.terms_of`` every model, method and mode, and ``success_terms`` where scores are exact."""
    found = [Table(columns=[*KEYS, "mode", "measure"], dtype=str)]
    for run in runs:
        for part in sorted(name for name in run.tables if name.startswith(f"{estimator}: ")):
            method, mode = part.removeprefix(f"{estimator}: ").split(", ")
            if mode == "before":
                continue
            facts = facts_of(run, method, mode=mode, rule=rule, estimator=estimator)
            terms = [metrics.terms_of(facts, run.tables["chains"])]
            if estimator == "exact":
                terms.append(metrics.success_terms(run.tables[part]))
            of = {"model": model_of(run), "method": method, "mode": mode}
            found += [table.assign(**of) for table in terms]
    return pd.concat(found[1:] or found, ignore_index=True)


def split_app(found: Table) -> tuple[Table, Table]:
    """The methods as they are, and their versions with APP under the same names, to set side by side."""
    with_app = found["method"].str.endswith("+app")
    plain_names = found["method"].str.removesuffix("+app")
    return found[~with_app], found.assign(method=plain_names)[with_app]


def by_method(found: Table, mode: str) -> dict[tuple[str, str], Table]:
    """Terms of each (model, method) in one mode; ArchiveError where there are no results of it."""
    own = found[found["mode"] == mode]
    if own.empty:
        raise ArchiveError(f"no results of mode {mode!r}; there are {set(found['mode'])}")
    return {(str(model), str(method)): part for (model, method), part in own.groupby(KEYS)}


def pooled_table(found: Table, measures: Sequence[str], *, mode: str) -> Table:
    """Each measure with its 95 % interval (``IFR low``, ``IFR high``, …), a row per method; ``terms`` counts
    the chains or facts of each measure, ``edits`` the edits of the first.
    """
    rows = []
    for (model, method), terms in by_method(found, mode).items():
        row: dict[str, object] = {"model": model, "method": method}
        parts = [terms[terms["measure"] == name] for name in measures]
        for name, part in zip(measures, parts, strict=True):
            share = name in (*SHARES, DEEP)
            mean = share_interval(part["ratio"]) if share else pooled(sums_of(part))
            row |= {name: mean.mean, f"{name} low": mean.low, f"{name} high": mean.high}
        row["terms"] = "/".join(str(len(part)) for part in parts)
        rows.append(row | {"edits": parts[0]["edit"].nunique()})
    return ordered(Table(rows))


def technique_table(found: Table, *, mode: str) -> Table:
    """IFR, CKP, efficacy, specificity (the paper's Tables 5 and 6) and generalisation of each method;
    ``chains`` and ``edits`` are behind IFR, ``facts`` behind CKP.
    """
    shares = [name for name in SHARES if (found["measure"] == name).any()]
    table = pooled_table(found, [*MEASURES, *shares], mode=mode)
    counts = table["terms"].str.split("/", expand=True).astype(int)
    table.insert(table.shape[1] - 2, "chains", counts[0])
    return table.rename(columns={"terms": "facts"}).assign(facts=counts[1])


def deep_table(found: Table, *, mode: str) -> Table:
    """Share of edits with no known chain of two steps or more left (Definition 2), of those that had one."""
    return pooled_table(found, [DEEP], mode=mode).drop(columns="terms").query("edits > 0")


def length_table(found: Table, *, mode: str) -> Table:
    """IFR overall and by chain length (the paper's Table 10), and the deducible ``chains`` behind each."""
    chains = found[found["measure"] == "IFR"]
    by_length = chains.assign(measure=chains["length"].astype(str))
    longer = chains[chains["length"] > 1].assign(measure=LONGER)
    every = pd.concat([chains.assign(measure=OVERALL), by_length, longer])
    table = pooled_table(every, [*STEPS, LONGER], mode=mode)
    return table.rename(columns={"terms": "chains"}).drop(columns="edits")


def difference_table(
    found: Table, other: Table, *, mode: str, other_mode: str = "", than: str = ""
) -> Table:
    """Pooled differences on the same edits: each method's measures minus those in the other evaluation.

    There it is the same method in ``other_mode``, or the method ``than``; by default in the same mode.
    ``verdict`` is by flipping signs, ``Holm`` corrected for all tests, ``could show`` see ``Difference``.
    """
    theirs = by_method(other, other_mode or mode)
    rows, p_values = [], []
    for (model, method), own in by_method(found, mode).items():
        terms = theirs.get((model, than or method))
        if terms is None or method == than:
            continue
        for measure in MEASURES:
            before, after = (sums_of(t[t["measure"] == measure]) for t in (terms, own))
            test = metrics.paired_difference(before, after)
            change = test.difference
            if change.n:
                p_values.append(test.p_value)
                key, shown = (model, method, measure), round(test.could_show, 2)
                text = with_interval(change, signed=True)
                rows.append((*key, text, change.n, test.verdict, "", shown))
    names = [*KEYS, "measure", "difference", "edits", "verdict", "Holm", "could show"]
    table = Table(rows, columns=names)
    table = table.assign(Holm=survivors(table["verdict"].tolist(), p_values))
    return with_power(table, table["could show"], table["edits"], digits=2)


def text_table(runs: Sequence[Run], *, mode: str) -> Table:
    """Mean fluency (bits) and consistency of texts about ``n`` edited subjects."""
    found = [run.joined("texts").assign(model=run.about.source["model"]) for run in runs]
    texts = pd.concat(found)
    chosen = texts[texts["mode"].isin(["before", mode])]
    groups = chosen.rename(columns={"fluency_averaged": "fluency"}).groupby(KEYS)
    means = groups[["fluency", "consistency"]].mean()
    return ordered(means.assign(n=groups.size()).reset_index())


def paper_techniques(*names: str) -> Table:
    """The paper's Tables 5 and 6 in the form of ``technique_table``, or "thinkedit_repository"'s numbers."""
    printed = names or ("thinkedit_table_5", "thinkedit_table_6")
    table = pd.concat([published_table(name) for name in printed])
    wide = table.pivot(index=KEYS, columns="metric", values="value")
    titles = {"ifr": "IFR", "ckp": "CKP", "efficacy": "Efficacy", "specificity": "Specificity"}
    wide = wide[[metric for metric in titles if metric in wide]]
    return ordered(wide.rename(columns=titles).reset_index())


def paper_lengths() -> Table:
    """The paper's Table 10 in the form of ``length_table``; two steps and more by Definition 3."""
    table = published_table("thinkedit_table_10").query("metric == 'ifr'")
    wide = table.pivot(index=KEYS, columns="steps", values="value")
    weights = chain_length_table().loc["paper", list(STEPS[2:])] / np.sqrt([2, 3, 4, 5])
    longer = wide[list(STEPS[2:])] @ weights / weights.sum()
    wide = wide.reindex(columns=list(STEPS)).assign(**{LONGER: longer})
    return ordered(wide.reset_index())


def chain_length_table() -> Table:
    """Chains by number of steps: the paper's Table 4, and the two published files."""
    rows = published_table("thinkedit_table_4").astype({"value": int})
    source = rows["metric"].str.removeprefix("chains").str.strip().replace("", "paper")
    table = rows.assign(source=source).pivot(index="source", columns="steps", values="value")
    table = table.loc[["paper", *LAYOUTS]].rename_axis(columns=None)
    return table.assign(all=table.sum(axis=1))


def ordered(table: Table) -> Table:
    """Models by name, methods in the paper's order, others after them."""
    rank = {method: place for place, method in enumerate(_ORDER)}
    order = table["method"].map(lambda m: (rank.get(m.split("+")[0], len(rank)), m))
    by = table.assign(_order=order).sort_values(["model", "_order"], kind="stable")
    return by.drop(columns="_order")


def as_text(table: Table, *, digits: int = 2) -> Table:
    """A table whose measures are text with their intervals in brackets."""
    shown = table.copy()
    for name in (*MEASURES, *SHARES, DEEP, DIRECT, OWN):
        if name in table:
            ends = zip(table[name], table[f"{name} low"], table[f"{name} high"], strict=True)
            shown[name] = [with_interval(Estimate(*values, 0), digits=digits) for values in ends]
            shown = shown.drop(columns=[f"{name} low", f"{name} high"])
    return shown
