"""What a set of PEAK records holds, and whether it contradicts itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher

import pandas as pd

from helpers.peak.anomalies import PeakWarning, find_anomalies
from helpers.peak.construction.record_prompts import mentions
from helpers.peak.records import counts
from helpers.peak.schema import PeakRecord
from helpers.triples.graph import Graph
from helpers.triples.sources import packaged_relations
from helpers.triples.templates import INVERSE, PromptTemplates

_NO_FAULT = ("prompt is a question",)  # a wording of ours, not a contradiction


def validation_report(records: Sequence[PeakRecord]) -> list[PeakWarning]:
    """Contradictions in records: those known from the official files, and stricter ones.

    Besides ``find_anomalies``: an edit prompt that gives o* away, and a locality prompt about the
    record's own subject. Empty for everything that ``build_counterfactual`` and ``build_temporal``
    make.
    """
    contradictions = [w for w in find_anomalies(records) if w.kind not in _NO_FAULT]
    for record in records:
        if mentions(record.edit_prompt, record.target_new):
            contradictions.append(
                PeakWarning(record.case_id, "edit prompt gives o* away", record.target_new)
            )
        for prompt, _ in record.locality:
            if prompt in (record.edit_prompt, *record.paraphrases):
                contradictions.append(
                    PeakWarning(record.case_id, "locality prompt in scope", prompt)
                )
    return contradictions


def linked_share(records: Sequence[PeakRecord], graph: Graph) -> tuple[int, int]:
    """How many hard false answers have a direct link with o*, and how many there are.

    The paper asks for direct links; ``link_steps=2`` lets shared neighbours in where they are too
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


def lookalikes(records: Sequence[PeakRecord], *, ratio: float = 0.85) -> list[tuple[int, str, str]]:
    """Correct and false answers of one record that are spelled alike: (case_id, correct, false).

    No contradiction by name, but some are the same thing under two spellings (Labor Day, Labour
    Day). ``ratio`` is difflib's, of the labels without regard to case.
    """
    return [
        (record.case_id, correct, false)
        for record in records
        for correct in record.correct
        for false in (*record.hard_false, *record.random_false)
        if SequenceMatcher(None, correct.casefold(), false.casefold()).ratio() >= ratio
    ]


def statistics_table(sets: Mapping[str, Sequence[PeakRecord]]) -> pd.DataFrame:
    """Counts of each set as in the paper's Table 2: one row per count, one column per set."""
    columns = {name: counts(records) for name, records in sets.items()}
    return pd.DataFrame(columns).rename_axis("count")


def relation_names(relations: Iterable[str]) -> dict[str, str]:
    """Relations in words, where the packaged facts have a word for them; inverses are marked."""
    known = packaged_relations()
    names = {}
    for relation in relations:
        plain = relation.removeprefix(INVERSE)
        label = known[plain].label if plain in known else plain.strip("<>")
        names[relation] = label if plain == relation else f"{label} (inverse)"
    return names


def template_table(
    templates: Mapping[str, PromptTemplates], relations: Mapping[str, str], *, wordings: int = 2
) -> pd.DataFrame:
    """Relations with some of their wordings (PEAK, Tables 6 and 7).

    Args:
        relations: the relations to show, with their names in words.
        wordings: how many; the last one shown is a question where there is one.
    """
    rows = []
    for relation, label in relations.items():
        own_templates = templates[relation]
        shown = [
            *own_templates.clozes[: wordings - 1],
            *(own_templates.questions or own_templates.clozes[-1:])[:1],
        ]
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
