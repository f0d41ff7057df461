"""Edits that a model can be asked about: all are tokenised before the first of them is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from helpers import UserError
from helpers.models.language_model import LanguageModel
from helpers.records import Usable
from helpers.scoring.answers import tokenised
from helpers.scoring.naming import Aliases
from helpers.thinkedit.edits import Edit
from helpers.thinkedit.grow.language import answer_prompt
from helpers.thinkedit.knowgic import edits_file, usable_edits
from helpers.thinkedit.probes import Probe, kinds_of, negations_of, probes_of, request_of
from helpers.thinkedit.scores import questions_of


def load_usable(
    language_model: LanguageModel, layout: str = "2025-06", *, skip_bad: bool = False
) -> Usable[Edit]:
    """``load_edits`` for a model: the edits by their place in the file.

    What is left out is no rival or neighbour of other edits, either.

    Args:
        language_model: what will be asked.
        layout: as for ``load_edits``.
        skip_bad: leave out records that break the schema and edits that cannot be asked about.

    Raises:
        UserError: such records, by file, or none is left; and the errors of ``load_edits``.
    """
    path = edits_file(layout)
    found = askable(language_model, usable_edits(path), _alone, where=f"{path}, ")
    return found.checked(skip_bad=skip_bad)


def askable(
    language_model: LanguageModel,
    edits: Usable[Edit],
    probes: Callable[[Edit], Sequence[Probe]],
    aliases: Aliases | None = None,
    *,
    where: str = "",
) -> Usable[Edit]:
    """The edits that this model can be asked about, and what is wrong with the others.

    Args:
        language_model: the model.
        edits: to look at.
        probes: what is asked about an edit.
        aliases: other names that count.
        where: before each message.
    """

    def ask(_: int, edit: Edit) -> Edit:
        try:
            tokenised(language_model, questions_of(probes(edit), aliases or {}))
        except ValueError as error:
            raise UserError(f"{where}case_id {edit.case_id}: {error}") from error
        return edit

    return edits.through(ask)


def _alone(edit: Edit) -> list[Probe]:
    """All that is asked about an edit as if there were no other, for every estimator."""
    kinds = kinds_of([edit])
    request_of(edit, kinds)
    responses = [
        Probe(edit.case_id, "response", item, answer_prompt(fact.question), fact.object)
        for item, fact in enumerate(edit.facts)
    ]
    text = Probe(edit.case_id, "text", 0, edit.subject, edit.new)
    return [*probes_of(edit, [edit], kinds), *negations_of(edit), *responses, text]
