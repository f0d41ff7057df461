"""The panel at which a person curates: ``CurationPanel(session(fact, respondent, folder))``.

Closing the notebook loses nothing: running the cell again resumes at the same place.
"""

from __future__ import annotations

from html import escape

import ipywidgets as widgets

from helpers.thinkedit.graph import Triplet
from helpers.thinkedit.grow.pipeline import Decision, Session

_WIDE = widgets.Layout(width="98%")
_PART = widgets.Layout(width="28%")
_EXPLANATION = {
    "refine": "The object does not occur in the responses. Reword the question, correct the facts, "
    "or discard them.",
    "prune": "Keep what is true, correct it where needed, add what is missing.",
}


class TripletRow(widgets.HBox):
    """One editable triplet, with a box to tick: what is not ticked is omitted."""

    def __init__(self, triplet: Triplet | None = None) -> None:
        names = ("subject", "relation", "object")
        self.keep = widgets.Checkbox(value=True, indent=False, layout=widgets.Layout(width="2em"))
        self.parts = [
            widgets.Text(value=getattr(triplet, name, ""), placeholder=name, layout=_PART)
            for name in names
        ]
        super().__init__([self.keep, *self.parts])

    @property
    def triplets(self) -> list[Triplet]:
        """What the fields hold; none when unticked or all empty."""
        values = [part.value.strip() for part in self.parts]
        return [Triplet(*values)] if self.keep.value and any(values) else []


class CurationPanel(widgets.VBox):
    """Shows the session's pending review and sends the person's decision back."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.progress = widgets.IntProgress(max=session.settings.target_chains, layout=_WIDE)
        self.status, self.message, self.responses = (widgets.HTML() for _ in range(3))
        self.question = widgets.Text(description="Question", layout=_WIDE)
        self.rows: list[TripletRow] = []
        self.accept = widgets.Button(button_style="primary")
        self.discard = widgets.Button(description="Discard")
        self.add = widgets.Button(description="Add a triplet", icon="plus")
        self.accept.on_click(lambda _: self._decide(discard=False))
        self.discard.on_click(lambda _: self._decide(discard=True))
        self.add.on_click(lambda _: self._arrange([*self.rows, TripletRow()]))
        super().__init__(layout=_WIDE)
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
            self.message.value = f"<b>Finished:</b> {escape(growth.stopped)}."
            self.children = [self.progress, self.status, self.message]
            return
        self._pruning = review.occasion == "prune"
        self.message.value = escape(_EXPLANATION[review.occasion])
        self.question.value, self.question.disabled = review.question, self._pruning
        listed = "".join(f"<li>{escape(text) or '<i>empty</i>'}</li>" for text in review.responses)
        self.responses.value = f"<b>Responses</b><ul>{listed}</ul>"
        self.accept.description = "Keep ticked" if self._pruning else "Ask again"
        shown = review.candidates if self._pruning else review.path
        self._arrange([TripletRow(triplet) for triplet in shown])

    def _arrange(self, rows: list[TripletRow]) -> None:
        self.rows = rows
        above = [self.progress, self.status, self.message, self.question, self.responses]
        buttons = [self.accept, self.add if self._pruning else self.discard]
        self.children = [*above, *rows, widgets.HBox(buttons)]

    def _decide(self, *, discard: bool) -> None:
        kept = tuple(triplet for row in self.rows for triplet in row.triplets)
        asked = Decision(question=self.question.value.strip(), path=kept)
        decision = Decision(triplets=kept) if self._pruning else asked
        buttons = (self.accept, self.discard, self.add)
        for button in buttons:  # no second click while the model answers
            button.disabled = True
        try:
            self._session.decide(Decision(discard=True) if discard else decision)
            self._show()
        except ValueError as error:
            self.message.value = f"<b style='color:#b00'>{escape(str(error))}</b>"
        finally:
            for button in buttons:
                button.disabled = False
