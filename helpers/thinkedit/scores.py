"""Scores of probes: exact log-probabilities, and shares of sampled responses that name the object.

No text leaves this module: tables hold numbers and the indices of edits and facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from helpers.editing.update import Update
from helpers.models.language_model import LanguageModel
from helpers.scoring.answers import Question, score_answers
from helpers.scoring.naming import Aliases, exclusive, log_naming, mentions, names_of
from helpers.scoring.responses import Sampling, sample_responses, uses_chat
from helpers.thinkedit.grow.language import answer_prompt
from helpers.thinkedit.knowgic import Edit
from helpers.thinkedit.metrics import consistency, fluency, inverse_document_frequencies
from helpers.thinkedit.probes import Probe

ESTIMATORS = ("exact", "negated", "sampled", "texts")
EXACTLY = ("exact", "negated")  # by log-probabilities
# Raise an estimator's when what it scores, or how, changes.
SCORING_VERSION = {"exact": 4, "negated": 1, "sampled": 2, "texts": 2}
ANSWERS = Sampling(max_new_tokens=24, stop="\n")
TEXTS = Sampling(max_new_tokens=60, chat=False)
EXACT_COLUMNS = (
    "case_id", "form", "item", "original_sum", "original_tokens", "original_named", "other_sum",
    "other_tokens", "other_named", "rival", "rival_sum",
)  # fmt: skip


def exact_scores(
    language_model: LanguageModel,
    probes: Sequence[Probe],
    aliases: Aliases,
    updates: Sequence[Update] | None = None,
    owners: Sequence[int] | None = None,
    *,
    progress: bool = False,
) -> pd.DataFrame:
    """Teacher-forced log-probabilities of every probe's answers, all in packed batches.

    Args:
        aliases: other names that count.
        updates: edits to score under.
        owners: for each probe the index of its update, -1 for the unedited model (default).

    Returns:
        One row per probe, in order: case_id, form, item; ``original_sum`` and ``other_sum``, sums of
        token log-probabilities (natural logarithm) of the answers as they are written, with their
        token counts; ``original_named`` and ``other_named``, log-probabilities of any accepted name
        (see ``helpers.scoring.naming``); ``rival`` and ``rival_sum``, the highest mean-token and the
        highest whole log-probability among the rivals as they are written. NaN without rivals or
        without other.
    """
    questions = questions_of(probes, aliases)
    scores = score_answers(language_model, questions, updates, owners, progress=progress)
    rows = []
    for probe, (_, group) in zip(probes, scores.groupby("question", sort=True), strict=True):
        row: list[Any] = [probe.case_id, probe.form, probe.item]
        for names in _asked(probe, aliases):
            part, group = group.iloc[: len(names)], group.iloc[len(names) :]
            row += _named(language_model, names, part)
        rows.append([*row, group["mean"].max(), group["sum"].max()])
    return pd.DataFrame(rows, columns=list(EXACT_COLUMNS))


def questions_of(probes: Sequence[Probe], aliases: Aliases) -> list[Question]:
    """A question per probe: its accepted names, those of the other object, its rivals."""
    asked = [(probe, *_asked(probe, aliases)) for probe in probes]
    return [Question(p.prompt, (*own, *other, *p.rivals)) for p, own, other in asked]


def sampled_scores(
    language_model: LanguageModel,
    edits: Sequence[Edit],
    aliases: Aliases,
    updates: Sequence[Update] | None = None,
    owners: Sequence[int] | None = None,
    *,
    n: int,
    sampling: Sampling,
    progress: bool = False,
) -> pd.DataFrame:
    """Count the sampled responses to every fact's question that name its object.

    Args:
        edits: whose facts to ask about.
        aliases: other names that count.
        updates: edits to respond under.
        owners: for each edit the index of its update, -1 for the unedited model (default).
        n: responses per question (the paper: five).

    Returns:
        For each (case_id, item): ``hits`` of ``n`` name the object, ``new_hits`` the edit's new one.
    """
    owner_of = [-1] * len(edits) if owners is None else list(owners)
    asked: dict[tuple[int, str], int] = {}
    for place, edit in enumerate(edits):
        for fact in edit.facts:
            asked.setdefault((place, fact.question), len(asked))
    chat = uses_chat(language_model, sampling)
    responses = sample_responses(
        language_model,
        [question if chat else answer_prompt(question) for _, question in asked],
        updates,
        [owner_of[place] for place, _ in asked],
        n=n,
        sampling=sampling,
        progress=progress,
    )
    rows = []
    for place, edit in enumerate(edits):
        new = names_of(edit.new, aliases)
        for item, fact in enumerate(edit.facts):
            drawn = responses[asked[place, fact.question]]
            names = names_of(fact.object, aliases)
            hits, new_hits = (sum(mentions(text, x) for text in drawn) for x in (names, new))
            rows.append((edit.case_id, item, hits, new_hits, n))
    return pd.DataFrame(rows, columns=["case_id", "item", "hits", "new_hits", "n"])


def text_scores(
    language_model: LanguageModel,
    edits: Sequence[Edit],
    universe: Sequence[Edit],
    updates: Sequence[Update] | None = None,
    owners: Sequence[int] | None = None,
    *,
    n: int,
    sampling: Sampling,
) -> pd.DataFrame:
    """Mean ``fluency_averaged`` (bits) and ``consistency`` (cosine) of ``n`` texts about each edit's subject.

    The reference text of consistency is a reconstruction: the graph's own facts about the subject, with
    the new object in place of the original one; those of the ``universe`` tell how common words are.
    """
    idf = inverse_document_frequencies(_reference(edit) for edit in universe)
    subjects = [edit.subject for edit in edits]
    texts = sample_responses(language_model, subjects, updates, owners, n=n, sampling=sampling)
    rows = []
    for edit, drawn in zip(edits, texts, strict=True):
        alike = [consistency(text, _reference(edit), idf=idf) for text in drawn]
        rows.append((edit.case_id, np.mean([fluency(text) for text in drawn]), np.mean(alike)))
    return pd.DataFrame(rows, columns=["case_id", "fluency_averaged", "consistency"])


def _asked(probe: Probe, aliases: Aliases) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Accepted names of the original object, and of the other one."""
    other = () if probe.other is None else names_of(probe.other, aliases)
    return names_of(probe.original, aliases), other


def _named(
    language_model: LanguageModel, names: Sequence[str], scores: pd.DataFrame
) -> tuple[float, float, float]:
    """Sum and tokens of the first name, and log-probability of any; NaN without names."""
    if not names:
        return np.nan, np.nan, np.nan
    sums = scores["sum"].to_numpy()
    named = log_naming(sums[exclusive(language_model, names)])
    return sums[0], scores["tokens"].iloc[0], named


def _reference(edit: Edit) -> str:
    own, original = edit.subject.casefold(), edit.original.casefold()
    statements = (
        f"{fact.cloze} {edit.new if fact.object.casefold() == original else fact.object}."
        for fact in edit.facts
        if fact.subject.casefold() == own
    )
    return " ".join(statements)
