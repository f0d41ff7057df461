"""The panel of one edit: choose a fact, an answer to append and an editor; see what it does.

>>> EditPanel(Explorer(language_model), load_peak("peak-mini-cf").records)
"""

from __future__ import annotations

from collections.abc import Sequence

import ipywidgets as widgets

from helpers.explorer.base_panel import WIDE, Panel, list_html, table_html
from helpers.explorer.one_edit import Explorer, Outcome
from helpers.explorer.own_fact import own_record, snippet, with_target
from helpers.peak.figures import answer_probabilities
from helpers.peak.records import PeakRecord

PACKAGED, OWN = "a packaged fact", "a fact of my own"
LISTS = {
    "target": "appended",
    "correct": "correct",
    "hard": "false (hard)",
    "random": "false (random)",
}


class EditPanel(Panel):
    """Edits one fact of ``records``.

    Args:
        explorer: the model and the settings.
        records: facts to choose from.
        first: an outcome to begin with; its fact and answer are then chosen.
        editor: the editor chosen at first, with APP if ``app``.
    """

    def __init__(
        self,
        explorer: Explorer,
        records: Sequence[PeakRecord],
        *,
        first: Outcome | None = None,
        editor: str = "rome",
        app: bool = False,
    ) -> None:
        self._records = tuple(records)
        self.outcome = first
        super().__init__(explorer, editor, self._edit, app=app)
        subjects = sorted({record.subject for record in self._records})
        self.subject = widgets.Dropdown(description="Subject", options=subjects, layout=WIDE)
        self.relation = widgets.Dropdown(description="Relation", layout=WIDE)
        self.target = widgets.Combobox(
            description="New answer", ensure_option=False, continuous_update=False, layout=WIDE
        )
        self.source = widgets.ToggleButtons(options=[PACKAGED, OWN])
        self.own = {name: _text_field(*words) for name, words in _FIELDS.items()}
        self.python = widgets.Button(description="as Python", icon="code")
        self.code = widgets.Textarea(rows=16, layout=widgets.Layout(width="98%"))  # hidden alone
        self._hide_code()
        self.python.on_click(lambda _: self._show_code())
        self.subject.observe(lambda _: self._offer_relations(), "value")
        self.relation.observe(lambda _: self._offer_targets(), "value")
        self.source.observe(lambda _: self._offer_fields(), "value")
        self._offer_relations()
        for choice in (self.target, self.relation, *self.own.values()):
            choice.observe(lambda _: self._outdate(), "value")
        chosen = (self.editor, self.app, self.source, self.target, self.relation)
        for choice in (*chosen, *self.own.values()):
            choice.observe(lambda _: self._hide_code(), "value")
        self.choices.children += (self.python,)
        self._packaged = widgets.VBox([self.subject, self.relation])
        shown = [self.status, self.code, self.details, self.picture, self.style_sheet]
        *asked, correct, false = self.own.values()
        fact = [self.source, self._packaged, *asked, self.target, correct, false]
        self.children = [*fact, self.choices, *shown]
        self._offer_fields()
        if first is not None:
            self._show(first)
            self._outdate(False)

    def _offer_fields(self) -> None:
        """Show the packaged facts, or the fields of one's own."""
        own = self.source.value == OWN
        self._packaged.layout.display = "none" if own else None
        for field in self.own.values():
            field.layout.display = None if own else "none"
        self._outdate()

    def _show_code(self) -> None:
        """Show the code of what is chosen, ready to be copied."""
        explorer = self._explorer
        model = explorer.language_model
        load = {"name": model.name, "dtype": model.dtype_name, "device": model.device.type}
        names = ("preset", "corpus", "seed")
        options = {"app": self.app.value, **{name: getattr(explorer, name) for name in names}}
        try:
            code = snippet(self.record, load=load, editor=self.editor.value, options=options)
        except ValueError as error:
            self._complain(str(error))
            return
        self.code.value, self.code.layout.display = code, None

    def _hide_code(self) -> None:
        """Code of an earlier choice would be copied by mistake."""
        self.code.layout.display = "none"

    @property
    def record(self) -> PeakRecord:
        """The chosen fact with the chosen answer.

        Raises:
            ValueError: no answer, one that the fact already has, or no whole fact.
        """
        if self.source.value == OWN:
            texts = {name: field.value for name, field in self.own.items()}
            return own_record(target=self.target.value, **texts)
        return with_target(self._records[self.relation.value], self.target.value)

    def choose(self, record: PeakRecord) -> None:
        """Choose a record's fact and answer."""
        if self.source.value == OWN:
            return
        numbers = {r.case_id: i for i, r in enumerate(self._records)}
        self.subject.value = record.subject
        self.relation.value = numbers[record.case_id]
        self.target.value = record.target_new

    def _offer_relations(self) -> None:
        self.relation.options = [
            (f"{record.prompt} … (record {record.case_id})", number)
            for number, record in enumerate(self._records)
            if record.subject == self.subject.value
        ]
        self.relation.index = 0

    def _offer_targets(self) -> None:
        if self.relation.value is None:
            return
        record = self._records[self.relation.value]
        others = (*record.hard_false, *record.random_false)
        self.target.options = list(dict.fromkeys([record.target_new, *others]))
        self.target.value = record.target_new

    def _edit(self) -> None:
        editor = self._explorer.editor(self.editor.value, app=self.app.value)
        self.outcome = self._explorer.explore(self.record, editor)
        self._show(self.outcome)

    def _show(self, outcome: Outcome) -> None:
        """Redraw everything from an outcome.

        Raises:
            ValueError: the editor gave the edit up.
        """
        if outcome.failure:
            raise ValueError(f"the edit was given up: {outcome.failure}")
        self.choose(outcome.record)
        title = f"{outcome.record.edit_prompt} … + {outcome.record.target_new}"
        self._draw(answer_probabilities(outcome.probabilities(), title=title))
        self.details.value = details(outcome)
        self.status.value = f"{outcome.method}: {outcome.seconds:.0f} s"  # last: all is there


_FIELDS = {
    "subject": ("Subject", "Sudan"),
    "prompt": ("Prompt", "{} shares a border with"),
    "correct": ("Correct", "its answers now, if known: Egypt; Chad"),
    "false": ("False", "wrong answers to compare with, if wanted: Laos; Peru"),
}


def _text_field(description: str, placeholder: str) -> widgets.Text:
    """Told when it is left: of letters told one by one, the last come after a click on Edit."""
    layout = widgets.Layout(width=WIDE.width)  # hidden alone
    return widgets.Text(
        description=description, placeholder=placeholder, continuous_update=False, layout=layout
    )


def details(outcome: Outcome) -> str:
    """Measures, answers named, and the continuations themselves, as HTML."""
    measures = outcome.measures().to_frame().T
    naming = outcome.naming()
    naming["list"] = naming["list"].map(LISTS)
    drawn = len(outcome.after)
    return "".join(
        [
            table_html(measures, "Measures of PEAK [%]; additivity: lower is better"),
            table_html(naming, f"Known answers named in {drawn} sampled continuations"),
            list_html([said.text for said in outcome.before], "What it said before"),
            list_html([said.text for said in outcome.after], "What it says now"),
        ]
    )
