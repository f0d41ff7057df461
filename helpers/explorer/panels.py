"""The panels: choose a fact and an editor, click, and see what the edit does to answers or chains.

>>> EditPanel(Explorer(lm), load_peak("peak-mini-cf").records)
>>> ChainPanel(ChainExplorer(lm, edits, store), Explorer(lm))

Where widgets cannot be shown (a notebook run headless, a page on paper) one line replaces the panel.
"""

from __future__ import annotations

import threading
import time
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import Any

import ipywidgets as widgets
from matplotlib.figure import Figure

from helpers import paths
from helpers.editing.editors import EDITORS
from helpers.explorer import one_edit
from helpers.explorer.one_edit import ChainExplorer, ChainsOutcome, Explorer, Outcome
from helpers.facts import record_of
from helpers.facts.read import fact_of_row
from helpers.models import load
from helpers.models.weights import PACKAGED_WEIGHTS, weights_folder
from helpers.paths import file_name
from helpers.peak.figures import answer_probabilities
from helpers.peak.records import PeakRecord
from helpers.results.show import figure_output, table_output

WIDE = {"width": "98%"}  # a layout for each: some are hidden at times
EVERY = 0.5  # seconds between two reports of progress
_TURN = threading.Lock()  # one panel edits at a time: they share their model
PACKAGED, OWN = "a packaged fact", "a fact of my own"
ALL = -1  # in place of a chain's number
_FIELDS = {
    "subject": ("Subject", "Sudan"),
    "prompt": ("Prompt", "{} shares a border with"),
    "correct": ("Correct", "its answers now, if known: Egypt | Chad"),
    "false": ("False", "wrong answers to compare with, if wanted: Laos | Peru"),
}


class Panel(widgets.VBox):
    """What all panels share: an editor, a button that makes the edit, a status line, one picture."""

    def __init__(self, explorer: Explorer, editor: str, *, app: bool = False) -> None:
        self._explorer = explorer
        self._cancelled = threading.Event()
        self._thread = threading.Thread()
        self.editor = widgets.Dropdown(description="Editor", options=tuple(EDITORS), value=editor)
        self.app = widgets.Checkbox(description="with APP", value=app, indent=False)
        self.app.layout.width = "auto"
        self.button = widgets.Button(description="Edit", button_style="primary", icon="pencil")
        self.cancel = widgets.Button(description="Cancel", icon="stop", disabled=True)
        self.choices = widgets.HBox([self.editor, self.app, self.button, self.cancel])
        self.choices.layout.flex_flow = "row wrap"
        self.status = widgets.HTML()
        self.details = widgets.HTML()
        self.picture = widgets.Image(format="png", layout={"max_width": "100%", "display": "none"})
        self.style_sheet = widgets.HTML("<style>.explorer-old {opacity: 0.35}</style>")
        self.button.on_click(lambda _: self._clicked())
        self.cancel.on_click(lambda _: self._cancelled.set())
        for choice in (self.editor, self.app):
            choice.observe(lambda _: self._outdate(), "value")
        super().__init__(layout=WIDE)
        self.add_class("explorer-panel")

    def wait(self) -> None:
        """Return when the edit is made, given up or cancelled."""
        if self._thread.ident:
            self._thread.join()

    def _edit(self) -> None:
        """Make the edit that is chosen and show its outcome."""
        raise NotImplementedError

    def _clicked(self) -> None:
        """Edit in another thread, because the kernel's own answers clicks."""
        self.button.disabled = True
        self.cancel.disabled = False
        self._outdate()
        self._cancelled.clear()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        """Edit; what cannot be done is in the status line, and the old result stays dimmed."""
        started = time.monotonic()
        passes = 0
        reported_at = 0.0

        def count_pass(*_: Any) -> None:  # before each forward pass, where the work can be stopped
            nonlocal passes, reported_at
            if self._cancelled.is_set():
                raise ValueError("cancelled; nothing was changed")
            passes += 1
            seconds_passed = time.monotonic() - started
            if seconds_passed - reported_at >= EVERY:
                reported_at = seconds_passed
                self.status.value = f"Editing… {passes} passes of the model, {seconds_passed:.0f} s"

        embeddings = self._explorer.lm.network.get_input_embeddings()
        try:
            self.status.value = "Editing… (missing second moments take minutes, once)"
            with _TURN, embeddings.register_forward_pre_hook(count_pass):
                self._edit()
            self._outdate(False)
        except Exception as error:  # in a thread nobody else would see it
            error_prefix = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
            self.status.value = f"<b style='color:#b00'>{error_prefix}{escape(str(error))}</b>"
        finally:
            self.button.disabled = False
            self.cancel.disabled = True

    def _outdate(self, is_outdated: bool = True) -> None:
        """Dim the result shown, which does not belong to what is chosen now; or no longer."""
        for widget in (self.picture, self.details):
            if is_outdated:
                widget.add_class("explorer-old")
            else:
                widget.remove_class("explorer-old")

    def _draw(self, figure: Figure) -> None:
        output, png_size = figure_output(figure, "")
        self.picture.value = b64decode(output["image/png"])
        self.picture.width = str(png_size["width"])
        self.picture.layout.display = None

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        plain_text = f"{type(self).__name__}: run the notebook to use it"
        return {**super()._repr_mimebundle_(**options), "text/plain": plain_text}


class EditPanel(Panel):
    """Edits one fact of ``records``, or one in the user's own words; begins with an outcome, if given."""

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
        super().__init__(explorer, editor, app=app)
        fact_options = [
            (f"{fact_record.edit_prompt} … (record {fact_record.case_id})", record_index)
            for record_index, fact_record in enumerate(records)
        ]
        self.fact = widgets.Dropdown(description="Fact", options=sorted(fact_options), layout=WIDE)
        fetched_models = (name for name in PACKAGED_WEIGHTS if weights_folder(name).exists())
        model_names = tuple(dict.fromkeys([explorer.lm.name, *fetched_models]))
        self.model = widgets.Dropdown(
            description="Model", options=model_names, value=model_names[0]
        )
        # Reported when it is left: of letters reported one by one, the last come after a click on Edit.
        when_left = {"continuous_update": False}
        self.target = widgets.Combobox(description="New answer", layout=WIDE, **when_left)
        self.source = widgets.ToggleButtons(options=[PACKAGED, OWN])
        self.own = {
            field_name: widgets.Text(
                description=field_label, placeholder=example_text, layout=WIDE, **when_left
            )
            for field_name, (field_label, example_text) in _FIELDS.items()
        }
        self.save = widgets.Button(description="Save", icon="download", disabled=True)
        self.save.tooltip = "keep this edit in a file"
        self.save.on_click(lambda _: self._save())
        self.choices.children = (*self.choices.children, self.save)
        self.fact.observe(lambda _: self._offer_targets(), "value")
        self.source.observe(lambda _: self._offer_fields(), "value")
        self.model.observe(lambda _: self._load(), "value")
        for choice in (self.model, self.target, *self.own.values()):
            choice.observe(lambda _: self._outdate(), "value")
        self.children = (
            self.model,
            self.source,
            self.fact,
            self.own["subject"],
            self.own["prompt"],
            self.target,
            self.own["correct"],
            self.own["false"],
            self.choices,
            self.status,
            self.details,
            self.picture,
            self.style_sheet,
        )
        self._offer_targets()
        self._offer_fields()
        if first is not None:
            self._show(first)
            self._outdate(False)

    @property
    def record(self) -> PeakRecord:
        """The chosen fact with the chosen answer; a ValueError where they make no edit."""
        if self.source.value == OWN:
            field_texts = {field_name: field.value for field_name, field in self.own.items()}
            return record_of(fact_of_row({"target": self.target.value, **field_texts}))
        return one_edit.with_target(self._records[self.fact.value], self.target.value)

    def choose(self, record: PeakRecord) -> None:
        """Choose a packaged record's fact and answer."""
        case_ids = [packaged_record.case_id for packaged_record in self._records]
        self.fact.value = case_ids.index(record.case_id)
        self.target.value = record.target_new

    def _load(self) -> None:
        """Continue with the chosen model, in the first one's dtype."""
        self.status.value = f"Loading {self.model.value}…"
        first_model = self._explorer.lm
        lm = load(self.model.value, dtype=first_model.dtype_name, device=str(first_model.device))
        has_packaged_samples = (paths.PACKAGED / "samples" / lm.fingerprint).exists()
        # What others sample may be no English.
        corpus = "self" if has_packaged_samples else "smollm2-135m"
        self._explorer = replace(self._explorer, lm=lm, corpus=corpus)
        self.status.value = ""

    def _offer_fields(self) -> None:
        """Show the packaged facts, or the fields of the user's own."""
        shows_own_fields = self.source.value == OWN
        self.fact.layout.display = "none" if shows_own_fields else None
        for field in self.own.values():
            field.layout.display = None if shows_own_fields else "none"
        self._outdate()

    def _offer_targets(self) -> None:
        record = self._records[self.fact.value]
        false_answers = (*record.hard_false, *record.random_false)
        self.target.options = list(dict.fromkeys([record.target_new, *false_answers]))
        self.target.value = record.target_new
        self._outdate()

    def _edit(self) -> None:
        explorer = self._explorer  # another model can be chosen meanwhile
        editor = explorer.editor(self.editor.value, app=self.app.value)
        self.outcome = explorer.explore(self.record, editor)
        self._show(self.outcome)

    def _show(self, outcome: Outcome) -> None:
        if self.source.value != OWN:
            self.choose(outcome.record)
        title = f"{outcome.record.edit_prompt} … + {outcome.record.target_new}"
        self._draw(answer_probabilities(outcome.probabilities(), title=title))
        self.details.value = details(outcome)
        self.status.value = f"{outcome.method}: {outcome.seconds:.0f} s"
        self.save.disabled = False

    def _save(self) -> None:
        """Keep the outcome's edit in a file of its own; ``Edit.load`` reads it."""
        if self.outcome is None:
            return
        words = f"{self.outcome.method} {self.outcome.record.edit_prompt} {self.outcome.record.target_new}"
        path = paths.RUNS / "edits" / f"{file_name(words)}.safetensors"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.outcome.edit.save(path)
        except OSError as error:
            self.status.value = (
                f"<b style='color:#b00'>{escape(paths.in_one_line(error, path))}</b>"
            )
        else:
            self.status.value = f"saved: {escape(str(path))}"


def details(outcome: Outcome) -> str:
    """Measures, answers named, and the continuations themselves, as HTML."""
    tables = {
        "Measures of PEAK [%]; additivity: lower is better": outcome.measures().to_frame().T,
        f"Known answers named in {len(outcome.after)} sampled continuations": outcome.naming(),
    }
    html = ""
    for title, table in tables.items():
        html += table_output(table, title=title, decimals=0, index=False)["text/html"]
    for moment, continuations in (("before", outcome.before), ("after", outcome.after)):
        texts = [escape(continuation.text) or "<i>nothing</i>" for continuation in continuations]
        list_items = "".join(f"<li>{text}</li>" for text in texts)
        summary = f"<summary>Generated {moment} the edit</summary>"
        html += f"<details>{summary}<ul>{list_items}</ul></details>"
    return html


class ChainPanel(Panel):
    """Edits one of the explorer's facts, then walks the chains that lead back to it."""

    def __init__(
        self,
        chain_explorer: ChainExplorer,
        explorer: Explorer,
        *,
        first: ChainsOutcome | None = None,
        editor: str = "rome",
        app: bool = False,
    ) -> None:
        self._chains = chain_explorer
        self.outcome = first
        super().__init__(explorer, editor, app=app)
        edit_options = [
            (f"{edit.subject}: {edit.original} → {edit.new}", edit_index)
            for edit_index, edit in enumerate(chain_explorer.edits)
        ]
        self.fact = widgets.Dropdown(description="Edit", options=edit_options, layout=WIDE)
        self.steps = widgets.IntSlider(description="Steps up to", value=3, min=1, max=3)
        self.chain = widgets.Dropdown(description="Chain", layout=WIDE)
        self.steps.observe(lambda _: self._offer_chains(), "value")
        self.chain.observe(lambda _: self._redraw(), "value")
        if first is not None:
            self.fact.value = list(chain_explorer.edits).index(first.edit)
            self._show(first)
        widgets_of_chain = [self.steps, self.chain, self.picture, self.details, self.style_sheet]
        self.children = [self.fact, self.choices, self.status, *widgets_of_chain]

    def _edit(self) -> None:
        editor = self._explorer.editor(self.editor.value, app=self.app.value)
        self.outcome = self._chains.explore(self._chains.edits[self.fact.value], editor)
        self._show(self.outcome)

    def _show(self, outcome: ChainsOutcome) -> None:
        self.steps.max = max(map(len, outcome.edit.chains))
        self._offer_chains()
        self.status.value = f"{escape(outcome.method)}: {escape(outcome.summary())}"

    def _offer_chains(self) -> None:
        """Offer the chains of the outcome that are short enough, all together first."""
        if self.outcome is None:
            return
        chains = self.outcome.edit.chains
        most_steps = self.steps.value
        short_chains = [
            chain_number for chain_number, chain in enumerate(chains) if len(chain) <= most_steps
        ]
        chain_options = [
            (" → ".join(chains[chain_number].nodes), chain_number) for chain_number in short_chains
        ]
        self.chain.options = [(f"all {len(short_chains)} of them", ALL), *chain_options]
        if self.chain.index == 0:
            self._redraw()  # a dropdown is silent when its options change but not its index
        self.chain.index = 0

    def _redraw(self) -> None:
        if self.outcome is None or self.chain.value is None:
            return
        chain_number = self.chain.value
        chains = self.outcome.edit.chains
        self.details.value = ""
        shown_chains = [chain for chain in chains if len(chain) <= self.steps.value] or chains
        if chain_number != ALL:
            shown_chains = [chains[chain_number]]
            title = "Probability of each step's object, and what became of the fact"
            steps_table = table_output(
                self.outcome.chain(chain_number), title=title, decimals=3, index=False
            )
            self.details.value = steps_table["text/html"]
        self._draw(one_edit.graphs(self.outcome, shown_chains))
