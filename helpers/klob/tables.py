"""KLoB's tables: criteria per locator from the evaluation's long tables, as numbers and as rounded text.

*similarities* has one row per example with columns locator, subtask, granularity, share, candidate
(Sim_cand), mean_scores and pairwise (both Sim_all); *sentences* has one row per sentence with
locator, subtask, granularity, deviation and magnitude; *null* has one row per permutation null.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

import pandas as pd

from helpers.klob.located import DEFAULT_SHARE
from helpers.klob.metrics import relative_similarity, relative_standard_deviation
from helpers.paths import PACKAGED
from helpers.records import load_yaml
from helpers.results.archive import Run
from helpers.results.statistics import bootstrap_interval
from helpers.results.text import model_words, published_table

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
TEMPLATES = PACKAGED / "klob" / "templates.yaml"  # Table 3, as printed and corrected
ESTIMATE = ["mean", "low", "high", "n"]


def rsim_table(
    similarities: pd.DataFrame,
    *,
    baseline: str = "pairwise",
    by: Sequence[str] = ("locator", "granularity", "subtask", "share"),
) -> pd.DataFrame:
    """Mean unclipped RSim with its bootstrap interval over examples: ``by``, mean, low, high, n.

    ``baseline``: the exact ``"pairwise"``, or the paper's shortcut ``"mean_scores"``.
    """
    rsim = relative_similarity(similarities["candidate"], similarities[baseline])
    groups = similarities.assign(rsim=rsim).groupby(list(by), sort=False)["rsim"]
    rows = [(*keys, *astuple(bootstrap_interval(part, resamples=2_000))) for keys, part in groups]
    return pd.DataFrame(rows, columns=[*by, *ESTIMATE])


def rsd_table(sentences: pd.DataFrame, *, relative: bool = False) -> pd.DataFrame:
    """Unclipped RSD per locator and granularity: factual are c and r, non-factual u.

    ``relative``: divide each sentence's standard deviation by its mean |score| first, so that scores
    that merely shrink on random words do not count (ours).
    """
    rows = []
    for keys, part in sentences.groupby(["locator", "granularity"], sort=False):
        spread = part["deviation"] / part["magnitude"] if relative else part["deviation"]
        random = part["subtask"] == "unbiasedness"
        rows.append((*keys, *astuple(relative_standard_deviation(spread[~random], spread[random]))))
    return pd.DataFrame(rows, columns=["locator", "granularity", *ESTIMATE])


def criteria_table(
    similarities: pd.DataFrame,
    sentences: pd.DataFrame,
    *,
    granularity: str,
    share: float = DEFAULT_SHARE,
    baseline: str = "pairwise",
) -> pd.DataFrame:
    """All three criteria at one granularity: locator, criterion, unclipped mean, low, high, n."""
    at_share = similarities.query("granularity == @granularity and share == @share")
    rsim = rsim_table(at_share, baseline=baseline, by=("locator", "subtask"))
    rsd = rsd_table(sentences.query("granularity == @granularity")).assign(subtask=SUBTASKS[2])
    table = pd.concat([rsim, rsd.drop(columns="granularity")], ignore_index=True)
    return table.rename(columns={"subtask": "criterion"})


def criteria_text(similarities: pd.DataFrame, sentences: pd.DataFrame, **how: Any) -> pd.DataFrame:
    """Locator by criterion: the headline (clipped at 0), the unclipped mean and its interval.

    The last column counts examples of each criterion. ``how``: as ``criteria_table`` takes it.
    """
    table = criteria_table(similarities, sentences, **how)
    cells = [
        f"{max(mean, 0):.2f}  ({signed(mean)}, {_range(low, high)})" if n else "n/a"
        for mean, low, high, n in table[ESTIMATE].itertuples(index=False)
    ]
    wide = table.assign(cell=cells).pivot(index="locator", columns="criterion", values="cell")
    rows = pd.concat([similarities, sentences.query("subtask == 'unbiasedness'")])
    counts = rows.groupby(["locator", "subtask"])["example"].nunique().unstack()
    counts = counts.reindex(columns=list(SUBTASKS)).fillna(0).astype(int).astype(str)
    wide = wide.reindex(columns=list(SUBTASKS)).assign(n=counts.agg(", ".join, axis=1))
    return named_rows(wide)


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
        table = table.assign(
            **{f"rsim_{kind}": relative_similarity(table["candidate"], table[kind])}
        )
    columns = [*kinds, *(f"rsim_{kind}" for kind in kinds)]
    means = table.groupby(["locator", "subtask"], sort=False)[columns].mean()
    means["gap"] = means["rsim_mean_scores"] - means["rsim_pairwise"]
    return named_rows(means.reset_index("subtask").round(3))


def spread_text(sentences: pd.DataFrame, *, granularity: str) -> pd.DataFrame:
    """RSD of the scores, and of the scores over their own mean magnitude (ours)."""
    rows = sentences.query("granularity == @granularity")
    columns = {}
    for name, relative in (("RSD", False), ("RSD of relative spread", True)):
        table = rsd_table(rows, relative=relative).set_index("locator")
        columns[name] = table.apply(_interval, axis=1)
    return named_rows(pd.DataFrame(columns))


def cost_text(cost: pd.DataFrame) -> pd.DataFrame:
    """Measured CPU seconds per sentence."""
    return named_rows(cost.set_index("locator")[["cpu_seconds", "threads"]]).round(3)


def locality_text(table: pd.DataFrame) -> pd.DataFrame:
    """``metrics.locality_table`` as rounded text, a row per locator."""
    own = table.query("pairing == 'own'").set_index("locator")
    other = table.query("pairing == 'other'").set_index("locator")
    specific = ("specific", "specific_low", "specific_high")
    columns = {
        "same fact": own.apply(_interval, axis=1),
        "other facts": other["mean"].map(signed),
        "difference": own.apply(_interval, axis=1, names=specific),
        "p": own["p_value"].map("{:.3f}".format),
        "mean curves": own["average"].map(signed),
    }
    return named_rows(pd.DataFrame(columns, index=own.index))


def size_table(source: str) -> pd.DataFrame:
    """Relations, mean length and examples per subtask next to Table 1.

    Length counts words and the slot, which reproduces the paper's 10.1 on the published u; for r it
    is the chain sentence's (the paper does not say).
    """
    from helpers.klob.examples import read_examples  # loads torch

    facts = list(read_examples("consistency", source).values())
    chains = list(read_examples("relevance", source).values())
    random = list(read_examples("unbiasedness", source).values())
    texts = {
        "c": [text for example in facts for text in example.prompts],
        "r": [example.chain_prompt for example in chains],
        "u": random,
    }
    relations = {
        "c": {example.fact[1] for example in facts},
        "r": {label for example in chains for label in example.chain[1::2]},
    }
    ours = {
        "relations": {part: len(labels) for part, labels in relations.items()},
        "average length": {
            part: sum(len(text.split()) for text in every) / len(every)
            for part, every in texts.items()
        },
        "examples": {"c": len(facts), "r": len(chains), "u": len(random)},
    }
    paper = published_table("klob_table_1").pivot(index="subtask", columns="metric", values="value")
    both = {"paper": paper[list(ours)], source: pd.DataFrame(ours)}
    text = pd.concat(both, axis=1).map(_number)
    text.columns = pd.Index([f"{column[1]}, {column[0]}" for column in text.columns])
    return text


def relation_table(source: str) -> pd.DataFrame:
    """Examples per relation of c next to Table 2, the paper's order."""
    from helpers.klob.examples import read_examples  # loads torch

    ours = Counter(example.fact[1] for example in read_examples("consistency", source).values())
    paper = published_table("klob_table_2")
    labels = paper["keyword"] + "_(" + paper["relation"] + ")"
    columns = {"paper": paper["value"].astype(int).tolist(), source: labels.map(ours).tolist()}
    return pd.DataFrame(columns, index=pd.Index(labels, name="relation"))


def slip_table() -> pd.DataFrame:
    """Relations whose printed templates have a slip, one wording as printed and corrected."""
    rows = []
    for relation, entry in load_yaml(TEMPLATES.read_text("utf-8")).items():
        if "slip" in entry and entry.get("table_3", True):
            pairs = zip(entry["paper"], entry["templates"], strict=True)
            rows.append((relation, *next(pair for pair in pairs if pair[0] != pair[1])))
    return pd.DataFrame(rows, columns=["relation", "printed", "corrected"])


def made_of(run: Run) -> str:
    """What a published run's tables are of: model, data, and examples per locator."""
    by_counts: dict[str, list[str]] = {}
    for part, settings in run.about.settings.items():
        kind, _, name = part.partition(": ")
        if kind == "similarities":
            counts = ", ".join(f"{n or 'all'} {of}" for of, n in settings["counts"].items())
            by_counts.setdefault(counts, []).append(name)
    most, *others = sorted(by_counts, key=lambda counts: -len(by_counts[counts]))
    fewer = "".join(f"; {', '.join(by_counts[counts])}: {counts}" for counts in others)
    return f"{made_with(run)}, {most}{fewer}"


def made_with(run: Run) -> str:
    """Model and data of a published run."""
    source = run.about.source
    words = model_words(source["model"])
    return f"ours: {words}, {source['dtype']} on {source['device']}, {source['dataset']}"


def named_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Rows in the order of the locators, under their printed names."""
    ordered = table.loc[[name for name in LABELS if name in table.index]]
    ordered.index = pd.Index([LABELS[name] for name in ordered.index], name="locator")
    ordered.columns.name = None
    return ordered


def signed(value: float) -> str:
    """Two decimals with their sign; a rounded zero is always positive."""
    return f"{round(value, 2) + 0.0:+.2f}"


def _interval(row: pd.Series, names: Sequence[str] = ("mean", "low", "high")) -> str:
    mean, low, high = (row[name] for name in names)
    return "n/a" if pd.isna(mean) else f"{signed(mean)} ({_range(low, high)})"


def _range(low: float, high: float) -> str:
    return f"{signed(low)} … {signed(high)}"


def _number(value: float) -> str:
    if pd.isna(value):
        return ""
    return f"{value:,.0f}" if value == round(value) else f"{value:.2f}"
