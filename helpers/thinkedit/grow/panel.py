"""The panel at which a person curates: question, responses, triplets; accept, refine, prune, add.

>>> session = Session(fact, respondent, journal)
>>> CurationPanel(session)

Every decision is written to the session's journal before the next question is asked, so closing the
notebook loses nothing: running the cell again resumes at the same place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

import ipywidgets as widgets

from helpers.thinkedit.graph import Triplet
from helpers.thinkedit.grow.people import Decision, Review
from helpers.thinkedit.grow.pipeline import Session

_WIDE = widgets.Layout(width="98%")
_PART = widgets.Layout(width="28%")
_EXPLANATION = {
    "refine": "The object does not occur in the responses. Reword the question, correct the facts, "
    "accept a word of the responses as another name of the object, or discard them.",
    "prune": "Keep what is true, correct it where needed, add what is missing.",
}


class TripletRow(widgets.HBox):
    """One editable triplet, with a box to tick where it may be pruned."""

    def __init__(self, triplet: Triplet | None = None, *, prunable: bool = True) -> None:
        parts = (triplet.subject, triplet.relation, triplet.object) if triplet else ("", "", "")
        names = ("subject", "relation", "object")
        self.keep = widgets.Checkbox(value=True, indent=False, layout=widgets.Layout(width="2em"))
        self.parts = [
            widgets.Text(value=part, placeholder=name, layout=_PART)
            for part, name in zip(parts, names, strict=True)
        ]
        super().__init__([self.keep, *self.parts] if prunable else self.parts)

    @property
    def triplet(self) -> Triplet | None:
        """What the fields say; None when unticked or all empty.

        Raises:
            ValueError: a triplet with an empty part.
        """
        values = [part.value.strip() for part in self.parts]
        if not self.keep.value or not any(values):
            return None
        if not all(values):
            raise ValueError("a triplet has an empty part: fill it in or untick it")
        return Triplet(*values)


class CurationPanel(widgets.VBox):
    """Shows the session's pending review and sends the person's decision back."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.progress = widgets.IntProgress(max=session.settings.target_chains, layout=_WIDE)
        self.status = widgets.HTML()
        self.message = widgets.HTML()
        self.question = widgets.Text(description="Question", layout=_WIDE)
        self.responses = widgets.HTML()
        self.rows: list[TripletRow] = []
        self.accept = widgets.Button(button_style="primary")
        self.discard = widgets.Button(description="Discard")
        self.add = widgets.Button(description="Add a triplet", icon="plus")
        self.alias = widgets.Text(placeholder="another name of the object", layout=_PART)
        self.synonym = widgets.Button(description="Accept the name")
        self.accept.on_click(lambda _: self._decide(self._accepted))
        self.discard.on_click(lambda _: self._decide(lambda: Decision(discard=True)))
        self.synonym.on_click(lambda _: self._decide(self._named))
        self.add.on_click(lambda _: self._add_row())
        super().__init__(layout=_WIDE)
        self.add_class("curation-panel")
        self._show()

    def _show(self) -> None:
        """Redraw everything from the session's state."""
        growth, review = self._session.growth, self._session.pending
        self.progress.value = min(len(growth.chains), self.progress.max)
        self.status.value = escape(
            f"Round {growth.rounds}: {growth.graph.number_of_edges()} facts, "
            f"{len(growth.chains)} of {self.progress.max} chains, {len(growth.discarded)} discarded"
        )
        if review is None:
            self.rows = []
            self.message.value = f"<b>Finished:</b> {escape(growth.stopped)}."
            self.children = [self.progress, self.status, self.message]
            return
        self._fill(review)
        self._arrange(review)

    def _fill(self, review: Review) -> None:
        self.message.value = escape(_EXPLANATION[review.occasion])
        self.question.value = review.question
        self.alias.value = ""
        self.question.disabled = review.occasion == "prune"
        listed = "".join(
            f"<li>{escape(response) or '<i>empty</i>'}</li>" for response in review.responses
        )
        self.responses.value = f"<b>Responses</b><ul>{listed}</ul>"
        prunable = review.occasion == "prune"
        shown: Sequence[Triplet] = review.candidates if prunable else review.path
        self.rows = [TripletRow(triplet, prunable=prunable) for triplet in shown]
        self.accept.description = "Keep ticked" if prunable else "Ask again"

    def _arrange(self, review: Review) -> None:
        refining = [self.discard, self.alias, self.synonym]
        buttons = [self.accept, *([self.add] if review.occasion == "prune" else refining)]
        self.children = [
            self.progress,
            self.status,
            self.message,
            self.question,
            self.responses,
            *self.rows,
            widgets.HBox(buttons),
        ]

    def _add_row(self) -> None:
        review = self._session.pending
        if review is not None:
            self.rows.append(TripletRow())
            self._arrange(review)

    def _accepted(self) -> Decision:
        found = tuple(row.triplet for row in self.rows)
        kept = tuple(triplet for triplet in found if triplet is not None)
        review = self._session.pending
        if review is not None and review.occasion == "prune":
            return Decision(triplets=kept)
        return Decision(question=self.question.value.strip(), path=kept)

    def _named(self) -> Decision:
        if not self.alias.value.strip():
            raise ValueError("write the word of the responses that is another name of the object")
        return Decision(alias=self.alias.value.strip())

    def _decide(self, decision_of: Callable[[], Decision]) -> None:
        self._lock(True)
        try:
            self._session.decide(decision_of())
        except ValueError as error:
            self.message.value = f"<b style='color:#b00'>{escape(str(error))}</b>"
        else:
            self._show()
        finally:
            self._lock(False)

    def _lock(self, locked: bool) -> None:
        """No second click while the model answers."""
        for button in (self.accept, self.discard, self.add, self.synonym):
            button.disabled = locked
