"""ThinkEdit's published figures, each drawn from the stored runs of all models together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from helpers.results.archive import Run
from helpers.results.figure import figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from helpers.thinkedit.report_tables import Evaluation
    from helpers.thinkedit.technique_tables import Pairs

MAIN = "smollm2-135m"
RECALLED = (MAIN, "gemma3-270m")  # whose own graphs are packaged
_ALL, _LONG = slice(1, None), slice(3, None)  # of the counts overall and by length


def is_recalled(run: Run) -> bool:
    """Whether a run's edits are taken from what its model recalls."""
    return str(run.about.source.get("layout", "")).startswith("recalled-")


def _made(run: Run, *ends: str, kind: str = "exact") -> bool:
    """Whether it has scores of methods and modes whose words end in each of these."""
    parts = [part for part in run.about.settings if part.startswith(f"{kind}: ")]
    return all(any(part.endswith(end) for part in parts) for end in ends)


def _sequence(run: Run, kind: str = "exact") -> bool:
    return not is_recalled(run) and _made(run, ", sequential", kind=kind)


_stored = partial(figure, of="thinkedit", main=MAIN, together=True, when=_sequence)
_exact = partial(_stored, needs=("exact", "chains"))
_recalled = partial(figure, of="thinkedit", when=is_recalled, needs=("exact", "chains"))
_own = partial(_recalled, main=f"{MAIN}_recalled-{MAIN}", together=True)


@figure("06_reading", title="ThinkEdit's measures in one picture each", alone=True)
def reading() -> Figure:
    """Made-up numbers, for readers who meet the measures for the first time."""
    from helpers.thinkedit.reading import pictures

    return pictures()


@_exact("06_ifr_by_length", title="IFR by chain length")
def lengths(runs: Sequence[Run], *, mode: str = "sequential") -> Figure:
    """IFR of chains of one to five steps."""
    from helpers.thinkedit import figures, technique_tables

    table = technique_tables.length_table(_plain(runs, mode), mode=mode, intervals=True)
    counts = table.drop_duplicates("model")["chains"].str.split("/").tolist()
    every, long = (sum(int(n) for row in counts for n in row[part]) for part in (_ALL, _LONG))
    finding = f"{long} of the {every} deducible chains have three steps or more"
    caption = f"{_caption(runs, mode)}; 95 % intervals, bootstrap over edits"
    return figures.recovery_by_length(table, finding=finding, caption=caption)


@figure("06_paper_ifr_by_length", title="IFR by chain length, the paper's own numbers", alone=True)
def paper_lengths() -> Figure:
    """The same from the paper."""
    from helpers.thinkedit import figures, report_tables

    table = report_tables.paper_lengths()
    more = int((table["3"] > table["1"]).sum())
    finding = f"In {more} of {len(table)} rows, chains of three steps keep more than those of one"
    caption = f"{figures.THE_PAPER}; it prints neither intervals nor numbers of chains"
    return figures.recovery_by_length(table, finding=finding, caption=caption)


@figure("06_recalled", title="What models recall: links and chains, stage by stage", alone=True)
def recalled() -> Figure:
    """The packaged graphs of the embedded models."""
    from helpers.thinkedit import recalled_tables

    return recalled_tables.funnel(RECALLED)


@_recalled(
    "06_recalled_methods",
    title="IFR against CKP on what a model recalls",
    main=f"{MAIN}_recalled-{MAIN}",
    when=lambda run: is_recalled(run) and _made(run, ", independent", ", sequential"),
)
def recalled_methods(run: Run) -> Figure:
    """Every method, each edit alone and all as a sequence."""
    import pandas as pd

    from helpers.thinkedit import figures, technique_tables
    from helpers.thinkedit.stored_scores import evaluation

    found = evaluation((run,))
    modes = {"independent": "each edit alone", "sequential": "a sequence"}
    tables = [
        technique_tables.technique_table(found, mode=mode).assign(model=words)
        for mode, words in modes.items()
    ]
    alone, together = modes
    pairs = technique_tables.against_mode(found, found, mode=together, other_mode=alone)
    # PRUNE does nothing to updates this small: it is MEMIT, and counted once.
    changes = technique_tables.changes(pairs).query("measure == 'CKP' and method != 'prune'")
    less = int((changes["verdict"] == "less").sum())
    finding = f"In a sequence {less} of {len(changes)} methods keep less of the context than alone"
    caption = _caption([run], "edits that the model recalls")
    return figures.recovery_against_preservation(
        pd.concat(tables), finding=finding, caption=caption
    )


@_own(
    "06_definition_2",
    title="Deep edits: no longer chain is left (Definition 2)",
    when=lambda run: is_recalled(run) and _made(run, ", independent"),
)
def definition_2(runs: Sequence[Run], *, mode: str = "independent") -> Figure:
    """Share of edits after which no chain of two or more steps is fully known."""
    from helpers.editing.editors import method_label
    from helpers.thinkedit import figures, technique_tables

    table = technique_tables.deep_table(_plain(runs, mode), mode=mode)
    deep = technique_tables.DEEP
    fewest = table.loc[table.groupby("model")[deep].idxmin()]
    named = [
        f"{method_label(r['method'])} on {r['model']} ({r[deep]:.0%})" for _, r in fewest.iterrows()
    ]
    counts = (f"{model} {n}" for model, n in table.groupby("model")["edits"].max().items())
    finding = f"Deep edits are fewest with {' and '.join(named)}"
    caption = (
        f"{_caption(runs, mode)}\nDeep: no chain of two or more steps is fully known after the edit;"
        f" edits with such a chain before: {', '.join(counts)}"
    )
    return figures.method_bars(
        table, deep, label="share of deep edits", finding=finding, caption=caption
    )


@_exact("06_ckp", title="CKP by method")
def preservation(runs: Sequence[Run], *, mode: str = "sequential") -> Figure:
    """CKP of each method with its interval."""
    from helpers.thinkedit import figures, technique_tables

    table = technique_tables.technique_table(_plain(runs, mode), mode=mode)
    apart = (table["CKP low"] > 1) | (table["CKP high"] < 1)
    finding = f"{apart.sum()} of {len(apart)} intervals exclude 1, a context unchanged"
    how = {"label": "CKP (1: context kept)", "finding": finding, "caption": _caption(runs, mode)}
    return figures.method_bars(table, "CKP", **how)


@_exact("06_ifr_against_ckp", title="IFR against CKP")
def trade_off(runs: Sequence[Run], *, mode: str = "sequential") -> Figure:
    """How much of the old fact is left, against how much of the context."""
    from helpers.thinkedit import figures, technique_tables

    found = _plain(runs, mode)
    table = technique_tables.technique_table(found, mode=mode)
    how = {"finding": _against_memit(found, mode), "caption": _caption(runs, mode)}
    return figures.recovery_against_preservation(table, **how)


@_exact("06_active_chains", title="Chains deducible before and active after")
def chains(runs: Sequence[Run], *, mode: str = "sequential") -> Figure:
    """Chains by length: all, deducible before, active after."""
    from helpers.thinkedit import figures, report_tables

    counts = report_tables.chain_counts(_plain(runs, mode), mode=mode)
    return figures.chain_counts_bars(counts, caption=_caption(runs, mode))


@_own(
    "06_deep_edit",
    title="Deep edits: change of IFR and CKP",
    when=lambda run: is_recalled(run) and _made(run, ", deep"),
)
def deep(runs: Sequence[Run]) -> Figure:
    """What deep edits change against plain independent ones, on the same edits."""
    from helpers.thinkedit import technique_tables

    found, _ = _split(runs, "independent", "deep")
    pairs = technique_tables.against_mode(found, found, mode="deep", other_mode="independent")
    return _changed(runs, pairs, mode="independent", what="A deep edit")


@_own(
    "06_app",
    title="Edits with APP: change of IFR and CKP",
    when=lambda run: is_recalled(run) and _made(run, "+app, independent"),
)
def with_app(runs: Sequence[Run], *, mode: str = "independent") -> Figure:
    """What APP changes, on the same edits."""
    from helpers.thinkedit import technique_tables

    plain, changed = _split(runs, mode)
    pairs = technique_tables.against_mode(changed, plain, mode=mode, other_mode=mode)
    return _changed(runs, pairs, mode=mode, what="APP")


@_stored(
    "06_sequence",
    title="Edits of a sequence, right after and at the end",
    needs=("along", "exact"),
)
def sequence(runs: Sequence[Run]) -> Figure:
    """How the edits of a sequence fare, a row of panels per model; methods without APP."""
    from helpers.editing.editors import method_label
    from helpers.thinkedit import figures
    from helpers.thinkedit.side_tables import sequence_leads
    from helpers.thinkedit.stored_scores import scores_of

    tables = (scores_of(runs, kind) for kind in ("along", "exact"))
    plain = (table[~table["method"].str.endswith("+app")] for table in tables)
    leads = sequence_leads(*plain)
    lost = leads[(leads["right after"] > 0) & (leads["at the end"] <= 0)]
    counts = lost[["method", "model"]].value_counts()
    finding = "No edit is undone by later ones"
    if len(counts):
        method, model = map(str, counts.index[0])
        finding = f"Later edits undo {counts.iloc[0]} edits of {method_label(method)} on {model}"
        finding += f", {counts.iloc[1:].sum()} of all others"
    return figures.sequence_lines(leads, finding=finding, caption=_caption(runs, "sequential"))


@_stored(
    "06_sampled",
    title="IFR against CKP by sampling",
    needs=("sampled", "chains"),
    when=partial(_sequence, kind="sampled"),
)
def sampled(runs: Sequence[Run], *, mode: str = "sequential") -> Figure:
    """IFR against CKP, both from sampled responses."""
    from helpers.thinkedit import figures, technique_tables
    from helpers.thinkedit.stored_scores import evaluation

    found = evaluation(tuple(runs), estimator="sampled", modes=(mode,))
    table = technique_tables.technique_table(found, mode=mode)
    how = {"finding": _against_memit(found, mode), "caption": _caption(runs, mode, kind="sampled")}
    return figures.recovery_against_preservation(table, **how)


def _split(runs: Sequence[Run], *modes: str) -> tuple[Evaluation, Evaluation]:
    """Exact metrics of the methods without and with APP."""
    from helpers.thinkedit.known import BY_RANK, DEFAULT
    from helpers.thinkedit.report_tables import split_app
    from helpers.thinkedit.stored_scores import evaluation

    rule = DEFAULT if all(map(is_recalled, runs)) else BY_RANK
    return split_app(evaluation(tuple(runs), modes=modes, rule=rule))


def _plain(runs: Sequence[Run], mode: str) -> Evaluation:
    return _split(runs, mode)[0]


def _against_memit(found: Evaluation, mode: str) -> str:
    """Which differences from MEMIT Holm's correction leaves."""
    from helpers.editing.editors import method_label
    from helpers.results.text import INCONCLUSIVE
    from helpers.thinkedit.technique_tables import against_method, difference_table

    tests = difference_table(against_method(found, "memit", mode=mode))
    left = tests[tests["Holm"] != INCONCLUSIVE]
    rows = left[["model", "method", "measure", "Holm"]].itertuples(index=False)
    named = [
        f"{method_label(method)} has {how} {what} ({model})" for model, method, what, how in rows
    ]
    finding = f"Differences from MEMIT left after correction: {len(left)} of {len(tests)}"
    return "; ".join([finding, *named])


def _caption(runs: Sequence[Run], mode: str, *, kind: str = "exact") -> str:
    from helpers.thinkedit.stored_scores import caption, scores_of

    return caption(scores_of(runs, kind), f"{kind}, {mode}")


def _changed(runs: Sequence[Run], pairs: Pairs, *, mode: str, what: str) -> Figure:
    """Paired differences, and how many of them chance does not explain."""
    from helpers.results.text import INCONCLUSIVE
    from helpers.thinkedit import change_figures, technique_tables

    changes = technique_tables.changes(pairs)
    shown = [run for run in runs if run.about.source["model"] in set(changes["model"])]
    caption = _caption(shown, mode)
    sure = int((changes["verdict"] != INCONCLUSIVE).sum())
    finding = f"{what}: {sure} of {len(changes)} changes are more than chance explains"
    return change_figures.paired_changes(changes, finding=finding, caption=caption)
