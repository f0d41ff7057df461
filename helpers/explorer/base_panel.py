"""The common part of the panels: one button, one line that says what happened, one picture.

Where widgets cannot be shown (a notebook run headless, a page on paper) one line stands for the
panel. A notebook draws the same picture by code, so that it is there once.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import ipywidgets as widgets
import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from helpers.editing.editors import EDITORS
from helpers.explorer.one_edit import Explorer
from helpers.explorer.worker import Worker
from helpers.results.show import figure_output

WIDE = widgets.Layout(width="98%")


class Panel(widgets.VBox):
    """A panel that makes an edit when its button is clicked.

    Args:
        explorer: where editors come from.
        editor: the editor chosen at first, with APP if ``app``.
        edit: makes the edit that is chosen and shows its outcome.
    """

    def __init__(
        self, explorer: Explorer, editor: str, edit: Callable[[], None], *, app: bool = False
    ) -> None:
        self._explorer = explorer
        self._make_edit = edit
        self.editor = widgets.Dropdown(description="Editor", options=tuple(EDITORS), value=editor)
        self.app = widgets.Checkbox(description="with APP", value=app, indent=False)
        self.app.layout.width = "auto"
        self.button = widgets.Button(description="Edit", button_style="primary", icon="pencil")
        self.cancel = widgets.Button(description="Cancel", icon="stop", disabled=True)
        self.choices = widgets.HBox([self.editor, self.app, self.button, self.cancel])
        self.choices.layout.flex_flow = "row wrap"
        self.status = widgets.HTML()
        self.picture = widgets.Image(format="png", layout=widgets.Layout(max_width="100%"))
        self.picture.layout.display = "none"  # until there is one
        self.details = widgets.HTML()
        self.style_sheet = widgets.HTML("<style>.explorer-old {opacity: 0.35}</style>")
        embeddings = explorer.language_model.model.get_input_embeddings()
        self._worker = Worker(embeddings, self._progress)
        self.button.on_click(lambda _: self._clicked())
        self.cancel.on_click(lambda _: self._worker.cancel())
        self.editor.observe(lambda _: self._offer(), "value")
        self.app.observe(lambda _: self._outdate(), "value")
        super().__init__(layout=WIDE)
        self.add_class("explorer-panel")
        self._offer()

    def wait(self) -> None:
        """Return when the edit that was begun is made, given up or cancelled."""
        self._worker.wait()

    def _clicked(self) -> None:
        """Begin an edit, with the button locked until it ends."""
        self.button.disabled, self.cancel.disabled = True, False
        self._outdate()
        self._worker.start(self._edited)

    def _edited(self) -> None:
        """Edit; what cannot be done is said in the status line, and the old result stays dimmed."""
        try:
            self._waiting = waiting(self._explorer.missing_moments(self.editor.value))
            self.status.value = self._waiting
            self._make_edit()
            self._outdate(False)
        except ValueError as error:  # all of the package's own errors about input are such
            self._complain(str(error))
        except Exception as error:  # in a thread nobody else would see it
            self._complain(f"{type(error).__name__}: {error}")
        finally:
            self.button.disabled, self.cancel.disabled = False, True

    def _complain(self, text: str) -> None:
        self.status.value = f"<b style='color:#b00'>{escape(text)}</b>"

    def _progress(self, passes: int, seconds: float) -> None:
        self.status.value = f"{self._waiting} {passes} passes of the model, {seconds:.0f} s"

    def _offer(self) -> None:
        """Grey what the chosen editor cannot do, and say why."""
        name = self.editor.value
        reason = self._explorer.refusal(name)
        self.button.disabled = bool(reason)
        without = reason or self._explorer.refusal(name, app=True)
        self.app.value = self.app.value and not without
        self.app.disabled = bool(without)
        self.app.tooltip = without
        self.status.value = ""
        if reason:
            self._complain(reason)
        self._outdate()

    def _outdate(self, old: bool = True) -> None:
        """Dim the result shown, which does not belong to what is chosen now; or no longer."""
        for shown in (self.picture, self.details):
            (shown.add_class if old else shown.remove_class)("explorer-old")

    def _draw(self, figure: Figure) -> None:
        output, size = figure_output(figure, "")
        plt.close(figure)
        self.picture.value = b64decode(output["image/png"])
        self.picture.width, self.picture.layout.display = str(size["width"]), None

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        instead = f"{type(self).__name__}: run the notebook to use it"
        return {**super()._repr_mimebundle_(**options), "text/plain": instead}


def waiting(layers: Sequence[int]) -> str:
    """What is going on after a click; ``layers`` lack the second moments that the editor needs."""
    if not layers:
        return "Editing…"
    which = f"layer{'s' if len(layers) > 1 else ''} {', '.join(map(str, layers))}"
    return f"Making the second moments of {which} first, once for this model; it takes minutes…"


def table_html(table: pd.DataFrame, caption: str, *, digits: int = 0) -> str:
    """A table, its numbers rounded and its cells escaped, that scrolls in its own box."""
    html = table.to_html(index=False, border=0, na_rep="–", float_format=f"{{:.{digits}f}}".format)
    looks = 'class="jp-RenderedHTMLCommon" style="overflow-x: auto"'
    return f"<div {looks}><b>{escape(caption)}</b>{html if len(table) else ': none'}</div>"


def list_html(items: Sequence[str], caption: str) -> str:
    """Texts one below the other, escaped, folded away until asked for."""
    entries = "".join(f"<li>{escape(item) or '<i>nothing</i>'}</li>" for item in items)
    return f"<details><summary>{escape(caption)}</summary><ul>{entries}</ul></details>"
