"""Which cells of a notebook a run executes, by their tags.

``published``: redraws published results; left out where the parameter ``published`` names none.
``results``: sentences about the numbers of the notebook's own parameters; under other parameters a
note stands in their place.
``shared``: makes what the shards of a sweep share; all that the sweep's first stage executes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from helpers.params import notebook_parameters
from helpers.paths import written_whole

Notebook = dict[str, Any]
Cell = dict[str, Any]

PUBLISHED, RESULTS, SHARED = "published", "results", "shared"
NOTE = (
    "*Sentences about this notebook's own numbers are left out: this run has other parameters"
    " ({changed}).*"
)
_HEADLINES = re.compile(r"<!-- made by python -m tools\.headlines.*?<!-- end -->\n*", re.S)
_PLACES = {"results", "output"}  # parameters that change no number
LEFT_OUT = "*Sections about published results are left out: `published` names none.*"


def write_for_run(notebook: Path, params: Mapping[str, Any], path: Path, *, part: str = "") -> None:
    """Write the notebook as a run with these parameters executes it.

    Args:
        notebook: its file.
        params: all of its parameters.
        path: where to.
        part: a tag; only its cells are executed.
    """
    made = _read(notebook)
    if part:
        _keep(made, lambda cell: _tagged(cell, part) or _tagged(cell, "parameters"))
    if "published" in params and not params["published"]:
        _replace(made, PUBLISHED, LEFT_OUT)
    defaults = {p.name: p.default for p in notebook_parameters(notebook)}
    changed = [name for name in params if name not in _PLACES and params[name] != defaults[name]]
    if changed:
        _drop_headlines(made)
        _replace(made, RESULTS, NOTE.format(changed=", ".join(changed)))
    _write(made, path)


def has_part(notebook: Path, part: str) -> bool:
    """Whether a notebook has cells with this tag."""
    return any(_tagged(cell, part) for cell in _read(notebook)["cells"])


def _replace(notebook: Notebook, tag: str, note: str) -> None:
    """Drop the cells with this tag; the note stands once, where the first of them was."""
    place = next((i for i, cell in enumerate(notebook["cells"]) if _tagged(cell, tag)), None)
    if place is not None:
        _keep(notebook, lambda cell: not _tagged(cell, tag))
        said = {"cell_type": "markdown", "id": f"no-{tag}", "metadata": {}, "source": note}
        notebook["cells"].insert(place, said)


def _drop_headlines(notebook: Notebook) -> None:
    """The results in twenty seconds, which ``tools.headlines`` writes into a notebook's first cell."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = _HEADLINES.sub("", "".join(cell["source"]))


def _keep(notebook: Notebook, wanted: Callable[[Cell], bool]) -> None:
    notebook["cells"] = [cell for cell in notebook["cells"] if wanted(cell)]


def _tagged(cell: Cell, tag: str) -> bool:
    return tag in cell["metadata"].get("tags", [])


def _read(notebook: Path) -> Notebook:
    read: Notebook = json.loads(notebook.read_text(encoding="utf-8"))
    return read


def _write(notebook: Notebook, path: Path) -> None:
    with written_whole(path) as scratch:
        scratch.write_text(json.dumps(notebook, ensure_ascii=False), encoding="utf-8")
