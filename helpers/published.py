"""The published tables by name: ours, made from stored results without a model, and the papers' numbers.

``python -m helpers table NAME`` prints one. An entry of ``TABLES`` names the stored runs that its table is
made of and the function that makes it; the notebooks show the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd

from helpers import UserError
from helpers.behaviour.agreement import app_price_table, by_state, scorer_table
from helpers.behaviour.doses import dose_table, doses_of
from helpers.behaviour.exam import ability_table
from helpers.comparison.measures import Rows, stored_rows
from helpers.comparison.tables import comparison_table, comparison_values
from helpers.costs.held_out_answers import held_out_table, unshown_note
from helpers.costs.leaks import leak_table
from helpers.costs.strength import matched_table
from helpers.costs.undo import undo_table
from helpers.costs.unshown_strength import unshown_strength_table
from helpers.counterfact.metrics import counterfact_table
from helpers.editing.editors import fairer, method_label, objectives
from helpers.gates.tables import audit_caption, gate_audit_table
from helpers.klob import tables as klob
from helpers.klob.metrics import edit_gains, layer_mass, locality_table, profile_twins
from helpers.klob.regret import regret_nulls_text, rule_regret_text
from helpers.lifelong.tables import lifelong_caption, lifelong_table
from helpers.peak.ablations import (
    by_label,
    coefficients_table,
    editors_with,
    fairer_editors,
    finished,
    sequence_metrics,
    studies_of,
    variant_metrics,
)
from helpers.peak.gates import gate_table
from helpers.peak.metrics import method_metrics, metric_interval
from helpers.peak.placebo import placebo_table
from helpers.peak.tables import (
    HARD_METRICS,
    MAIN_METRICS,
    Metrics,
    beside_paper,
    caption_of,
    editing_table,
    paper_setting,
    scores_of,
    unedited,
)
from helpers.records import check_choice, did_you_mean
from helpers.results.archive import Run, archive, runs_by_model
from helpers.results.notes import (
    AnyTable,
    ShownTable,
    as_shown,
    method_notes,
    training_notes,
    with_note,
)
from helpers.results.text import in_points
from helpers.thinkedit import tables as thinkedit

SEQUENTIAL = "sequential"  # ThinkEdit's mode in the paper's tables
# Columns that state what a row is of; the others are measures.
_KEYS = (
    "method",
    "source",
    "model",
    "locator",
    "layer chosen by",
    "tokens",
    "scorer",
    "metric",
    "edits",
    "records",
    "n",
    "data",
    "key",
    "layer",
    "given",
    "matched with",
    "at equal",
    "measure",
    "state",
    "subtask",
    "field",
    "set",
    "step",
    "edit",
    "answers",
    "information",
    "cases",
)


def _of_the_papers_data(run: Run) -> bool:
    """Whether a run is neither of a name of its own nor of what its model recalls."""
    return "@" not in run.name and not thinkedit.is_recalled(run)


@dataclass(frozen=True)
class PublishedTable:
    """A table by name.

    ``make`` gets, one after the other, the stored runs of the archive ``of`` whose names end in ``data``:
    the one of a model, or all where the table has several models (``several``).
    """

    title: str
    make: Callable[..., AnyTable]
    of: str = ""  # the archive; none: the table needs no stored run
    data: str = ""
    needs: tuple[str, ...] = ()  # tables, or kinds of parts, that a run must have
    when: Callable[[Run], bool] = _of_the_papers_data  # what else must be true of it
    several: bool = False
    caption: Callable[[Run], str] = lambda run: run.name


def published_table_named(
    name: str, *, model: str = "", measures: Sequence[str] = ()
) -> tuple[str, ShownTable]:
    """A table's title with what it was made of, and the table; ``measures`` are the columns to be kept."""
    if name not in TABLES:
        raise UserError(f"no table {name!r}{did_you_mean(name, TABLES)}; see helpers table --list")
    entry = TABLES[name]
    runs = _stored_runs(name, entry, model)
    table = as_shown(entry.make(*runs))
    captions = [entry.caption(run) for run in runs]
    return "\n".join([entry.title, *captions]), _with_measures(table, measures)


def tables_listed() -> list[str]:
    """A line for each table: its name and what it shows."""
    return [f"{name:20s} {entry.title}" for name, entry in TABLES.items()]


def _stored_runs(name: str, entry: PublishedTable, model: str) -> list[Run]:
    """The stored runs of a table, packaged models first; without ``model`` one run, or all."""
    if not entry.of:
        if model:
            raise UserError(f"{name}: the table is of no model; omit --model")
        return []
    stored_runs = [
        run
        for run in archive(entry.of).runs()
        if run.name.endswith(entry.data) and set(entry.needs) <= set(run.kinds) and entry.when(run)
    ]
    if not stored_runs:
        raise UserError(
            f"{name}: no run of {entry.of!r} is stored; publish one from its params file:"
            " python -m helpers publish PARAMS"
        )
    by_model = runs_by_model(stored_runs)
    model_names = list(by_model)
    if model:
        check_choice(name, "model", model, model_names)
        model_names = [model]
    elif not entry.several:
        model_names = model_names[:1]
    return [run for model_name in model_names for run in by_model[model_name]]


def _with_measures(shown: ShownTable, measures: Sequence[str]) -> ShownTable:
    """The table with the columns of some measures, by the beginnings of their titles."""
    if not measures:
        return shown
    table = shown.table
    if any(table.index.names):
        table = table.reset_index()
    keys = [column for column in table if str(column).split(",")[0] in _KEYS]
    titles = [str(column) for column in table if column not in keys]
    measure_columns: list[object] = []
    for measure in measures:
        fitting_titles = [t for t in titles if t.casefold().startswith(measure.casefold())]
        if not fitting_titles:
            hint = did_you_mean(measure, titles)
            raise UserError(f"no measure {measure!r}{hint}; there are {', '.join(titles)}")
        measure_columns += [title for title in fitting_titles if title not in measure_columns]
    return ShownTable(table[[*keys, *measure_columns]], shown.note)


def _beside(by_record: Metrics, papers: dict[str, pd.DataFrame], *notes: str) -> ShownTable:
    """Ours with intervals, and the paper's below each method."""
    shown = beside_paper(by_record, papers, metrics=MAIN_METRICS)
    table = shown.table.copy()
    for method, metrics in by_record.items():
        for column in table:
            metric = "LS" if column == "LS_held" else str(column)
            estimate = metric_interval(metric, metrics[metric])
            table.loc[(method, "ours"), column] = f"{in_points(estimate)} (n={estimate.n})"
    return with_note(ShownTable(table, shown.note), *notes)


def _success_and_damage(run: Run, *, paper_table: str) -> ShownTable:
    """A run's methods and its unedited model, next to one of PEAK's tables."""
    scores = scores_of(run)
    by_record = {**unedited(scores), **method_metrics(scores)}
    source = run.about.source
    papers = paper_setting(source["model"], source["dataset"], tables=[paper_table])
    notes = [*method_notes(run), unshown_note(by_record, source["model"])]
    return _beside(by_record, papers, *notes)


def _every_editor(*runs: Run, table_of: Callable[[Rows], AnyTable]) -> AnyTable:
    """A table of the comparison of editors, of the models that these runs are of."""
    models = {run.about.source["model"] for run in runs}
    return table_of({key: row for key, row in stored_rows().items() if key.model in models})


def _app_without_an_objective(run: Run) -> ShownTable:
    """APP of each editor without one of its objectives, on the records that all have."""
    metrics = variant_metrics(studies_of(run).scores)
    tables: dict[str, pd.DataFrame] = {}
    for editor in editors_with(run, "alpha", factor=0):
        tables |= by_label(finished(metrics, objectives(editor)))
    notes = [*training_notes(run), unshown_note(tables, run.about.source["model"])]
    return with_note(editing_table(tables, metrics=HARD_METRICS), *notes)


def _dose_slopes(run: Run) -> pd.DataFrame:
    slopes = dose_table(doses_of(run)).reset_index()
    return slopes.assign(method=slopes["method"].map(method_label))


def _abilities(run: Run) -> ShownTable:
    return with_note(ability_table(run), *training_notes(run))


def _gains_at_located_layers(run: Run) -> ShownTable:
    """Whether located mass follows the gain of edits of the same fact more than that of others."""
    gains = edit_gains(run.joined("edits"))
    mass = layer_mass(run.joined("layers"), gains.index)
    return klob.locality_text(locality_table(gains, mass, seed=0), profile_twins(mass))


def _recalled(*runs: Run, table_of: Callable[..., pd.DataFrame]) -> ShownTable:
    """A table of the graphs that models recall, each edit made alone."""
    without_app, _ = thinkedit.split_app(thinkedit.terms_of_runs(runs))
    return thinkedit.as_text(table_of(without_app, mode="independent"))


def _all_answers_as_targets(run: Run) -> ShownTable:
    """An ablation's fairer baselines with and without APP, next to PEAK's Table 5."""
    variants = [variant for editor in fairer_editors(run) for variant in fairer(editor)]
    by_record = by_label(finished(variant_metrics(studies_of(run).scores), variants))
    papers = paper_setting("llama2-7b", "peak-cf", tables=["peak_table_5"])  # its only model
    notes = [*training_notes(run), unshown_note(by_record, run.about.source["model"])]
    return _beside(by_record, papers, *notes)


def _sequences_by_length(run: Run) -> ShownTable:
    """An ablation's sequences by their number of edits; the paper has none."""
    by_record = {
        f"{key.method} after {key.edits}": metrics
        for key, metrics in sequence_metrics(studies_of(run)).items()
    }
    shown = _beside(by_record, {}, "one sequence of edits a method")
    table = shown.table.droplevel("source")
    return ShownTable(table, shown.note)


def _unshown_at_equal_strength(held_out: Run) -> ShownTable:
    return unshown_strength_table(held_out, archive("matched").get(held_out.name))


def _noise_floor(placebo_run: Run) -> AnyTable:
    """A placebo's scores next to those of the run it belongs to."""
    edited_run = archive("peak").get(placebo_run.name)
    table = placebo_table(
        method_metrics(scores_of(edited_run)), method_metrics(scores_of(placebo_run))
    )
    return with_note(table, *method_notes(placebo_run))


def _by_scorer(run: Run, *, table_of: Callable[..., AnyTable]) -> AnyTable:
    return with_note(table_of(by_state(run)), *training_notes(run))


def _locating_criteria(run: Run, *, granularity: str) -> ShownTable:
    similarities, sentences = run.joined("similarities"), run.joined("sentences")
    return klob.criteria_text(similarities, sentences, granularity=granularity)


def _neurons_by_chance(run: Run) -> AnyTable:
    null = run.joined("null")
    tables = []
    for subtask in ("consistency", "relevance"):
        table = klob.null_text(
            null, subtask=subtask, granularity="neuron", share=klob.DEFAULT_SHARE
        )
        tables.append(table.assign(subtask=subtask))
    return pd.concat(tables)


def _techniques(*runs: Run, paper_table: str) -> ShownTable:
    """IFR and CKP after sequences of edits, and below them the paper's, which pools."""
    without_app, _ = thinkedit.split_app(thinkedit.terms_of_runs(runs))
    ours = thinkedit.as_text(thinkedit.technique_table(without_app, mode=SEQUENTIAL))
    return _below(ours, thinkedit.paper_techniques(paper_table))


def _chain_lengths(*runs: Run) -> ShownTable:
    """IFR after sequences of edits by number of steps, and below it the paper's."""
    without_app, _ = thinkedit.split_app(thinkedit.terms_of_runs(runs))
    ours = thinkedit.as_text(thinkedit.length_table(without_app, mode=SEQUENTIAL))
    return _below(ours, thinkedit.paper_lengths())


def _below(ours: ShownTable, papers: pd.DataFrame) -> ShownTable:
    """Our rows and, below them, the paper's numbers of the same columns."""
    paper_texts = papers.copy()
    for column in papers.select_dtypes("number"):
        paper_texts[column] = papers[column].map("{:.3f}".format).replace("nan", "–")
    tables = [ours.table.assign(source="ours"), paper_texts.assign(source="paper, pooled")]
    rows = pd.concat(tables, ignore_index=True)
    columns = ["source", *(column for column in rows if column != "source")]
    return ShownTable(rows[columns].fillna("–"), ours.note)


_peak = partial(PublishedTable, of="peak", data="_peak-cf", caption=caption_of)
_ablation = partial(PublishedTable, of="ablations", data="_peak-cf")
_scorer = partial(PublishedTable, of="scorers", data="_peak-cf", caption=caption_of)
_klob = partial(PublishedTable, of="klob", data="_klob-mini", caption=klob.made_of)
_regret = partial(PublishedTable, of="regret", data="_klob-mini", needs=("edits", "layers"))
_thinkedit = partial(PublishedTable, of="thinkedit", several=True)

TABLES = {
    "peak_table_3": _peak(
        "PEAK-CF: success of edits and damage to the fact's other answers (PEAK, Table 3)",
        partial(_success_and_damage, paper_table="peak_table_3"),
    ),
    "peak_table_4": _peak(
        "PEAK-T, the temporal set (PEAK, Table 4)",
        partial(_success_and_damage, paper_table="peak_table_4"),
        data="_peak-t",
    ),
    "peak_table_5": _ablation(
        "All correct answers as targets, next to APP (PEAK, Table 5)", _all_answers_as_targets
    ),
    "peak_table_8": _ablation(
        "APP's coefficients (PEAK, Table 8)", partial(coefficients_table, paper_model="llama2-7b")
    ),
    "peak_table_9": _peak(
        "PEAK-CF next to the paper's LLaMA-2 13B (PEAK, Table 9)",
        partial(_success_and_damage, paper_table="peak_table_9"),
    ),
    "editors": _peak(
        "Every editor on every measure: PEAK-CF, generated text, what each model recalls, ability, costs",
        partial(_every_editor, table_of=comparison_table),
        several=True,
    ),
    "editors_values": _peak(
        "The same as numbers, a row an estimate; fractions in the place of percent",
        partial(_every_editor, table_of=comparison_values),
        several=True,
    ),
    "counterfact": PublishedTable(
        "CounterFact's metrics, next to GPT-2 XL (ROME, Table 4)",
        counterfact_table,
        of="counterfact",
        data="_counterfact-val",
        caption=caption_of,
    ),
    "placebo": _peak(
        "The noise floor: each record under its own edit and under another record's",
        _noise_floor,
        of="placebo",
    ),
    "gates": _peak("After which prompts edits act that change no weights", gate_table),
    "gate_audit": PublishedTable(
        "Which keys tell a fact's paraphrases from locality prompts, before any edit",
        gate_audit_table,
        of="gates",
        several=True,
        caption=audit_caption,
    ),
    "sequences": _ablation(
        "Edits one upon the other: the records edited so far, after n edits", _sequences_by_length
    ),
    "objectives": _ablation(
        "What APP loses without one of its objectives (PEAK, Figure 3)",
        _app_without_an_objective,
        caption=caption_of,
    ),
    "doses": _ablation(
        "What a doubled hyperparameter changes: slope per doubling, with its interval",
        _dose_slopes,
        data="_peak-cf@doses",
        when=lambda run: True,
        caption=caption_of,
    ),
    "abilities": _ablation(
        "What edits do to general abilities: perplexity and right answers, before → after",
        _abilities,
        data="_peak-cf@exam",
        when=lambda run: True,
        caption=caption_of,
    ),
    "scorers": _scorer(
        "The same edits under every scorer, in percent", partial(_by_scorer, table_of=scorer_table)
    ),
    "app_price": _scorer(
        "What APP costs: success without and with it, in percent",
        partial(_by_scorer, table_of=app_price_table),
    ),
    "held_out": _peak(
        "What APP protects of answers that its loss was shown, and of others, in points",
        held_out_table,
        of="held_out",
    ),
    "held_out_nats": _peak(
        "The same as changes of the answers' scores, in nats",
        partial(held_out_table, fractions=False),
        of="held_out",
    ),
    "matched": _peak(
        "Damage at equal strength: scaled updates next to APP and R-ROME",
        matched_table,
        of="matched",
    ),
    "unshown_strength": _peak(
        "Damage at equal strength to answers that APP was not shown",
        _unshown_at_equal_strength,
        of="held_out",
        when=lambda run: archive("matched").known(run.name) is not None,
    ),
    "leaks": _peak("What an edit does to other subjects of its relation", leak_table, of="leaks"),
    "undo": _peak("What returns when an edit is edited back", undo_table, of="undone"),
    "klob_table_1": PublishedTable(
        "Sizes of KLoB's files and of klob-mini (KLoB, Table 1)",
        partial(klob.size_table, "klob-mini"),
    ),
    "klob_criteria": _klob(
        "Locating methods by KLoB's three criteria, neurons; (paper): as the paper computes them",
        partial(_locating_criteria, granularity="neuron"),
    ),
    "klob_layers": _klob(
        "Locating methods by KLoB's three criteria, layers",
        partial(_locating_criteria, granularity="layer"),
    ),
    "klob_parameters": _klob(
        "Locating methods by KLoB's three criteria, single weights",
        partial(_locating_criteria, granularity="parameter"),
    ),
    "klob_locality": _klob(
        "Located mass and the gain of edits, layer by layer: the same fact's against other facts'",
        _gains_at_located_layers,
        needs=("edits", "layers"),
    ),
    "klob_nulls": _klob(
        "Neurons that sentences share, next to sentences dealt at random", _neurons_by_chance
    ),
    "klob_regret": _regret(
        "Does locating help editing? Gain lost where each rule names the layer, against the fact's best one",
        rule_regret_text,
    ),
    "klob_regret_nulls": _regret(
        "What a fact's own located layer gains over those of other facts, in nats per token",
        regret_nulls_text,
    ),
    "thinkedit_table_4": PublishedTable(
        "KnowGIC: chains by number of steps (ThinkEdit, Table 4)", thinkedit.chain_length_table
    ),
    "thinkedit_table_5": _thinkedit(
        "What is left of the old fact (IFR) and kept of others (CKP), next to Llama-3 (ThinkEdit, Table 5)",
        partial(_techniques, paper_table="thinkedit_table_5"),
    ),
    "thinkedit_table_6": _thinkedit(
        "The same next to Qwen2.5 (ThinkEdit, Table 6)",
        partial(_techniques, paper_table="thinkedit_table_6"),
    ),
    "thinkedit_table_10": _thinkedit(
        "IFR by the chain's number of steps (ThinkEdit, Table 10)", _chain_lengths
    ),
    "thinkedit_recalled": _thinkedit(
        "IFR and CKP on the graphs that the models recall, each edit alone",
        partial(_recalled, table_of=thinkedit.technique_table),
        when=thinkedit.is_recalled,
    ),
    "thinkedit_deep": _thinkedit(
        "Share of edits that leave no chain (Definition 2), on the graphs that the models recall",
        partial(_recalled, table_of=thinkedit.deep_table),
        when=thinkedit.is_recalled,
    ),
    "lifelong": PublishedTable(
        "Edits in a row: every method of every stream at its last checkpoint",
        lifelong_table,
        of="lifelong",
        several=True,
        caption=lifelong_caption,
    ),
    "construction": PublishedTable(
        "Facts left after each step of making PEAK's sets from packaged triples",
        lambda run: run.tables["funnel"],
        of="construction",
        needs=("funnel",),
    ),
}
