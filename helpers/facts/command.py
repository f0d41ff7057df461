"""What ``helpers edit`` does: a file of facts becomes tables, and where wanted a folder of edits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from helpers.facts.edit import Tell, check_facts, checked_methods, edit_facts
from helpers.facts.read import load_facts
from helpers.facts.result import report_paths
from helpers.models import load
from helpers.models.load import model_source
from helpers.paths import check_place
from helpers.results.formats import table_text


def edit_and_report(  # noqa: PLR0913 - what a user chooses, each by its name
    file: Path,
    *,
    out: Path,
    model: str,
    editors: Sequence[str],
    save: Path | None,
    results: Path,
    tell: Tell,
    dtype: str = "float32",
    device: str = "cpu",
    dequantise: bool = False,
    preset: str | None = None,
    **options: Any,
) -> list[str]:
    """Edit the facts of a file and write the tables; lines that sum up what was done.

    File, output and names are checked before the model is loaded. ``options`` are those of ``edit_facts``.
    """
    report_paths(out)
    for path in filter(None, (out, save)):
        check_place(path)
    model_source(model)
    methods = checked_methods(model, editors, preset)
    facts = load_facts(file)
    check_facts(facts, methods)
    lm = load(model, dtype=dtype, device=device, dequantise=dequantise)
    result = edit_facts(
        lm,
        facts,
        editors=editors,
        preset=preset,
        results=results,
        tell=tell,
        **options,
    )
    paths = [str(path) for path in result.write_tables(out)]
    if save:
        paths.append(str(result.save(save)))
    return [table_text(result.summary()), *paths]
