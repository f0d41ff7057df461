"""KLoB's tables: criteria per locator from the evaluation's long tables (``run.evaluate_locator``), as
numbers and as rounded text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple

import pandas as pd

from helpers.klob.metrics import (
    DEFAULT_SHARE,
    paper_similarity,
    relative_similarity,
    relative_standard_deviation,
)
from helpers.klob.templates import corrected_relations
from helpers.results.archive import Run, TableKey, model_words
from helpers.results.notes import ShownTable, with_note, with_power, with_relations
from helpers.results.statistics import mean_interval
from helpers.results.text import published_table

LABELS = {
    "knowledge-neurons": "knowledge neurons (IG)",
    "gradient-activation": "gradient × activation",
    "activation": "activation",
    "logit-neuron": "logit attribution, neuron",
    "logit-layer": "logit attribution, layer",
    "gradient-weight": "gradient × weight",
    "fisher": "Fisher",
    "causal-tracing": "causal tracing",
    "random": "random (control)",
    "constant": "constant (control)",
}
SUBTASKS = ("consistency", "relevance", "unbiasedness")
ESTIMATE = ["mean", "low", "high", "n"]


def rsim_table(similarities: pd.DataFrame) -> ShownTable:
    """Mean unclipped RSim of one granularity and share, exact Sim_all, with its interval.

    By relation where there are at least eight, else by example; the line below states which.
    """
    values = relative_similarity(similarities["candidate"], similarities["pairwise"])
    index = pd.MultiIndex.from_frame(similarities[["locator", "subtask", "relation"]])
    by = ["locator", "subtask"]
    groups = [part for _, part in pd.Series(values, index).groupby(level=by, sort=False)]
    rows = [(*part.index[0][:2], *astuple(mean_interval(part))) for part in groups]
    return with_relations(pd.DataFrame(rows, columns=[*by, *ESTIMATE]), groups)


def rsd_table(
    sentences: pd.DataFrame, similarities: pd.DataFrame, *, relative: bool = False
) -> pd.DataFrame:
    """Unclipped RSD per locator and granularity: factual are c and r, non-factual u. ``relative``: of
    standard deviations over the mean |score|, so that scores that merely shrink do not count (ours).

    ``similarities`` name the relation of each example: factual sentences of one relation are a unit.
    """
    example = ["subtask", "example"]
    relations = similarities[[*example, "relation"]].drop_duplicates(example)
    labelled = sentences.merge(relations, on=example, how="left")
    rows = []
    for keys, part in labelled.groupby(["locator", "granularity"], sort=False):
        spread = part["deviation"] / part["magnitude"] if relative else part["deviation"]
        random = part["subtask"] == "unbiasedness"
        factual = spread[~random].set_axis(pd.Index(part["relation"][~random], name="relation"))
        rows.append((*keys, *astuple(relative_standard_deviation(factual, spread[random]))))
    return pd.DataFrame(rows, columns=["locator", "granularity", *ESTIMATE])


def criteria_table(
    similarities: pd.DataFrame,
    sentences: pd.DataFrame,
    *,
    granularity: str,
    share: float = DEFAULT_SHARE,
) -> ShownTable:
    """All three criteria at one granularity: locator, criterion, unclipped mean, low, high, n."""
    rsim = rsim_table(similarities.query("granularity == @granularity and share == @share"))
    chosen = sentences.query("granularity == @granularity")
    rsd = rsd_table(chosen, similarities).assign(subtask=SUBTASKS[2])
    table = pd.concat([rsim.table, rsd.drop(columns="granularity")], ignore_index=True)
    return ShownTable(table.rename(columns={"subtask": "criterion"}), rsim.note)


def paper_values(
    similarities: pd.DataFrame,
    sentences: pd.DataFrame,
    *,
    granularity: str,
    share: float = DEFAULT_SHARE,
) -> pd.DataFrame:
    """The three criteria as KLoB computes them, [locators, criteria]: the mean of ``paper_similarity``
    over examples, and RSD = max(1 − SD_nonfactual / SD_factual, 0) (Section 3.4).
    """
    rows = similarities.query("granularity == @granularity and share == @share")
    clipped = paper_similarity(rows["candidate"], rows["mean_scores"])
    means = rows.assign(clipped=clipped).groupby(["locator", "subtask"])["clipped"].mean()
    spread = rsd_table(sentences.query("granularity == @granularity"), similarities)
    values = means.unstack("subtask")
    values[SUBTASKS[2]] = spread.set_index("locator")["mean"].clip(lower=0)
    return values.reindex(columns=list(SUBTASKS))


def criteria_text(
    similarities: pd.DataFrame,
    sentences: pd.DataFrame,
    *,
    granularity: str,
    share: float = DEFAULT_SHARE,
) -> ShownTable:
    """Locator by criterion: the unclipped mean and its interval, the value as the paper computes it
    (``paper_values``); and the number of examples of each criterion where locators differ in it.
    """
    criteria = criteria_table(similarities, sentences, granularity=granularity, share=share)
    cells = criteria.table.apply(_interval_text, axis=1)
    ours = criteria.table.assign(cell=cells).pivot(
        index="locator", columns="criterion", values="cell"
    )
    papers = paper_values(similarities, sentences, granularity=granularity, share=share)
    papers = papers.reindex(ours.index)
    columns = {}
    for criterion in SUBTASKS:
        columns[criterion] = ours.get(criterion)
        columns[f"{criterion} (paper)"] = papers[criterion].map("{:.2f}".format)
    wide = pd.DataFrame(columns, index=ours.index).replace("nan", "n/a")
    rows = pd.concat([similarities, sentences.query("subtask == 'unbiasedness'")])
    counts = rows.groupby(["locator", "subtask"])["example"].nunique().unstack()
    counts = counts.reindex(columns=list(SUBTASKS)).fillna(0).astype(int).astype(str)
    examples = counts.agg(", ".join, axis=1)
    if examples.nunique() > 1:
        wide = wide.assign(n=examples)
    return ShownTable(named_rows(wide), criteria.note)


def wordings_text(
    similarities: pd.DataFrame, *, granularity: str, share: float = DEFAULT_SHARE
) -> ShownTable:
    """Consistency (unclipped RSim) of the examples in Table 3's wordings as printed, and of those in
    corrected ones; a relation has either. Sim_all is over both kinds.
    """
    rows = similarities.query(
        "subtask == 'consistency' and granularity == @granularity and share == @share"
    )
    is_corrected = rows["relation"].isin(corrected_relations())
    groups = {
        "all": rows,
        "as printed": rows[~is_corrected],
        "corrected": rows[is_corrected],
    }
    columns = {}
    notes = []
    for name, group in groups.items():
        rsim = rsim_table(group)
        by_locator = rsim.table.set_index("locator")
        columns[name] = by_locator.apply(_interval_text, axis=1)
        columns[f"n, {name}"] = by_locator["n"]
        notes.append(f"{name}: {rsim.note}")
    return with_note(named_rows(pd.DataFrame(columns)), *notes)


def null_text(null: pd.DataFrame, *, subtask: str, granularity: str, share: float) -> pd.DataFrame:
    """Observed RSim next to its null over all facts and inside a relation, exact baseline."""
    rows = null.query("subtask == @subtask and granularity == @granularity and share == @share")
    cells = [
        f"{signed(row['mean'])} ± {row['standard_deviation']:.2f} (p = {row['p_value']:.3f})"
        for row in rows.to_dict("records")
    ]
    wide = rows.assign(cell=cells).pivot(index="locator", columns="shuffled", values="cell")
    wide = wide.reindex(columns=["all", "relation"])  # a run may lack all that were asked for
    wide.columns = pd.Index(["dealt among all facts", "dealt inside a relation"])
    observed = rows.query("shuffled == 'all'").set_index("locator")["observed"]
    wide.insert(0, "observed", observed.map(signed))
    return named_rows(wide)


def gap_text(similarities: pd.DataFrame, *, granularity: str, share: float) -> pd.DataFrame:
    """Mean Sim_all and RSim under the paper's shortcut and exactly, and the gap in RSim."""
    table = similarities.query("granularity == @granularity and share == @share")
    kinds = ["mean_scores", "pairwise"]
    for kind in kinds:
        table[f"rsim_{kind}"] = relative_similarity(table["candidate"], table[kind])
    columns = [*kinds, *(f"rsim_{kind}" for kind in kinds)]
    means = table.groupby(["locator", "subtask"], sort=False)[columns].mean()
    means["gap"] = means["rsim_mean_scores"] - means["rsim_pairwise"]
    return named_rows(means.reset_index("subtask").round(3))


def spread_text(
    sentences: pd.DataFrame, similarities: pd.DataFrame, *, granularity: str
) -> pd.DataFrame:
    """RSD of the scores, and of the scores over their own mean magnitude (ours)."""
    rows = sentences.query("granularity == @granularity")
    columns = {}
    for name, relative in (("RSD", False), ("RSD of relative spread", True)):
        table = rsd_table(rows, similarities, relative=relative).set_index("locator")
        columns[name] = table.apply(_interval_text, axis=1)
    return named_rows(pd.DataFrame(columns))


def locality_text(table: pd.DataFrame, twins: Mapping[str, str]) -> ShownTable:
    """``metrics.locality_table`` as rounded text, a row per locator, and its ``profile_twins`` below."""
    by = table.set_index("locator").groupby("pairing")
    same_fact = by.get_group("own")
    other_facts = by.get_group("other")
    difference = by.get_group("specific")
    columns = {
        "same fact": same_fact.apply(_interval_text, axis=1),
        "other facts": other_facts["mean"].map(signed),
        "difference": difference.apply(_interval_text, axis=1),
        "p": same_fact["p_value"].map("{:.3f}".format),
        "mean curves": same_fact["average"].map(signed),
    }
    shown = named_rows(pd.DataFrame(columns, index=same_fact.index))
    twin_notes = [f"{LABELS[twin]}: as {LABELS[original]}" for twin, original in twins.items()]
    noted = with_note(shown, *twin_notes)
    return with_power(noted, difference["could_show"], difference["n"], digits=2)


def size_table(source: str) -> pd.DataFrame:
    """Relations, mean length (words and the slot; for r the chain's) and examples next to Table 1."""
    from helpers.klob.examples import SCHEMAS, read_examples  # loads torch

    examples = {subtask: list(read_examples(subtask, source).values()) for subtask in SCHEMAS}
    facts = examples["consistency"]
    chains = examples["relevance"]
    random = examples["unbiasedness"]
    lengths = {
        "c": [len(text.split()) for example in facts for text in example.prompts],
        "r": [len(example.chain_prompt.split()) for example in chains],
        "u": [len(text.split()) for text in random],
    }
    ours = {
        "relations": {
            "c": len({example.fact[1] for example in facts}),
            "r": len({label for example in chains for label in example.chain[1::2]}),
        },
        "average length": {letter: sum(words) / len(words) for letter, words in lengths.items()},
        "examples": {"c": len(facts), "r": len(chains), "u": len(random)},
    }
    paper = published_table("klob_table_1").pivot(index="subtask", columns="metric", values="value")
    columns = {}
    for whose, table in (("paper", paper), (source, pd.DataFrame(ours))):
        for name in ours:
            form = "{:.2f}" if name == "average length" else "{:,.0f}"
            columns[f"{name}, {whose}"] = table[name].map(form.format, na_action="ignore")
    return pd.DataFrame(columns).fillna("")


def made_of(run: Run) -> str:
    """What a published run's tables are of: model, data, and examples per locator."""
    locators_by_counts: dict[str, list[str]] = {}
    for table_name, settings in run.about.settings.items():
        key = TableKey.parse(table_name)
        if key.kind == "similarities":
            counts = settings["counts"].items()
            counts_text = ", ".join(f"{count or 'all'} {subtask}" for subtask, count in counts)
            locators_by_counts.setdefault(counts_text, []).append(key.method)
    most_common, *others = sorted(
        locators_by_counts, key=lambda counts_text: -len(locators_by_counts[counts_text])
    )
    words = f"{made_with(run)}, {most_common}"
    for counts_text in others:
        words += f"; {', '.join(locators_by_counts[counts_text])}: {counts_text}"
    return words


def made_with(run: Run) -> str:
    """Model and data of a published run."""
    source = run.about.source
    words = model_words(source["model"])
    return f"ours: {words}, {source['dtype']} on {source['device']}, {source['dataset']}"


def named_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Rows in the order of the locators, under their printed names, and what is no locator below them."""
    locators = [name for name in LABELS if name in table.index]
    others = [name for name in table.index if name not in LABELS]
    ordered = table.loc[[*locators, *others]]
    ordered.index = pd.Index([LABELS.get(name, name) for name in ordered.index], name="locator")
    ordered.columns.name = None
    return ordered


def signed(value: float) -> str:
    """Two decimals with their sign; a rounded zero is always positive."""
    return f"{round(value, 2) + 0.0:+.2f}"


def _interval_text(row: pd.Series) -> str:
    mean, low, high = (signed(row[name]) for name in ("mean", "low", "high"))
    if pd.isna(row["mean"]):
        return "n/a"
    return mean if pd.isna(row["low"]) else f"{mean} ({low} … {high})"
