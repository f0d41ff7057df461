"""What a set of PEAK records holds, whether it contradicts itself, and what its construction lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from helpers.peak.construction.build import mentions
from helpers.peak.records import PeakRecord, PeakWarning, find_anomalies
from helpers.results.archive import Run
from helpers.results.figure import figure
from helpers.results.style import HATCHES, MARKERS, PALETTE, plain, told, use_style
from helpers.triples.graph import Graph
from helpers.triples.sources import packaged_relations
from helpers.triples.templates import INVERSE, PromptTemplates

MAIN = "packaged_smollm2-135m"
_NO_FAULT = ("prompt is a question",)  # a wording of ours, not a contradiction
_construction = partial(figure, of="construction", main=MAIN)


def validation_report(records: Sequence[PeakRecord]) -> list[PeakWarning]:
    """Contradictions in records: those known from the official files, and stricter ones.

    Next to ``find_anomalies``: an edit prompt that gives o* away, and a locality prompt about the
    record's own subject. Empty for everything that ``build_counterfactual`` and ``build_temporal``
    make.
    """
    found = [w for w in find_anomalies(records) if w.kind not in _NO_FAULT]
    for record in records:
        if mentions(record.edit_prompt, record.target_new):
            found.append(
                PeakWarning(record.case_id, "edit prompt gives o* away", record.target_new)
            )
        for prompt, _ in record.locality:
            if prompt in (record.edit_prompt, *record.paraphrases):
                found.append(PeakWarning(record.case_id, "locality prompt in scope", prompt))
    return found


def linked_share(records: Sequence[PeakRecord], graph: Graph) -> tuple[int, int]:
    """How many hard false answers have a direct link with o*, and how many there are.

    The paper asks for direct links; ``link_steps=2`` also takes shared neighbours where they are too
    few. Labels that several entities bear count if any of these is linked.
    """
    named: dict[str, set[str]] = defaultdict(set)
    for entity in graph.entities.values():
        named[entity.label].add(entity.id)
    direct = 0
    for record in records:
        targets = named[record.target_new]
        near = set().union(*(graph.neighbours.get(target, ()) for target in targets))
        direct += sum(not near.isdisjoint(named[answer]) for answer in record.hard_false)
    return direct, sum(len(record.hard_false) for record in records)


def lookalikes(records: Sequence[PeakRecord]) -> list[tuple[int, str, str]]:
    """Correct and false answers of one record that are spelled alike: (case_id, correct, false).

    No contradiction by name, but some are the same thing under two spellings (Labor Day, Labour
    Day). Alike: difflib's ratio, of the labels without regard to case, is 0.85 or more.
    """
    return [
        (record.case_id, correct, false)
        for record in records
        for correct in record.correct
        for false in (*record.hard_false, *record.random_false)
        if SequenceMatcher(None, correct.casefold(), false.casefold()).ratio() >= 0.85
    ]


def relation_names(relations: Iterable[str]) -> dict[str, str]:
    """Relations in words, where the packaged facts have a word for them; inverses are marked."""
    known = packaged_relations()
    names = {}
    for relation in relations:
        own = relation.removeprefix(INVERSE)
        label = known[own]["label"] if own in known else own.strip("<>")
        names[relation] = label if own == relation else f"{label} (inverse)"
    return names


def template_table(
    templates: Mapping[str, PromptTemplates], relations: Mapping[str, str]
) -> pd.DataFrame:
    """Relations with a cloze and a question, or two clozes (PEAK, Tables 6 and 7).

    Args:
        templates: wordings by relation.
        relations: the relations to show, with their names in words.
    """
    rows = []
    for relation, label in relations.items():
        clozes, asking = templates[relation].clozes, templates[relation].questions
        shown = [*clozes[:1], *(asking or clozes[-1:])[:1]]
        rows.append((label, "; ".join(f"“{text}”" for text in shown)))
    return pd.DataFrame(rows, columns=["relation", "templates"]).set_index("relation")


def example_table(record: PeakRecord, *, shown: int = 4) -> pd.DataFrame:
    """One record part by part (PEAK, Table 1)."""

    def some(values: Sequence[str]) -> str:
        rest = len(values) - shown
        return ", ".join(values[:shown]) + (f", … ({rest} more)" if rest > 0 else "")

    rows = [
        ("(s, r)", f"({record.subject}, {record.relation})"),
        ("O", some(record.correct)),
        ("o*", record.target_new),
        ("p", record.edit_prompt),
        *(("paraphrase", prompt) for prompt in record.paraphrases),
        *(("locality", f"{prompt} → {answer}") for prompt, answer in record.locality[:shown]),
        ("O_h", some(record.hard_false)),
        ("O_r", some(record.random_false)),
    ]
    return pd.DataFrame(rows, columns=["part", "text"]).set_index("part")


@_construction(
    "02_funnel", title="Facts lost at each step of PEAK's construction", needs=("funnel",)
)
def construction_funnel(run: Run) -> Figure:
    """Facts left after each step, one panel per set of records, on a logarithmic scale."""
    use_style()
    funnels = {str(k): part for k, part in run.tables["funnel"].groupby("set", sort=False)}
    rows = max(map(len, funnels.values()))
    most = max(part["left"].max() for part in funnels.values())
    drawn, panels = plt.subplots(
        1, len(funnels), figsize=(7.2, 0.32 * rows + 1.1), sharex=True, squeeze=False
    )
    for index, (axes, (name, part)) in enumerate(zip(panels[0], funnels.items(), strict=True)):
        places = np.arange(len(part))[::-1]
        axes.barh(
            places,
            part["left"],
            **{"color": PALETTE[index], "hatch": HATCHES[index]},
            **{"edgecolor": "black", "linewidth": 0.5},
        )
        for place, count in zip(places, part["left"], strict=True):
            axes.text(max(count, 1) * 1.15, place, f"{count:,}", va="center", fontsize=7)
        axes.set_yticks(places, part["step"], fontsize=7)
        axes.set_xscale("log")
        axes.set_xlim(1, 12 * most)
        axes.grid(axis="y", visible=False)
        axes.set_title(name, loc="left")
    ends = {name: (part["left"].iloc[-1], part["left"].iloc[0]) for name, part in funnels.items()}
    become = [f"{n:,} of {all_:,} facts become {name} records" for name, (n, all_) in ends.items()]
    note = f"{_made_of(run)}\nFacts left after each step, log scale"
    return told(drawn, ", ".join(become), note)


@_construction("02_known", title="What the model knows, per relation", needs=("filter",))
def known_by_relation(run: Run) -> Figure:
    """Share of correct answers that the model knows, per relation, with every record as a dot."""
    use_style()
    table = run.tables["filter"]
    shares = table.assign(share=100 * table["correct_kept"] / table["correct"])
    order = shares.groupby("name")["share"].mean().sort_values()
    drawn, axes = plt.subplots(figsize=(7.2, 0.155 * len(order) + 1.1))
    places = {name: place for place, name in enumerate(order.index)}
    for index, (lost, label) in enumerate([(False, "record kept"), (True, "record filtered out")]):
        part = shares[(shares["step"] != "") == lost]
        look: dict[str, Any] = {"color": PALETTE[index], "marker": MARKERS[index], "label": label}
        look |= {"alpha": 0.55, "linewidth": 0, "s": 14}
        axes.scatter(part["share"], part["name"].map(places), **look)
    means: dict[str, Any] = {"marker": "|", "s": 60, "color": "black", "label": "mean", "zorder": 3}
    axes.scatter(order.to_numpy(), range(len(order)), **means)
    axes.set_yticks(range(len(order)), map(plain, order.index), fontsize=7)
    axes.set_ylim(-0.7, len(order) - 0.3)
    axes.set_xlabel("correct answers the model knows [%]")
    axes.grid(axis="x", visible=True)
    axes.legend(loc="lower right")
    fewer = int((order < 50).sum())
    finding = f"In {fewer} of {len(order)} relations the model knows less than half of the correct answers"
    note = (
        f"{_made_of(run)}\nOne dot a record, n = {len(shares)}; known: the filter keeps the answer"
    )
    return told(drawn, finding, note)


def _made_of(run: Run) -> str:
    """What a run's tables are of: facts, model and rule."""
    source = run.about.source
    return (
        f"{source['facts']} facts, {source['model']}, {source['dtype']} on {source['device']},"
        f" rule {source['rule']}"
    )
