"""KLoB's tables: criteria per locator from the evaluation's long tables (``run.evaluate_locator``), as
numbers and as rounded text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple

import pandas as pd

from helpers.klob.metrics import (
    ANY_LAYER,
    BEST_FIXED,
    DEFAULT_SHARE,
    ORACLE,
    Numbers,
    paper_similarity,
    profile_twins,
    rank_correlations,
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
    ORACLE: "best at the edit prompt (oracle)",
    BEST_FIXED: "one layer for all facts",
    ANY_LAYER: "any layer (mean over layers)",
}
# Their scores include the subject's last token, which ROME edits; the others' are of the last token.
READ_THE_SUBJECT = ("causal-tracing", "gradient-weight", "fisher")
SUBTASKS = ("consistency", "relevance", "unbiasedness")
ESTIMATE = ["mean", "low", "high", "n"]


def rsim_table(similarities: pd.DataFrame) -> ShownTable:
    """Mean unclipped RSim of one granularity and share, exact Sim_all, with its interval.

    By relation where there are at least eight, else by example; the line below states which.
    """
    rsim_values = relative_similarity(similarities["candidate"], similarities["pairwise"])
    rsim_index = pd.MultiIndex.from_frame(similarities[["locator", "subtask", "relation"]])
    group_levels = ["locator", "subtask"]
    rows_of_groups = []
    values_by_group = []
    rsim_of_examples = pd.Series(rsim_values, rsim_index)
    for _, values_of_group in rsim_of_examples.groupby(level=group_levels, sort=False):
        locator, subtask, *_ = values_of_group.index[0]
        values_by_group.append(values_of_group)
        rows_of_groups.append((locator, subtask, *astuple(mean_interval(values_of_group))))
    means = pd.DataFrame(rows_of_groups, columns=[*group_levels, *ESTIMATE])
    return with_relations(means, values_by_group)


def rsd_table(
    sentences: pd.DataFrame, similarities: pd.DataFrame, *, relative: bool = False
) -> pd.DataFrame:
    """Unclipped RSD per locator and granularity: factual are c and r, non-factual u. ``relative``: of
    standard deviations over the mean |score|, so that scores that merely shrink do not count (ours).

    ``similarities`` name the relation of each example: factual sentences of one relation are a unit.
    """
    example_columns = ["subtask", "example"]
    relations = similarities[[*example_columns, "relation"]].drop_duplicates(example_columns)
    sentences_with_relations = sentences.merge(relations, on=example_columns, how="left")
    rows_of_locators = []
    key_columns = ["locator", "granularity"]
    for keys, of_locator in sentences_with_relations.groupby(key_columns, sort=False):
        deviations = of_locator["deviation"]
        if relative:
            deviations = deviations / of_locator["magnitude"]
        is_nonfactual = of_locator["subtask"] == "unbiasedness"
        relations_of_factual = pd.Index(of_locator["relation"][~is_nonfactual], name="relation")
        factual_deviations = deviations[~is_nonfactual].set_axis(relations_of_factual)
        rsd = relative_standard_deviation(factual_deviations, deviations[is_nonfactual])
        rows_of_locators.append((*keys, *astuple(rsd)))
    return pd.DataFrame(rows_of_locators, columns=[*key_columns, *ESTIMATE])


def criteria_table(
    similarities: pd.DataFrame,
    sentences: pd.DataFrame,
    *,
    granularity: str,
    share: float = DEFAULT_SHARE,
) -> ShownTable:
    """All three criteria at one granularity: locator, criterion, unclipped mean, low, high, n."""
    rsim = rsim_table(similarities.query("granularity == @granularity and share == @share"))
    chosen_sentences = sentences.query("granularity == @granularity")
    rsd = rsd_table(chosen_sentences, similarities).assign(subtask=SUBTASKS[2])
    both_tables = pd.concat([rsim.table, rsd.drop(columns="granularity")], ignore_index=True)
    return ShownTable(both_tables.rename(columns={"subtask": "criterion"}), rsim.note)


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
    chosen_examples = similarities.query("granularity == @granularity and share == @share")
    clipped = paper_similarity(chosen_examples["candidate"], chosen_examples["mean_scores"])
    mean_rsim = (
        chosen_examples.assign(clipped=clipped).groupby(["locator", "subtask"])["clipped"].mean()
    )
    rsd = rsd_table(sentences.query("granularity == @granularity"), similarities)
    values = mean_rsim.unstack("subtask")
    values[SUBTASKS[2]] = rsd.set_index("locator")["mean"].clip(lower=0)
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
    intervals_in_words = criteria.table.apply(_interval_text, axis=1)
    our_values = criteria.table.assign(cell=intervals_in_words).pivot(
        index="locator", columns="criterion", values="cell"
    )
    papers_values = paper_values(similarities, sentences, granularity=granularity, share=share)
    papers_values = papers_values.reindex(our_values.index)
    columns = {}
    for criterion in SUBTASKS:
        columns[criterion] = our_values.get(criterion)
        columns[f"{criterion} (paper)"] = papers_values[criterion].map("{:.2f}".format)
    all_columns = pd.DataFrame(columns, index=our_values.index).replace("nan", "n/a")
    rows_of_examples = pd.concat([similarities, sentences.query("subtask == 'unbiasedness'")])
    counts = rows_of_examples.groupby(["locator", "subtask"])["example"].nunique().unstack()
    counts = counts.reindex(columns=list(SUBTASKS)).fillna(0).astype(int).astype(str)
    counts_in_words = counts.agg(", ".join, axis=1)
    if counts_in_words.nunique() > 1:
        all_columns = all_columns.assign(n=counts_in_words)
    return ShownTable(named_rows(all_columns), criteria.note)


def wordings_text(
    similarities: pd.DataFrame, *, granularity: str, share: float = DEFAULT_SHARE
) -> ShownTable:
    """Consistency (unclipped RSim) of the examples in Table 3's wordings as printed, and of those in
    corrected ones; a relation has either. Sim_all is over both kinds.
    """
    consistency_rows = similarities.query(
        "subtask == 'consistency' and granularity == @granularity and share == @share"
    )
    is_corrected = consistency_rows["relation"].isin(corrected_relations())
    rows_by_wording = {
        "all": consistency_rows,
        "as printed": consistency_rows[~is_corrected],
        "corrected": consistency_rows[is_corrected],
    }
    columns = {}
    notes = []
    for wording, rows_of_wording in rows_by_wording.items():
        rsim = rsim_table(rows_of_wording)
        by_locator = rsim.table.set_index("locator")
        columns[wording] = by_locator.apply(_interval_text, axis=1)
        columns[f"n, {wording}"] = by_locator["n"]
        notes.append(f"{wording}: {rsim.note}")
    return with_note(named_rows(pd.DataFrame(columns)), *notes)


def null_text(null: pd.DataFrame, *, subtask: str, granularity: str, share: float) -> pd.DataFrame:
    """Observed RSim next to its null over all facts and inside a relation, exact baseline."""
    chosen_rows = null.query(
        "subtask == @subtask and granularity == @granularity and share == @share"
    )
    nulls_in_words = [
        f"{signed(row['mean'])} ± {row['standard_deviation']:.2f} (p = {row['p_value']:.3f})"
        for row in chosen_rows.to_dict("records")
    ]
    nulls_by_shuffling = chosen_rows.assign(cell=nulls_in_words).pivot(
        index="locator", columns="shuffled", values="cell"
    )
    # A run may lack all that were asked for.
    nulls_by_shuffling = nulls_by_shuffling.reindex(columns=["all", "relation"])
    nulls_by_shuffling.columns = pd.Index(["dealt among all facts", "dealt inside a relation"])
    observed = chosen_rows.query("shuffled == 'all'").set_index("locator")["observed"]
    nulls_by_shuffling.insert(0, "observed", observed.map(signed))
    return named_rows(nulls_by_shuffling)


def gap_text(similarities: pd.DataFrame, *, granularity: str, share: float) -> pd.DataFrame:
    """Mean Sim_all and RSim under the paper's shortcut and exactly, and the gap in RSim."""
    chosen_rows = similarities.query("granularity == @granularity and share == @share")
    baselines = ["mean_scores", "pairwise"]
    for baseline in baselines:
        chosen_rows[f"rsim_{baseline}"] = relative_similarity(
            chosen_rows["candidate"], chosen_rows[baseline]
        )
    columns = [*baselines, *(f"rsim_{baseline}" for baseline in baselines)]
    means = chosen_rows.groupby(["locator", "subtask"], sort=False)[columns].mean()
    means["gap"] = means["rsim_mean_scores"] - means["rsim_pairwise"]
    return named_rows(means.reset_index("subtask").round(3))


def spread_text(
    sentences: pd.DataFrame, similarities: pd.DataFrame, *, granularity: str
) -> pd.DataFrame:
    """RSD of the scores, and of the scores over their own mean magnitude (ours)."""
    chosen_sentences = sentences.query("granularity == @granularity")
    columns = {}
    for name, relative in (("RSD", False), ("RSD of relative spread", True)):
        table = rsd_table(chosen_sentences, similarities, relative=relative).set_index("locator")
        columns[name] = table.apply(_interval_text, axis=1)
    return named_rows(pd.DataFrame(columns))


def locality_text(tests: pd.DataFrame, twins: Mapping[str, str]) -> ShownTable:
    """``metrics.locality_table`` as rounded text, a row per locator, and its ``profile_twins`` below."""
    rows_by_pairing = tests.set_index("locator").groupby("pairing")
    same_fact = rows_by_pairing.get_group("own")
    other_facts = rows_by_pairing.get_group("other")
    difference = rows_by_pairing.get_group("specific")
    columns = {
        "same fact": same_fact.apply(_interval_text, axis=1),
        "other facts": other_facts["mean"].map(signed),
        "difference": difference.apply(_interval_text, axis=1),
        "p": same_fact["p_value"].map("{:.3f}".format),
        "mean curves": same_fact["average"].map(signed),
    }
    shown_columns = named_rows(pd.DataFrame(columns, index=same_fact.index))
    twin_notes = [
        f"{LABELS.get(twin, twin)}: as {LABELS.get(original, original)}"
        for twin, original in twins.items()
    ]
    noted = with_note(shown_columns, *twin_notes)
    return with_power(noted, difference["could_show"], difference["n"], digits=2)


def size_table(source: str) -> pd.DataFrame:
    """Relations, mean length (words and the slot; for r the chain's) and examples next to Table 1."""
    from helpers.klob.examples import SCHEMAS, read_examples  # loads torch

    examples = {subtask: list(read_examples(subtask, source).values()) for subtask in SCHEMAS}
    facts = examples["consistency"]
    chains = examples["relevance"]
    random = examples["unbiasedness"]
    lengths = {
        "c": [len(prompt.split()) for example in facts for prompt in example.prompts],
        "r": [len(example.chain_prompt.split()) for example in chains],
        "u": [len(prompt.split()) for prompt in random],
    }
    our_values = {
        "relations": {
            "c": len({example.fact[1] for example in facts}),
            "r": len({relation for example in chains for relation in example.chain[1::2]}),
        },
        "average length": {
            letter: sum(word_counts) / len(word_counts) for letter, word_counts in lengths.items()
        },
        "examples": {"c": len(facts), "r": len(chains), "u": len(random)},
    }
    paper = published_table("klob_table_1").pivot(index="subtask", columns="metric", values="value")
    columns = {}
    for whose, values_by_letter in (("paper", paper), (source, pd.DataFrame(our_values))):
        for name in our_values:
            number_format = "{:.2f}" if name == "average length" else "{:,.0f}"
            columns[f"{name}, {whose}"] = values_by_letter[name].map(
                number_format.format, na_action="ignore"
            )
    return pd.DataFrame(columns).fillna("")


def made_of(run: Run) -> str:
    """What a published run's tables are of: model, data, and examples per locator."""
    locators_by_counts: dict[str, list[str]] = {}
    for table_name, settings in run.about.settings.items():
        key = TableKey.parse(table_name)
        if key.kind == "similarities":
            example_counts = settings["counts"].items()
            counts_text = ", ".join(
                f"{count or 'all'} {subtask}" for subtask, count in example_counts
            )
            locators_by_counts.setdefault(counts_text, []).append(key.method)
    most_common, *less_common = sorted(
        locators_by_counts, key=lambda counts_text: -len(locators_by_counts[counts_text])
    )
    made_of_words = f"{made_with(run)}, {most_common}"
    for counts_text in less_common:
        made_of_words += f"; {', '.join(locators_by_counts[counts_text])}: {counts_text}"
    return made_of_words


def made_with(run: Run) -> str:
    """Model and data of a published run."""
    source = run.about.source
    words = model_words(source["model"])
    return f"ours: {words}, {source['dtype']} on {source['device']}, {source['dataset']}"


def named_rows(by_locator: pd.DataFrame) -> pd.DataFrame:
    """Rows in the order of the locators, under their printed names, and what is no locator below them."""
    locators = [name for name in LABELS if name in by_locator.index]
    other_rows = [name for name in by_locator.index if name not in LABELS]
    ordered_rows = by_locator.loc[[*locators, *other_rows]]
    ordered_rows.index = pd.Index(
        [LABELS.get(name, name) for name in ordered_rows.index], name="locator"
    )
    ordered_rows.columns.name = None
    return ordered_rows


def signed(value: float) -> str:
    """Two decimals with their sign; a rounded zero is always positive."""
    return f"{round(value, 2) + 0.0:+.2f}"


def _interval_text(estimate: pd.Series) -> str:
    if pd.isna(estimate["mean"]):
        return "n/a"
    if pd.isna(estimate["low"]):
        return signed(estimate["mean"])
    return f"{signed(estimate['mean'])} ({signed(estimate['low'])} … {signed(estimate['high'])})"


def late_layers_table(gains: pd.DataFrame, mass: Mapping[str, Numbers], late: int) -> ShownTable:
    """How much of each locator's mass the last layers hold; below it what edits gain there and before.

    Args:
        gains: of ``metrics.edit_gains`` [facts, layers], in nats per token.
        mass: of ``metrics.layer_mass``, by locator [facts, layers].
        late: the number of last layers.
    """
    rows = {
        LABELS.get(locator, locator): 100 * shares.mean(axis=0)[-late:].sum()
        for locator, shares in mass.items()
    }
    column = f"mass in the last {late} layers, %"
    table = pd.DataFrame({column: rows}).rename_axis("locator")
    best_layers = gains.idxmax(axis=1).value_counts().head(3).to_dict()
    early_gain = gains.iloc[:, :-late].mean().mean()
    late_gain = gains.iloc[:, -late:].mean().mean()
    at_last = gains.iloc[:, -1]
    notes = [
        f"{len(gains)} facts, {gains.shape[1]} layers; best layer: number of facts {best_layers}",
        f"mean gain {early_gain:.1f} before the last {late} layers, {late_gain:.1f} in them",
        f"gain at the last layer {at_last.min():.2f} to {at_last.max():.2f}",
    ]
    for twin, locator in profile_twins(mass).items():
        agreement = rank_correlations(mass[twin], mass[locator]).diagonal().mean()
        notes.append(
            f"{LABELS.get(twin, twin)} as {LABELS.get(locator, locator)} (rank correlation {agreement:.2f})"
        )
    return with_note(table.round(0).astype(int), *notes)
