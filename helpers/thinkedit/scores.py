"""Scores of probes: exact log-probabilities, and shares of sampled responses that name the object.

Tables hold numbers and indices, no text. ``updates`` are edits to score under, ``owners`` give for each probe
or edit the index of its update (-1, the default: the unedited model); ``aliases`` are other names that count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from helpers.editing.update import Update
from helpers.models import LanguageModel
from helpers.records import comparable
from helpers.scoring.answers import Question, exclusive, score_answers
from helpers.scoring.naming import Aliases, log_naming, mentions, names_of
from helpers.scoring.responses import Sampling, sample_responses, uses_chat
from helpers.thinkedit.grow.language import answer_prompt
from helpers.thinkedit.knowgic import Edit
from helpers.thinkedit.metrics import consistency, fluency, inverse_document_frequencies
from helpers.thinkedit.probes import Probe

# By estimator; raise a number when what it scores, or how, changes.
SCORING_VERSION = {"exact": 4, "sampled": 3, "texts": 2}
ESTIMATORS = tuple(SCORING_VERSION)
ANSWERS = Sampling(max_new_tokens=24, stop="\n")
TEXTS = Sampling(max_new_tokens=60, chat=False)
EXACT_COLUMNS = (
    "case_id", "form", "item", "original_sum", "original_tokens", "original_named", "other_sum",
    "other_tokens", "other_named", "rival", "rival_sum",
)  # fmt: skip


def exact_scores(
    lm: LanguageModel,
    probes: Sequence[Probe],
    aliases: Aliases,
    updates: Sequence[Update] | None = None,
    owners: Sequence[int] | None = None,
) -> pd.DataFrame:
    """Teacher-forced log-probabilities of every probe's answers, a row per probe.

    ``original_sum`` and ``other_sum`` (natural logarithm) are of the answers as they are written, with their
    token counts; ``original_named`` and ``other_named`` of any accepted name; ``rival`` and ``rival_sum`` are
    the highest per token and as a whole among the rivals. NaN without rivals or without other.
    """
    questions = questions_of(probes, aliases)
    scores = score_answers(lm, questions, updates, owners)
    rows = []
    for probe, (_, group) in zip(probes, scores.groupby("question", sort=True), strict=True):
        row: list[Any] = [probe.case_id, probe.form, probe.item]
        for names in _asked(probe, aliases):
            part, group = group.iloc[: len(names)], group.iloc[len(names) :]
            if names:
                sums = part["sum"].to_numpy()
                named = log_naming(sums[exclusive(lm, names)])
                row += [sums[0], part["tokens"].iloc[0], named]
            else:
                row += [np.nan] * 3
        rows.append([*row, group["mean"].max(), group["sum"].max()])
    return pd.DataFrame(rows, columns=list(EXACT_COLUMNS))


def questions_of(probes: Sequence[Probe], aliases: Aliases) -> list[Question]:
    """A question per probe: its accepted names, those of the other object, its rivals."""
    asked = [(probe, *_asked(probe, aliases)) for probe in probes]
    return [Question(p.prompt, (*own, *other, *p.rivals)) for p, own, other in asked]


def _asked(probe: Probe, aliases: Aliases) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Accepted names of the original object, and of the other one."""
    other = () if probe.other is None else names_of(probe.other, aliases)
    return names_of(probe.original, aliases), other


def sampled_scores(
    lm: LanguageModel,
    edits: Sequence[Edit],
    aliases: Aliases,
    *,
    n: int,
    sampling: Sampling,
    updates: Sequence[Update] | None = None,
    owners: Sequence[int] | None = None,
) -> pd.DataFrame:
    """Of ``n`` sampled responses (the paper: five) to the question of each (case_id, item), how many name
    its object (``hits``), and the edit's new one (``new_hits``).
    """
    owner_of = [-1] * len(edits) if owners is None else list(owners)
    asked: dict[tuple[int, str], int] = {}
    for place, edit in enumerate(edits):
        for fact in edit.facts:
            asked.setdefault((place, fact.question), len(asked))
    chat = uses_chat(lm, sampling)
    prompts = [question if chat else answer_prompt(question) for _, question in asked]
    asked_of = [owner_of[place] for place, _ in asked]
    responses = sample_responses(lm, prompts, updates, asked_of, n=n, sampling=sampling)
    rows = []
    for place, edit in enumerate(edits):
        new = names_of(edit.new, aliases)
        for item, fact in enumerate(edit.facts):
            drawn = responses[asked[place, fact.question]]
            names = names_of(fact.object, aliases)
            hits = sum(mentions(text, names) for text in drawn)
            new_hits = sum(mentions(text, new) for text in drawn)
            rows.append((edit.case_id, item, hits, new_hits, n))
    return pd.DataFrame(rows, columns=["case_id", "item", "hits", "new_hits", "n"])


def text_scores(
    lm: LanguageModel,
    edits: Sequence[Edit],
    universe: Sequence[Edit],
    *,
    n: int,
    sampling: Sampling,
    updates: Sequence[Update] | None = None,
    owners: Sequence[int] | None = None,
) -> pd.DataFrame:
    """Mean ``fluency_averaged`` (bits) and ``consistency`` (cosine) of ``n`` texts about each edit's subject.

    Consistency is with a reconstruction: the graph's facts about the subject, the new object in its place.
    """
    idf = inverse_document_frequencies(_reference(edit) for edit in universe)
    subjects = [edit.subject for edit in edits]
    texts = sample_responses(lm, subjects, updates, owners, n=n, sampling=sampling)
    rows = []
    for edit, drawn in zip(edits, texts, strict=True):
        alike = [consistency(text, _reference(edit), idf=idf) for text in drawn]
        fluent = [fluency(text) for text in drawn]
        rows.append((edit.case_id, np.mean(fluent), np.mean(alike)))
    return pd.DataFrame(rows, columns=["case_id", "fluency_averaged", "consistency"])


def _reference(edit: Edit) -> str:
    own, original = comparable(edit.subject), comparable(edit.original)
    statements = (
        f"{fact.cloze} {edit.new if comparable(fact.object) == original else fact.object}."
        for fact in edit.facts
        if comparable(fact.subject) == own
    )
    return " ".join(statements)
