"""Scores of probes: exact log-probabilities, and shares of sampled responses that name the object.

Tables hold numbers and indices, no text. Graphs are scored ``under`` what editors returned. For probes these
are ``model_edits``, and ``owners`` give for each the index of its own (-1, the default: the unedited
model). ``aliases`` are other names that count.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from helpers.editing.edit import Edit
from helpers.models import LanguageModel
from helpers.records import comparable
from helpers.results.evaluation import CaseEdits, with_owners
from helpers.scoring.answers import Question, exclusive, score_answers
from helpers.scoring.naming import Aliases, log_naming, mentions, names_of
from helpers.scoring.responses import Sampling, sample_responses, uses_chat
from helpers.thinkedit.grow.language import answer_prompt
from helpers.thinkedit.knowgic import EditedGraph
from helpers.thinkedit.metrics import consistency, fluency, inverse_document_frequencies
from helpers.thinkedit.probes import Probe

# By estimator; raise a number when what it scores, or how, changes.
SCORING_VERSION = {"exact": 4, "sampled": 3, "texts": 2}
ESTIMATORS = tuple(SCORING_VERSION)
ANSWER_SAMPLING = Sampling(max_new_tokens=24, stop="\n")
TEXT_SAMPLING = Sampling(max_new_tokens=60, chat=False)
EXACT_COLUMNS = (
    "case_id", "form", "item", "original_sum", "original_tokens", "original_named", "other_sum",
    "other_tokens", "other_named", "rival", "rival_sum",
)  # fmt: skip


def exact_scores(
    lm: LanguageModel,
    probes: Sequence[Probe],
    aliases: Aliases,
    model_edits: Sequence[Edit] | None = None,
    owners: Sequence[int] | None = None,
) -> pd.DataFrame:
    """Teacher-forced log-probabilities of every probe's answers, a row per probe.

    ``original_sum`` and ``other_sum`` (natural logarithm) are of the answers as they are written, with their
    token counts; ``original_named`` and ``other_named`` of any accepted name; ``rival`` and ``rival_sum`` are
    the highest per token and as a whole among the rivals. NaN without rivals or without other.
    """
    questions = questions_of(probes, aliases)
    scores = score_answers(lm, questions, model_edits, owners)
    rows = []
    for probe, (_, group) in zip(probes, scores.groupby("question", sort=True), strict=True):
        original_names, other_names = _names_of_objects(probe, aliases)
        first_rival = len(original_names) + len(other_names)
        rivals = group.iloc[first_rival:]
        rows.append(
            [
                probe.case_id,
                probe.form,
                probe.item,
                *_scores_of_names(lm, original_names, group.iloc[: len(original_names)]),
                *_scores_of_names(lm, other_names, group.iloc[len(original_names) : first_rival]),
                rivals["mean"].max(),
                rivals["sum"].max(),
            ]
        )
    return pd.DataFrame(rows, columns=list(EXACT_COLUMNS))


def questions_of(probes: Sequence[Probe], aliases: Aliases) -> list[Question]:
    """A question per probe: its accepted names, those of the other object, its rivals."""
    questions = []
    for probe in probes:
        original_names, other_names = _names_of_objects(probe, aliases)
        answers = (*original_names, *other_names, *probe.rivals)
        questions.append(Question(probe.prompt, answers))
    return questions


def _names_of_objects(probe: Probe, aliases: Aliases) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Accepted names of the original object, and of the other one."""
    other_names = () if probe.other is None else names_of(probe.other, aliases)
    return names_of(probe.original, aliases), other_names


def _scores_of_names(
    lm: LanguageModel, names: tuple[str, ...], scores: pd.DataFrame
) -> tuple[float, float, float]:
    """The first name's sum and number of tokens, and the logarithm for any name; NaN without names."""
    if not names:
        return np.nan, np.nan, np.nan
    sums = scores["sum"].to_numpy()
    return sums[0], scores["tokens"].iloc[0], log_naming(sums[exclusive(lm, names)])


def sampled_scores(
    lm: LanguageModel,
    edits: Sequence[EditedGraph],
    aliases: Aliases,
    under: CaseEdits = None,
    *,
    n: int,
    sampling: Sampling,
) -> pd.DataFrame:
    """How many sampled responses to each fact's question name its object, and how many the new one.

    A row is a (case_id, item); of its ``n`` responses (the paper: five) ``hits`` name the fact's object and
    ``new_hits`` the edit's new one.
    """
    model_edits, owners_of_edits = with_owners(under, len(edits))
    # Each edit's questions once, in the order in which they are first asked.
    questions = list(
        dict.fromkeys(
            (index, fact.question) for index, edit in enumerate(edits) for fact in edit.facts
        )
    )
    chat = uses_chat(lm, sampling)
    prompts = [question if chat else answer_prompt(question) for _, question in questions]
    prompt_owners = [owners_of_edits[index] for index, _ in questions]
    responses = sample_responses(lm, prompts, model_edits, prompt_owners, n=n, sampling=sampling)
    texts_by_question = dict(zip(questions, responses, strict=True))
    rows = []
    for index, edit in enumerate(edits):
        new_names = names_of(edit.new, aliases)
        for item, fact in enumerate(edit.facts):
            texts = texts_by_question[index, fact.question]
            names = names_of(fact.object, aliases)
            hits = sum(mentions(text, names) for text in texts)
            new_hits = sum(mentions(text, new_names) for text in texts)
            rows.append((edit.case_id, item, hits, new_hits, n))
    return pd.DataFrame(rows, columns=["case_id", "item", "hits", "new_hits", "n"])


def text_scores(
    lm: LanguageModel,
    edits: Sequence[EditedGraph],
    universe: Sequence[EditedGraph],
    under: CaseEdits = None,
    *,
    n: int,
    sampling: Sampling,
) -> pd.DataFrame:
    """Mean ``fluency_averaged`` (bits) and ``consistency`` (cosine) of ``n`` texts about each edit's subject.

    Consistency is with a reconstruction: the graph's facts about the subject, the new object in its place.
    """
    idf = inverse_document_frequencies(_reference(edit) for edit in universe)
    subjects = [edit.subject for edit in edits]
    model_edits, owners = with_owners(under, len(edits))
    texts_by_edit = sample_responses(lm, subjects, model_edits, owners, n=n, sampling=sampling)
    rows = []
    for edit, texts in zip(edits, texts_by_edit, strict=True):
        fluencies = [fluency(text) for text in texts]
        consistencies = [consistency(text, _reference(edit), idf=idf) for text in texts]
        rows.append((edit.case_id, np.mean(fluencies), np.mean(consistencies)))
    return pd.DataFrame(rows, columns=["case_id", "fluency_averaged", "consistency"])


def _reference(edit: EditedGraph) -> str:
    """The graph's facts about the edited subject, with the new object in the original one's place."""
    statements = []
    for fact in edit.facts:
        if comparable(fact.subject) == comparable(edit.subject):
            is_original = comparable(fact.object) == comparable(edit.original)
            statements.append(f"{fact.cloze} {edit.new if is_original else fact.object}.")
    return " ".join(statements)
