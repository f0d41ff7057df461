"""What ``python -m helpers publish`` does: make what a params file asks for, and archive its tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import chdir
from importlib import import_module
from pathlib import Path
from typing import Any

from helpers import UserError
from helpers.params import notebook_of, read_params
from helpers.paths import IS_CHECKOUT, REPOSITORY
from helpers.processes import tell_nothing
from helpers.results.archive import DATA, Archive
from helpers.results.figure import write_list
from helpers.results.publish import publish_parts
from helpers.values import benchmark_room, params_of

# Notebook: its archive, and the module whose ``publication`` lists its run's parts.
PUBLISHED = {
    "02_peak_construction": ("construction", "peak.construction.publish"),
    "03_editing_runs": ("peak", "peak.publish"),
    "04_app_ablations": ("ablations", "behaviour.studies"),
    "05_klob_localisation": ("klob", "klob.publish"),
    "06_thinkedit_case_study": ("thinkedit", "thinkedit.publish"),
    "08_generated_text": ("ablations", "behaviour.damage"),
    "10_lifelong": ("lifelong", "lifelong.publish"),
}
# Parameters of a notebook that name methods for an archive of their own.
OF_A_PARAMETER = {
    "placebo": ("placebo", "peak.placebo_run"),
    "scorers": ("scorers", "behaviour.publish"),
    "held_out": ("held_out", "costs.held_out_run"),
    "scaled": ("matched", "costs.strength_run"),
    "leaks": ("leaks", "costs.leaks_run"),
    "undone": ("undone", "costs.undo_run"),
    "located_edits": ("regret", "klob.ceiling"),
}


def publish(
    file: Path,
    *,
    name: str = "",
    from_store_only: bool = False,
    data: Path = DATA,
    tell: Callable[[str], None] = tell_nothing,
) -> Path:
    """Compute what is missing of a params file's run, write its tables, and return their folder.

    Args:
        file: of a notebook that ``PUBLISHED`` lists, or of 09, whose runs are theirs (``run_behind``).
        name: is added to the run's model and data; a run on data of your own needs one, and notebook
            09's have one by default.
        from_store_only: write what is computed already, and make no edit.
        data: the folder of all archives.
        tell: gets a line before each table that is made.
    """
    if data == DATA and not IS_CHECKOUT:
        raise UserError(
            "publish writes next to the published tables: clone the repository and install it from there"
            " (pip install --editable .)"
        )
    params = read_params(file)
    notebook = notebook_of(file)
    with chdir(REPOSITORY):  # from where the notebooks read paths as well
        notebook_params = params_of(notebook, params)
        behind = notebook_params.run_behind()
        if notebook.stem not in PUBLISHED and behind is None:
            raise UserError(f"{file}: published are those of notebooks 02 to 06, and 08 to 10")
        notebook_params.check(file, published=False)
        data_names = [str(params.get(key)) for key in ("dataset", "source", "benchmark")]
        if not name and any(Path(data_name.partition("[")[0]).exists() for data_name in data_names):
            raise UserError(f"{file}: for data of your own, name the run with --name")
        label = name
        if behind is not None:
            notebook = notebook.with_stem(behind.notebook_name)
            params = behind.values
            label = name or behind.label
        archive_name, module = _published_by(notebook, params)
        publication = import_module(f"helpers.{module}").publication(params)
        archive = Archive(data / archive_name, label=label)
        run_folder = publish_parts(publication, archive, from_store_only=from_store_only, tell=tell)
    if data == DATA:
        write_list()
    return run_folder


def _published_by(notebook: Path, params: Mapping[str, Any]) -> tuple[str, str]:
    """The archive of a notebook's run with these parameters, and the module that lists its parts."""
    archive_and_module = PUBLISHED[notebook.stem]
    for parameter, published_instead in OF_A_PARAMETER.items():
        if params.get(parameter):
            archive_and_module = published_instead
    if room := benchmark_room(notebook, params):
        return room, f"{room}.publish"
    return archive_and_module
