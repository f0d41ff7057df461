"""The panel at which a person curates: ``CurationPanel(session(fact, respondent, folder))``.

Closing the notebook loses nothing: running the cell again resumes at the same place.
"""

from __future__ import annotations

from html import escape

import ipywidgets as widgets

from helpers.thinkedit.graph import Triplet
from helpers.thinkedit.grow.pipeline import Decision, Session

_WIDE = widgets.Layout(width="98%")
_NARROW, _PART = widgets.Layout(width="2em"), widgets.Layout(width="28%")
_EXPLANATION = {
    "refine": "The object is in no response. Reword the question, correct, or discard.",
    "prune": "Keep what is true, correct it where needed, add what is missing.",
}


def _triplet_row(triplet: Triplet | None = None) -> widgets.HBox:
    """A box to tick and one editable triplet."""
    text_fields = [
        widgets.Text(value=getattr(triplet, field_name, ""), placeholder=field_name, layout=_PART)
        for field_name in ("subject", "relation", "object")
    ]
    return widgets.HBox([widgets.Checkbox(value=True, indent=False, layout=_NARROW), *text_fields])


class CurationPanel(widgets.VBox):
    """Shows the session's pending review and sends the person's decision back."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.progress = widgets.IntProgress(max=session.settings.target_chains, layout=_WIDE)
        self.status, self.message, self.responses = (widgets.HTML() for _ in range(3))
        self.question = widgets.Text(description="Question", layout=_WIDE)
        self.rows: list[widgets.HBox] = []
        self.accept = widgets.Button(button_style="primary")
        self.discard = widgets.Button(description="Discard")
        self.add = widgets.Button(description="Add a triplet", icon="plus")
        self.accept.on_click(lambda _: self._decide(discard=False))
        self.discard.on_click(lambda _: self._decide(discard=True))
        self.add.on_click(lambda _: self._arrange([*self.rows, _triplet_row()]))
        super().__init__(layout=_WIDE)
        self._show()

    def _show(self) -> None:
        """Redraw everything from the session's state."""
        growth = self._session.growth
        review = self._session.pending
        self.progress.value = min(len(growth.chains), self.progress.max)
        self.status.value = escape(
            f"Round {growth.rounds}: {growth.graph.number_of_edges()} facts, "
            f"{len(growth.chains)} of {self.progress.max} chains, {len(growth.discarded)} discarded"
        )
        if review is None:
            self.message.value = f"<b>Finished:</b> {escape(growth.stopped)}."
            self.children = [self.progress, self.status, self.message]
            return
        self._pruning = review.occasion == "prune"
        self.message.value = escape(_EXPLANATION[review.occasion])
        self.question.value = review.question
        self.question.disabled = self._pruning
        response_items = "".join(
            f"<li>{escape(response) or '<i>empty</i>'}</li>" for response in review.responses
        )
        self.responses.value = f"<b>Responses</b><ul>{response_items}</ul>"
        self.accept.description = "Keep ticked" if self._pruning else "Ask again"
        shown_triplets = review.candidates if self._pruning else review.path
        self._arrange([_triplet_row(triplet) for triplet in shown_triplets])

    def _arrange(self, rows: list[widgets.HBox]) -> None:
        self.rows = rows
        widgets_above = [self.progress, self.status, self.message, self.question, self.responses]
        buttons = [self.accept, self.add if self._pruning else self.discard]
        self.children = [*widgets_above, *rows, widgets.HBox(buttons)]

    def _decide(self, *, discard: bool) -> None:
        decision = Decision(discard=True) if discard else self._decision()
        self.children = [self.progress, self.status]  # no second click while the model answers
        try:
            self._session.decide(decision)
            self._show()
        except ValueError as error:
            self.message.value = f"<b style='color:#b00'>{escape(str(error))}</b>"
            self._arrange(self.rows)

    def _decision(self) -> Decision:
        """What the person left ticked: triplets to keep, or the path to ask about, with its question."""
        ticked_triplets: list[Triplet] = []
        for triplet_row in self.rows:
            is_ticked, *triplet_texts = (widget.value for widget in triplet_row.children)
            if is_ticked and any(triplet_texts):
                ticked_triplets.append(Triplet(*map(str.strip, triplet_texts)))
        if self._pruning:
            return Decision(triplets=tuple(ticked_triplets))
        return Decision(question=self.question.value.strip(), path=tuple(ticked_triplets))
