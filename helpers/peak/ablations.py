"""What parts of APP do: variants of notebook 04 and their tables.

*figures/data/ablations/<model>_<dataset>* holds the studies, each stored as soon as it is finished:

- ``rome+app@neighbours=3``: scores before and after independent edits, by variant;
- ``rome+app after 10``: the same after ten sequential edits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from helpers.editing.editors import OBJECTIVES, SYMBOLS, Variant, fairer, objectives
from helpers.peak.findings import ByVariant
from helpers.peak.metrics import metrics_table
from helpers.peak.tables import caption_of, data_of, scores_of
from helpers.results.archive import Run, TableKey
from helpers.results.text import published_table


def studies(params: Mapping[str, Any]) -> list[Variant]:
    """The variants of every study, each once, from the parameters of notebook 04.

    ``editors`` are studied closely (PEAK, Figures 3 to 5, Table 8), ``fairer`` for Table 5; ``others``
    are beyond the paper.
    """
    close = params["editors"]
    variants = [v for editor in close for v in objectives(editor)]
    variants += [v for editor in params["fairer"] for v in fairer(editor)]
    for editor in close:
        for count in params["neighbours"]:
            variants.append(Variant(f"{editor}+app", "neighbours", float(count)))
    variants += [Variant(e + suffix) for e in params["others"] for suffix in ("", "+app")]
    for editor in close:
        for field in (*OBJECTIVES, "margin"):
            for value in params["margins" if field == "margin" else "factors"]:
                variants.append(Variant(f"{editor}+app", field, float(value), field != "margin"))
    return list(dict.fromkeys(variants))


@dataclass(frozen=True)
class Studies:
    """What is finished of one model's ablations on one data set."""

    run: Run
    scores: dict[str, pd.DataFrame]  # by variant
    sequences: dict[TableKey, pd.DataFrame]  # by method and number of edits

    def described(self, *tables: pd.DataFrame) -> str:
        """The caption with the number of records (case_id) that are behind these tables."""
        return caption_of(self.run, _first_records(tables))

    def data(self, *tables: pd.DataFrame) -> str:
        """``data_of`` the run, with the number of records that are behind these tables."""
        return data_of(self.run, _first_records(tables))


def _first_records(tables: Sequence[pd.DataFrame]) -> str:
    """How many of the first records are behind these tables, in words."""
    counts = sorted({table.reset_index()["case_id"].nunique() for table in tables}) or [0]
    fewer = f"{counts[0]}–" if len(counts) > 1 else ""
    return f"first {fewer}{counts[-1]} records"


def studies_of(run: Run) -> Studies:
    """A published run of ablations, study by study."""
    variants = variants_of(run)
    sequences = sequences_of(run)
    scores = scores_of(run, only=[*variants, *map(str, sequences)])
    return Studies(
        run=run,
        scores={name: scores[name] for name in variants},
        sequences={sequence: scores[str(sequence)] for sequence in sequences},
    )


def variants_of(run: Run) -> list[str]:
    """Names of variants with independent edits, in the order they were published."""
    return [key.method for key in run.keys if key.is_method]


def sequence_key(method: str, edits: int) -> TableKey:
    """The table of a sequence's scores after a number of edits: ``rome+app after 10``."""
    return TableKey("", method, edits=edits)


def sequences_of(run: Run) -> list[TableKey]:
    """A run's tables of sequences, in the order they were published."""
    return [key for key in run.keys if key.edits and not key.kind]


def editors_with(run: Run, field: str, *, factor: float | None = None) -> list[str]:
    """Editors with APP and a variant in this ``field``; if ``factor``, one that multiplies it by that."""
    variants = [Variant.parse(name) for name in variants_of(run)]
    editors = []
    for variant in variants:
        has_factor = factor is None or (variant.times and variant.value == factor)
        if variant.field == field and has_factor:
            editors.append(variant.editor)
    return [e for e in dict.fromkeys(editors) if Variant(f"{e}+app") in variants]


def fairer_editors(run: Run) -> list[str]:
    """Editors that were given all answers as targets, in either weighting."""
    variants = [Variant.parse(name) for name in variants_of(run)]
    editors = [v.editor for v in variants if v.method.endswith(("+all", "+all-sum"))]
    return list(dict.fromkeys(editors))


def variant_metrics(scores: Mapping[str, pd.DataFrame]) -> dict[Variant, pd.DataFrame]:
    """``metrics_table`` of every variant's stored scores."""
    return {Variant.parse(name): metrics_table(table) for name, table in scores.items()}


def finished(metrics: ByVariant, variants: Iterable[Variant]) -> dict[Variant, pd.DataFrame]:
    """Metrics of the variants that are at hand, in the order given, on the records with AFF in all."""
    measurable = {}
    for variant in variants:
        if variant in metrics:
            table = metrics[variant]
            measurable[variant] = table[table["AFF_hard"].notna()]
    if not measurable:
        return {}
    common = set.intersection(*(set(table.index) for table in measurable.values()))
    return {v: table.loc[[row in common for row in table.index]] for v, table in measurable.items()}


def by_label(metrics: ByVariant) -> dict[str, pd.DataFrame]:
    """Metrics by variant under the labels that tables and figures show."""
    return {variant.label: table for variant, table in metrics.items()}


def with_neighbours(metrics: ByVariant, editor: str) -> dict[Variant, pd.DataFrame]:
    """An editor's APP by the number of neighbours it is given, all of them last, on common records."""
    whole = Variant(f"{editor}+app")
    chosen = [v for v in metrics if v.method == whole.method and v.field == "neighbours"]
    return finished(metrics, [*sorted(chosen, key=lambda v: v.value), whole])


def coefficients_table(run: Run, *, paper_model: str) -> pd.DataFrame:
    """APP's coefficients by published method and the paper's (Table 8; the margin is Appendix B.2's)."""
    published = published_table("peak_table_8").query("model == @paper_model")
    wide = published.pivot(index="method", columns="metric", values="value")
    names = list(OBJECTIVES)
    rows = []
    for name in variants_of(run):
        variant = Variant.parse(name)
        app = run.about.settings[name].get("app")
        if variant.field or not app:
            continue
        rows.append((variant.label, "ours", *(f"{app[key]:g}" for key in (*names, "margin"))))
        theirs = "FT+APP" if variant.editor.startswith("ft") else variant.label
        if theirs in wide.index:
            numbers = (f"{value:g}" for value in wide.loc[theirs].reindex(names))
            rows.append((variant.label, f"paper ({paper_model})", *numbers, "2"))
    columns = ["method", "source", *(SYMBOLS[name] for name in (*names, "margin"))]
    return pd.DataFrame(rows, columns=columns).set_index(["method", "source"])


def sequence_metrics(stored: Studies) -> dict[TableKey, pd.DataFrame]:
    """Metrics of all edited records after n edits, shorter sequences first."""
    ordered = sorted(stored.sequences, key=lambda sequence: sequence.edits)
    return {sequence: metrics_table(stored.sequences[sequence]) for sequence in ordered}
