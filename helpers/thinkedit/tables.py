"""ThinkEdit's tables, ours from evaluated runs and the paper's in the same form.

``technique_table`` is the paper's Tables 5 and 6, ``length_table`` its Table 10. Pooled means come first,
as the authors pool: Definitions 3 and 4 over all edits at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations

import numpy as np
import pandas as pd

from helpers.paths import PACKAGED
from helpers.results.archive import ArchiveError, Run
from helpers.results.statistics import Estimate, paired_shares, share_interval
from helpers.results.text import published_table, survivors, with_interval
from helpers.thinkedit import metrics
from helpers.thinkedit.evaluation import KEYS, Evaluation, evaluate
from helpers.thinkedit.knowgic import LAYOUTS
from helpers.thinkedit.metrics import DEFAULT, DIRECT, OVERALL, OWN, Known, pooled, sums_of

STEPS = (OVERALL, "1", "2", "3", "4", "5")
MEASURES = ("IFR", "CKP")
CAPPED, DEEP = "IFR capped", "Deep-edited"
SHARES = ("Efficacy", "Generalisation", "Specificity")
KINDS = {DIRECT: DIRECT, OWN: OWN, "CKP": "facts about others (CKP)"}
# What is asked with and without a negation, by (form, item) of ``probes.negations_of``.
ASKED = {
    ("edit", 0): "S is ...: new before original",
    ("negated", 0): "It is not true that S is ...: new before original",
    ("true", 0): "Is it true that S is original? yes",
    ("true", 1): "Is it true that S is new? yes",
    ("false", 0): "Is it false that S is original? yes",
    ("false", 1): "Is it false that S is new? yes",
}
Pairs = dict[tuple[str, str], tuple[pd.DataFrame, pd.DataFrame]]
_ORDER = ("none", "alphaedit", "memit", "rect", "prune", "prune-added", "rome")  # the paper's
_PROBE = ["model", "case_id", "form", "item"]


def technique_table(
    found: Evaluation, *, mode: str, estimate: Callable[[pd.DataFrame], Estimate] = pooled
) -> pd.DataFrame:
    """IFR, CKP, efficacy and specificity of each method, pooled (the paper's Tables 5 and 6).

    Each measure has its 95 % interval (``IFR low``, ``IFR high``, …; bootstrap over edits, exact for
    shares that are 0 or 1 in every edit); ``chains`` and ``edits`` are behind IFR, ``facts`` behind CKP.
    ``IFR capped`` counts a chain that became more probable as kept. Generalisation is added; it and
    specificity are a reconstruction (see ``metrics.success_terms``). ``estimate=metrics.per_edit`` gives
    means over edits instead, which weigh an edit of one chain like one of a hundred.
    """
    rows = []
    for (model, method), terms in found.by_method(mode).items():
        own = {name: terms[terms["measure"] == name] for name in (*MEASURES, *SHARES)}
        sums = {"IFR": sums_of(own["IFR"]), CAPPED: sums_of(own["IFR"], capped=True)}
        sums["CKP"] = sums_of(own["CKP"])
        row: dict[str, object] = {"model": model, "method": method}
        for name, each in sums.items():
            row |= _ends(name, estimate(each))
        for name in SHARES:
            if len(own[name]):
                row |= _ends(name, share_interval(own[name]["ratio"]))
        row |= {"chains": len(own["IFR"]), "facts": len(own["CKP"]), "edits": len(sums["IFR"])}
        rows.append(row)
    return ordered(pd.DataFrame(rows))


def deep_table(found: Evaluation, *, mode: str) -> pd.DataFrame:
    """Share of edits after which no chain of two to five steps is fully known (Definition 2).

    Only edits of which such a chain was fully known before count; and of an edit's chains only those
    that its record lists. The interval is exact.
    """
    chains = found.only(mode).chains
    longer = chains[chains["length"] > 1].groupby([*KEYS, "edit"], as_index=False)
    edits = longer[["kept", "active"]].any()
    rows = []
    for (model, method), own in edits[edits["kept"]].groupby(KEYS):
        share = share_interval(1.0 - own["active"])
        rows.append({"model": model, "method": method, **_ends(DEEP, share), "edits": share.n})
    return ordered(pd.DataFrame(rows))


def length_table(found: Evaluation, *, mode: str, intervals: bool = False) -> pd.DataFrame:
    """IFR overall and by chain length, pooled (the paper's Table 10), and the deducible ``chains``
    behind each. With ``intervals`` each length has its ends: ``1 low``, ``1 high``, ….
    """
    rows = []
    for (model, method), terms in found.by_method(mode).items():
        own = terms[terms["measure"] == "IFR"]
        parts = {step: own[own["length"].astype(str) == step] for step in STEPS} | {OVERALL: own}
        ends = {step: _ends(step, pooled(sums_of(part))) for step, part in parts.items()}
        row: dict[str, object] = {"model": model, "method": method}
        for step, values in ends.items():
            row |= values if intervals else {step: values[step]}
        rows.append({**row, "chains": "/".join(str(len(part)) for part in parts.values())})
    return ordered(pd.DataFrame(rows))


def subject_table(runs: Sequence[Run], *, mode: str) -> pd.DataFrame:
    """How much of the known facts an edit leaves, by what they are about (``KINDS``, beyond the paper):
    the mean of p'/p pooled over edits, with its 95 % interval, and the numbers of ``facts``.
    """
    rows = []
    for (model, method), terms in evaluate(tuple(runs)).by_method(mode).items():
        row: dict[str, object] = {"model": model, "method": method}
        own = {name: terms[terms["measure"] == measure] for measure, name in KINDS.items()}
        sums = {name: sums_of(part) for name, part in own.items()}
        row |= {name: with_interval(pooled(part)) for name, part in sums.items()}
        row["facts"] = "/".join(str(len(part)) for part in own.values())
        rows.append(row | {"edits": max(map(len, sums.values()))})
    return ordered(pd.DataFrame(rows))


def against_method(found: Evaluation, method: str, *, mode: str) -> Pairs:
    """Every method with another one on the same model and edits; empty where that was not run."""
    terms = found.by_method(mode)
    return {
        (model, name): (own, terms[model, method])
        for (model, name), own in terms.items()
        if name != method and (model, method) in terms
    }


def against_mode(found: Evaluation, other: Evaluation, *, mode: str, other_mode: str) -> Pairs:
    """Every method in one mode with itself in another, or in another evaluation (with APP)."""
    ours, theirs = found.by_method(mode), other.by_method(other_mode)
    return {key: (own, theirs[key]) for key, own in ours.items() if key in theirs}


def changes(pairs: Pairs) -> pd.DataFrame:
    """Pooled differences on the same edits, a row per (model, method, measure).

    Args:
        pairs: by (model, method), the terms of what is compared and of what it is compared with, in
            this order; see ``against_method`` and ``against_mode``.

    Returns:
        The pooled values ``before`` and ``after``, the difference's ``mean``, ``low`` and ``high``,
        ``edits``, ``verdict`` (by flipping signs), ``could show`` (see ``metrics.Difference``), and
        ``Holm``: the verdict after correction for all tests of the table.
    """
    names = ["before", "after", "mean", "low", "high", "edits", "verdict", "could show", "p"]
    rows = []
    for (model, method), both in pairs.items():
        for measure in MEASURES:
            after, before = (sums_of(terms[terms["measure"] == measure]) for terms in both)
            change = metrics.paired_difference(before, after)
            found, common = change.difference, set(after["edit"]) & set(before["edit"])
            own = [pooled(part[part["edit"].isin(common)]).mean for part in (before, after)]
            ends = (found.mean, found.low, found.high, found.n)
            test = (change.verdict, change.could_show, change.p_value)
            rows.append((model, method, measure, *own, *ends, *test))
    table = pd.DataFrame(rows, columns=[*KEYS, "measure", *names]).query("edits > 0")
    return table.assign(Holm=survivors(table["verdict"].tolist(), table["p"].tolist()))


def difference_table(pairs: Pairs) -> pd.DataFrame:
    """``changes`` as text: ``difference`` with its interval, edits, verdict, Holm, could show."""
    found = changes(pairs)
    ends = zip(found["mean"], found["low"], found["high"], strict=True)
    found["difference"] = [_signed(Estimate(*each, 0)) for each in ends]
    found["could show"] = found["could show"].round(2)
    return found[[*KEYS, "measure", "difference", "edits", "verdict", "Holm", "could show"]]


def rules_table(
    runs: Sequence[Run], rules: Sequence[Known], methods: Sequence[str], *, mode: str
) -> pd.DataFrame:
    """Pooled IFR and CKP of some methods (``IFR rome``, …) when "known" means something else, and the
    known ``facts`` and deducible ``chains`` before editing; exact scores, a row per (model, rule).
    """
    rows = []
    for rule in rules:
        found = evaluate(tuple(runs), rule=rule)
        table = technique_table(found.where(lambda t: t["method"].isin(methods)), mode=mode)
        for run in runs:
            model = run.about.source["model"]
            part = table[table["model"] == model]
            before = run.tables["exact: none, before"].query("form == 'fact'")
            counts = {"facts": int(rule.of(before).sum()), "chains": int(part["chains"].max())}
            row: dict[str, object] = {"model": model, "rule": str(rule), **counts}
            for values in part.to_dict("records"):
                row |= {f"{name} {values['method']}": values[name] for name in MEASURES}
            rows.append(row)
    return pd.DataFrame(rows).sort_values("model", kind="stable", ignore_index=True)


def new_fact_table(found: Evaluation, *, mode: str) -> pd.DataFrame:
    """Is the *new* fact deducible (the paper's first limitation)? Each chain's last step asks for it.

    Over chains of two steps and more (one step is the edit itself), per edit first and then over the
    ``n`` edits that have any: mean probability of the new fact's chains ``before`` and ``after``, and the
    share of the distinct facts at the chains' ends of which the new object is more probable than the
    original one (``wins_…``); ``pooled_…`` is that share over all chains of all edits.
    """
    new = found.only(mode).chains
    longer = new[new["length"] > 1]
    wins, keys = ["wins_before", "wins_after"], [*KEYS, "edit"]
    ends = longer.drop_duplicates([*keys, "last_item"]).groupby(keys)[wins].mean()
    chains = longer.groupby(keys)[["new_before", "new_after"]].mean()
    means = chains.set_axis(["before", "after"], axis=1).join(ends).groupby(KEYS)
    every = longer.groupby(KEYS)[wins].mean().set_axis(["pooled_before", "pooled_after"], axis=1)
    return ordered(means.mean().join(every).assign(n=means.size()).reset_index())


def chain_counts(found: Evaluation, *, mode: str) -> pd.DataFrame:
    """How many ``chains`` of each length there are, were ``deducible`` before (every step known), and are
    ``active`` after the edit, one row per (model, method, length).
    """
    groups = found.only(mode).chains.groupby([*KEYS, "length"], sort=True)
    counts = groups.agg(
        chains=("kept", "size"), deducible=("kept", "sum"), active=("active", "sum")
    )
    return counts.reset_index()


def base_rates(scores: pd.DataFrame, *, rule: Known = DEFAULT) -> pd.DataFrame:
    """What the unedited model answers, by form of the prompt (the paper's Figures 11–14, counted).

    From stored exact scores: ``prompts``, ``answered`` (share) and the answers' mean ``probability``. A
    fact is answered when known by the rule, a reverse question when its answer has at least the rule's
    threshold as a whole, a yes/no question when yes beats no.
    """
    rows = []
    for (model, form), part in _unedited(scores).groupby(["model", "form"], sort=True):
        probability = (rule if form == "fact" else DEFAULT).probability(part)
        answered = {
            "fact": rule.of(part),
            "reverse": probability >= rule.threshold,
            "yes_no": part["original_sum"] > part["other_sum"],  # "yes" and "no"
        }
        if form in answered:
            rows.append((model, form, len(part), answered[str(form)].mean(), probability.mean()))
    return pd.DataFrame(rows, columns=["model", "form", "prompts", "answered", "probability"])


def other_forms_table(scores: pd.DataFrame, *, mode: str) -> pd.DataFrame:
    """How each method's edits move reverse and yes/no questions about the edited subjects: means over
    ``n`` facts of the subject's whole probability (reverse), or of the share of "yes" against "no".
    """
    asked = scores[scores["form"].isin(["reverse", "yes_no"])]
    yes = _against(asked["other_sum"], asked["original_sum"])
    shares = DEFAULT.probability(asked).where(asked["form"] == "reverse", yes)
    groups = _paired(asked.assign(share=shares), mode).groupby([*KEYS, "form"])
    means = groups.agg(before=("before", "mean"), after=("after", "mean"), n=("after", "size"))
    return means.reset_index()


def negation_table(scores: pd.DataFrame, *, mode: str) -> pd.DataFrame:
    """What edits do to the negated fact (beyond the paper).

    A model that took the edit in says *yes* more to the new fact and less to the original one when it is
    asked whether they are true, and the other way round when it is asked whether they are false.

    Args:
        scores: stored scores of the estimator "negated".
        mode: which edits.

    Returns:
        ``before`` and ``after``: the share of ``n`` edits where the new object is more probable than the
        original one, or, of questions, the probability of *yes* against *no*; ``change``, and ``Holm``
        (more, less or inconclusive, corrected for all tests of the table).
    """
    original, other = scores["original_named"], scores["other_named"]
    first = (other > original).astype(float)
    cloze = scores["form"].isin(["edit", "negated"])
    pairs = _paired(scores.assign(share=first.where(cloze, _against(other, original))), mode)
    rows, tests = [], []
    for (model, method), part in pairs.groupby(KEYS, sort=True):
        for (form, item), words in ASKED.items():
            own = part[(part["form"] == form) & (part["item"] == item)]
            shares = (with_interval(share_interval(own[m])) for m in ("before", "after"))
            tests.append(paired_shares(own["before"], own["after"]))
            change = _signed(tests[-1].difference)
            rows.append((model, method, words, *shares, change, len(own)))
    table = pd.DataFrame(rows, columns=[*KEYS, "asked", "before", "after", "change", "n"])
    signs = ["more" if test.difference.mean > 0 else "less" for test in tests]
    table.insert(6, "Holm", survivors(signs, [test.p_value for test in tests]))
    return ordered(table)


def response_rates(scores: pd.DataFrame) -> pd.DataFrame:
    """Share of questions whose object the unedited model names at least once (``named``), and of all
    responses (``share``), from stored sampled scores.
    """
    before = _unedited(scores)
    rates = before.assign(named=before["hits"] > 0, share=before["hits"] / before["n"])
    groups = rates.groupby("model", sort=True)[["named", "share"]]
    return (
        groups.mean().assign(questions=groups.size())[["questions", "named", "share"]].reset_index()
    )


def text_table(texts: pd.DataFrame, *, mode: str) -> pd.DataFrame:
    """Mean fluency (bits) and consistency of texts about ``n`` edited subjects."""
    chosen = texts[texts["mode"].isin(["before", mode])]
    groups = chosen.rename(columns={"fluency_averaged": "fluency"}).groupby(KEYS)
    means = groups[["fluency", "consistency"]].mean()
    return ordered(means.assign(n=groups.size()).reset_index())


def null_table(draws: pd.DataFrame, chains: pd.DataFrame) -> pd.DataFrame:
    """IFR and CKP of no edit at all: every two draws of the unedited model, one as before, one as after.

    ``low`` and ``high`` are the smallest and largest of the ``pairs``. What an edit does shows only
    beyond them.
    """
    rows = []
    for model, own in draws.groupby("model", sort=True):
        for before, after in permutations([part for _, part in own.groupby("seed")], 2):
            facts = metrics.facts_table(before, after)
            terms = metrics.terms_of(facts, metrics.chain_table(facts, chains), chains)
            rows += [(model, name, metrics.value_of(terms, name)) for name in MEASURES]
    table = pd.DataFrame(rows, columns=["model", "measure", "value"])
    values = table.groupby(["model", "measure"], sort=False)["value"]
    found = values.agg(mean="mean", low="min", high="max", pairs="size")
    return found.reset_index()


def later_mentions(compared: pd.DataFrame) -> pd.DataFrame:
    """What counting a name anywhere adds to beginning with it, by model and form (``tools.estimators``).

    ``apart`` is the largest distance of exact and begins in standard errors of the share.
    """
    spread = (compared["exact"] * (1 - compared["exact"]) / compared["n"]) ** 0.5
    apart = (compared["begins"] - compared["exact"]).abs() / spread
    groups = compared.assign(apart=apart).groupby(["model", "form"], sort=True)
    means = groups[["exact", "begins", "mentions"]].mean()
    return means.assign(facts=groups.size(), apart=groups["apart"].max()).reset_index()


def paper_techniques() -> pd.DataFrame:
    """The paper's Tables 5 and 6 in the form of ``technique_table``."""
    return _techniques("thinkedit_table_5", "thinkedit_table_6")


def repository_techniques() -> pd.DataFrame:
    """IFR and CKP that the authors' repository gives, which are not the paper's."""
    return _techniques("thinkedit_repository")


def _techniques(*names: str) -> pd.DataFrame:
    table = pd.concat([published_table(name) for name in names])
    wide = table.pivot(index=KEYS, columns="metric", values="value")
    titles = {"ifr": "IFR", "ckp": "CKP", "efficacy": "Efficacy", "specificity": "Specificity"}
    wide = wide[[metric for metric in titles if metric in wide]]
    return ordered(wide.rename(columns=titles).reset_index())


def paper_lengths() -> pd.DataFrame:
    """The paper's Table 10 in the form of ``length_table``."""
    table = published_table("thinkedit_table_10").query("metric == 'ifr'")
    wide = table.pivot(index=KEYS, columns="steps", values="value")
    return ordered(wide.reindex(columns=list(STEPS)).reset_index())


def chain_length_table() -> pd.DataFrame:
    """Chains by number of steps: the paper's Table 4, and the two published files."""
    rows = published_table("thinkedit_table_4").astype({"value": int})
    source = rows["metric"].str.removeprefix("chains").str.strip().replace("", "paper")
    table = rows.assign(source=source).pivot(index="source", columns="steps", values="value")
    table = table.loc[["paper", *LAYOUTS]].rename_axis(columns=None)
    return table.assign(all=table.sum(axis=1))


def packaged(name: str) -> pd.DataFrame:
    """A packaged table: "base_questions" (the paper's 21 facts, Tables 7 and 8), "metrics" (what each
    sees, Table 9 in our words), "recalled-MODEL-links" and "recalled-MODEL-chains" (what each stage left).
    """
    return pd.read_csv(PACKAGED / "thinkedit" / f"{name}.csv")


def ordered(table: pd.DataFrame) -> pd.DataFrame:
    """Models by name, methods in the paper's order, others after them."""
    rank = {method: place for place, method in enumerate(_ORDER)}
    order = table["method"].map(lambda m: (rank.get(m.split("+")[0], len(rank)), m))
    by = table.assign(_order=order).sort_values(["model", "_order"], kind="stable")
    return by.drop(columns="_order")


def as_text(table: pd.DataFrame, *, digits: int = 2) -> pd.DataFrame:
    """A table whose measures are text with their intervals in brackets."""
    shown = table.copy()
    for name in (*MEASURES, CAPPED, *SHARES, DEEP):
        if name in table:
            ends = zip(table[name], table[f"{name} low"], table[f"{name} high"], strict=True)
            shown[name] = [with_interval(Estimate(*values, 0), digits=digits) for values in ends]
            shown = shown.drop(columns=[f"{name} low", f"{name} high"])
    return shown


def _signed(change: Estimate) -> str:
    """A difference with its interval; one that rounds to zero keeps its sign."""
    ends = "" if np.isnan(change.low) else f" [{change.low:+.2f}, {change.high:+.2f}]"
    return f"{change.mean:+.2f}{ends}"


def _ends(name: str, estimate: Estimate) -> dict[str, float]:
    return {name: estimate.mean, f"{name} low": estimate.low, f"{name} high": estimate.high}


def _unedited(scores: pd.DataFrame) -> pd.DataFrame:
    return scores[scores["mode"] == "before"]


def _against(other: pd.Series, own: pd.Series) -> pd.Series:
    """Share of one answer against another, from their log-probabilities."""
    return 1 / (1 + (other - own).map(np.exp))


def _paired(scores: pd.DataFrame, mode: str) -> pd.DataFrame:
    """The ``share`` of each probe ``before`` and ``after`` a mode's edits; ArchiveError without any."""
    after = scores[scores["mode"] == mode]
    if after.empty:
        raise ArchiveError(f"no results of mode {mode!r}; there are {set(scores['mode'])}")
    both = after.merge(_unedited(scores), on=_PROBE, suffixes=("", "_before"))
    return both.rename(columns={"share": "after", "share_before": "before"})
