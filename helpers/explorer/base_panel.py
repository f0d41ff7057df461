"""The common part of the panels: one button, one line that says what happened, one picture.

Where widgets cannot be shown (a notebook run headless, a page on paper) the picture stands for the
panel: it is sent along as an image, which every reader of notebooks falls back to.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from html import escape
from io import BytesIO
from typing import Any

import ipywidgets as widgets
import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from helpers.editing.registry import editors
from helpers.explorer.one_edit import Explorer

WIDE = widgets.Layout(width="98%")


class Panel(widgets.VBox):
    """A panel that makes an edit when its button is clicked.

    Args:
        explorer: where editors come from.
        editor: the editor chosen at first.
        edit: makes the edit that is chosen and shows its outcome.
    """

    def __init__(self, explorer: Explorer, editor: str, edit: Callable[[], None]) -> None:
        self._explorer = explorer
        self._make_edit = edit
        self.editor = widgets.Dropdown(description="Editor", options=tuple(editors()), value=editor)
        self.app = widgets.Checkbox(description="with APP", indent=False)
        self.app.layout.width = "auto"
        self.button = widgets.Button(description="Edit", button_style="primary", icon="pencil")
        self.choices = widgets.HBox([self.editor, self.app, self.button])
        self.choices.layout.flex_flow = "row wrap"
        self.status = widgets.HTML()
        self.picture = widgets.Image(format="png", layout=widgets.Layout(max_width="100%"))
        self.picture.layout.display = "none"  # until there is one
        self.details = widgets.HTML()
        self.button.on_click(lambda _: self._clicked())
        super().__init__(layout=WIDE)
        self.add_class("explorer-panel")

    def _clicked(self) -> None:
        """Edit, with the button locked; what cannot be done is said in the status line."""
        self.button.disabled = True
        try:
            self.status.value = waiting(self._explorer.missing_moments(self.editor.value))
            self._make_edit()
        except ValueError as error:  # all of the package's own errors about input are such
            self.status.value = f"<b style='color:#b00'>{escape(str(error))}</b>"
        finally:
            self.button.disabled = False

    def _draw(self, figure: Figure) -> None:
        buffer = BytesIO()
        figure.savefig(buffer, format="png", dpi=100)
        plt.close(figure)
        self.picture.value = buffer.getvalue()
        self.picture.layout.display = None

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        bundle = {**super()._repr_mimebundle_(**options), "text/plain": type(self).__name__}
        if self.picture.value:
            bundle["image/png"] = b64encode(self.picture.value).decode()
        return bundle


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
