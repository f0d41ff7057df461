"""Parameters of a run: the notebook's own parameter cell is their one definition.

Each line of the cell tagged ``parameters`` reads ``name: type = literal  # help``. The type is one of
``_TYPES``, whose spelling papermill understands: it cannot read a ``|``, and would call the parameter
unknown.

A params file is flat YAML; the notebook it is for follows from its place:
``params/quick/03_editing_runs.yaml`` and ``params/paper/03_editing_runs/llama2-7b.yaml`` are both for
``notebooks/03_editing_runs.ipynb``.
"""

from __future__ import annotations

import ast
import json
import numbers
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    create_model,
)

from helpers import UserError
from helpers.paths import NOTEBOOKS
from helpers.records import error_in_words, read_yaml


def _refuse_truth(value: Any) -> Any:
    """The value, if it is neither true nor false, which pydantic takes for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("input should be a number")
    return value


_Int = Annotated[int, Strict()]  # refuses true and false as well
_Float = Annotated[float, BeforeValidator(_refuse_truth), Field(allow_inf_nan=False)]
_TYPES: dict[str, Any] = {
    "str": str,
    "bool": bool,
    "int": _Int,
    "float": _Float,
    "int or None": _Int | None,
    "list[str]": list[str],
    "list[int]": list[_Int],
    "list[float]": list[_Float],
}


def notebook_of(params_file: Path) -> Path:
    """The notebook a params file is for, by its file or folder name."""
    if not params_file.exists():
        raise UserError(f"no params file {params_file}; see params/quick and params/paper")
    path = params_file.resolve()
    folder = NOTEBOOKS
    for name in (path.stem, path.parent.name):
        notebook = folder / f"{name}.ipynb"
        if notebook.exists():
            return notebook
    notebooks = ", ".join(sorted(path.stem for path in folder.glob("*.ipynb")))
    raise UserError(
        f"{params_file}: neither file nor folder is named after a notebook ({notebooks}); a"
        " sweep's file: python -m helpers sweep FILE"
    )


def read_params(params_file: Path, notebook: Path | None = None) -> dict[str, Any]:
    """Read and validate a params file; missing parameters take the notebook's defaults."""
    notebook = notebook or notebook_of(params_file)
    values = read_yaml(params_file) or {}
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise UserError(f"{params_file} must be a flat mapping of parameter names to values")
    return validate_params(values, notebook, source=str(params_file))


def defaults_of(notebook: Path) -> dict[str, Any]:
    """A notebook's parameters and their default values."""
    return validate_params({}, notebook, source=notebook.name)


def validate_params(values: dict[str, Any], notebook: Path, *, source: str) -> dict[str, Any]:
    """Check the types of values against a notebook's parameters, and add its defaults.

    ``source`` is what messages call the file that the values are from.
    """
    schema = _schema_of(notebook)
    try:
        return schema(**values).model_dump()
    except ValidationError as error:
        raise UserError(f"{source}: {error_in_words(error, known=schema.model_fields)}") from error


@cache  # a sweep asks once for each of its runs
def _schema_of(notebook: Path) -> type[BaseModel]:
    """A pydantic model of the cell tagged ``parameters``; names that it lacks are forbidden."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    (parameters,) = (cell for cell in cells if "parameters" in cell["metadata"].get("tags", []))
    fields: dict[str, Any] = {}
    for assignment in ast.parse("".join(parameters["source"])).body:
        assert isinstance(assignment, ast.AnnAssign)
        assert assignment.value is not None
        annotation = ast.unparse(assignment.annotation).strip("'")  # "int or None" is quoted
        default = ast.literal_eval(assignment.value)
        fields[ast.unparse(assignment.target)] = (_TYPES[annotation], default)
    config = ConfigDict(extra="forbid", protected_namespaces=())
    return create_model(notebook.stem, __config__=config, **fields)


def check_range(name: str, value: float, least: float, most: float | None = None) -> None:
    """Refuse a number outside ``least`` to ``most``, or above no bound."""
    if not value >= least or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        raise UserError(f"{name}: must be {bounds}, not {value}")


def check_whole_number(name: str, value: Any, least: int = 0) -> None:
    """Refuse what is no whole number, or one below ``least``; true and false are none."""
    is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not is_whole or value < least:
        raise UserError(f"{name}: must be a whole number of at least {least}, not {value!r:.60}")


def check_one_of(name: str, value: object, known: Iterable[object]) -> None:
    """Refuse what is none of the ``known`` values, which the error names."""
    known_values = tuple(known)
    if value not in known_values:
        raise UserError(f"{name}: {value!r} is none of {', '.join(map(str, known_values))}")
