"""Facts from a file: CSV, JSON or JSON lines, in the suite's own columns or in the keys of the data sets.

The columns are ``subject``, ``prompt`` and ``target``, and where wanted ``paraphrases``, ``locality``,
``correct`` and ``false``. Records of PEAK, CounterFact, zsRE and EasyEdit are read as they are.
"""

from __future__ import annotations

import csv
import itertools
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from helpers import UserError
from helpers.editing.request import RequestError, text_of, texts_of
from helpers.facts.fact import LISTS, TEXTS, Fact
from helpers.records import comparable, did_you_mean, read_all, read_json, read_text

# What files call a field, of which the first that is there counts: ours, PEAK's, CounterFact's, zsRE's and
# EasyEdit's.
_COLUMNS = {
    "subject": ("subject",),
    "prompt": ("prompt", "prompts", "src"),
    "target": ("target", "target_new", "alt"),
    "paraphrases": (
        "paraphrases",
        "para_add_prompts",
        "paraphrase_prompts",
        "rephrase",
        "rephrase_prompt",
        "rephrase_prompts",
    ),
    "locality": (
        "locality",
        "neighborhood_prompts",
        "loc",
        "locality_prompt",
        "locality_prompts",
        "locality_inputs",
    ),
    "correct": ("correct", "postive_list"),
    "false": ("false", "negtive_list"),
}
_OWN = (*TEXTS, *LISTS)
_UNUSED = (  # keys of the data sets that a fact does not have
    "case_id",
    "relation_id",
    "target_true",
    "negtive_random_list",
    "pararel_idx",
    "attribute_prompts",
    "generation_prompts",
    "pred",
    "answers",
    "loc_ans",
    "cond",
    "ground_truth",
    "portability",
    "locality_ground_truth",
)
_KNOWN = tuple(column for columns in _COLUMNS.values() for column in columns)
_SHOWN_FAULTS = 50  # of a file, in one message


def load_facts(path: str | Path) -> list[Fact]:
    """Read facts from a ``.csv`` or ``.tsv`` table, a ``.json`` list or ``.jsonl`` lines, a row a fact.

    A cell of several texts separates them by ``|``, or is a JSON list. A prompt may hold the subject itself,
    once, in the place of ``{}``. A ``UserError`` names every row and column of the file that cannot be used.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise UserError(f"no file {file} with facts: give a .csv, .tsv, .json or .jsonl file")
    rows = list(_file_rows(file))
    if not rows:
        raise UserError(f"{file} holds no facts: give a row or object for each")
    _check_columns(file, rows)
    return read_all(rows, fact_of_row, shown=_SHOWN_FAULTS)


def _file_rows(file: Path) -> Iterator[tuple[str, Any]]:
    """Where each row of a file is, and the row: its cells by column."""
    text = read_text(file)
    ending = file.suffix.lower()
    if ending in (".csv", ".tsv"):
        yield from _table_rows(file, text)
    elif ending in (".jsonl", ".ndjson"):
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                row_place = f"{file}, line {number}"
                yield row_place, read_json(line, row_place)
    elif ending == ".json":
        items = read_json(text, str(file))
        if not isinstance(items, list):
            raise UserError(f"{file}: expected a JSON list with an object for each fact")
        for number, item in enumerate(items, start=1):
            yield f"{file}, fact {number}", item
    else:
        raise UserError(f"{file} is no table of facts: give a .csv, .tsv, .json or .jsonl file")


def _table_rows(file: Path, text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a table whose columns are separated as its first line has it: by , ; or a tab."""
    first_line = text.partition("\n")[0]
    separator = max(",;\t", key=first_line.count)
    reader = csv.reader(StringIO(text, newline=""), delimiter=separator, strict=True)
    columns: list[str] = []
    next_line = 1
    try:
        for cells in reader:
            row_place = f"{file}, line {next_line}"
            next_line = reader.line_num + 1
            if not columns:
                columns = [cell.strip() for cell in cells]
                if repeated_columns := [
                    name for name in dict.fromkeys(columns) if columns.count(name) > 1
                ]:
                    raise UserError(
                        f"{row_place}: column {repeated_columns[0]!r} is there twice; rename one"
                    )
            elif any(cell.strip() for cell in cells):
                yield row_place, _cells_by_column(row_place, columns, cells)
    except csv.Error as error:
        raise UserError(
            f"{file}, line {reader.line_num}: not CSV ({error}); correct the quotes"
        ) from error


def _cells_by_column(place: str, columns: list[str], cells: list[str]) -> dict[str, str]:
    if len(cells) > len(columns):
        raise UserError(
            f"{place}: {len(cells)} cells under {len(columns)} columns; put a cell that holds the separator"
            ' between double quotes ("…")'
        )
    return dict(itertools.zip_longest(columns, cells, fillvalue=""))


def _check_columns(file: Path, rows: Iterable[tuple[str, Any]]) -> None:
    """Refuse a column that is missing or misspelt; warn about others that nothing is done with."""
    columns: dict[str, None] = {}
    for _, row in rows:
        if isinstance(row, Mapping):
            columns |= dict.fromkeys(_without_rewrite_level(row))
    unknown = [str(column) for column in columns if column not in (*_KNOWN, *_UNUSED)]
    misspelt = [f"{name!r}{hint}" for name in unknown if (hint := did_you_mean(name, _OWN))]
    if misspelt:
        raise UserError(
            f"{file}: no column {', '.join(misspelt)}; there are {', '.join(_OWN)}: rename or remove it"
        )
    missing = [field for field in TEXTS if not columns.keys() & set(_COLUMNS[field])]
    if columns and missing:
        raise UserError(f"{file}: no column {', '.join(missing)}; there are {', '.join(columns)}")
    if unknown:
        warnings.warn(f"{file}: not used: {', '.join(unknown)}", stacklevel=3)


def _without_rewrite_level(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without the level that PEAK and CounterFact put around a request."""
    rewrite = row.get("requested_rewrite")
    if not isinstance(rewrite, Mapping):
        return dict(row)
    others = {column: value for column, value in row.items() if column != "requested_rewrite"}
    return {**others, **rewrite}


def fact_of_row(row: Any) -> Fact:
    """The fact of a row, its cells by column; a ``RequestError`` has everything that is wrong, by column."""
    if not isinstance(row, Mapping):
        raise RequestError(
            f"a {type(row).__name__} is no fact; give an object with subject, prompt, target"
        )
    flat_row = _without_rewrite_level(row)
    values: dict[str, Any] = {}
    faults = []
    for field in _OWN:
        column = next((name for name in _COLUMNS[field] if name in flat_row), field)
        cell = flat_row.get(column)
        try:
            if field in LISTS:
                values[field] = texts_of(field, _texts_in(cell))
            else:
                values[field] = text_of(f"the {field}", _text_in(cell))
        except ValueError as error:
            faults.append(f"column {column}: {error}")
    if faults:
        raise RequestError("; ".join(faults))
    values["prompt"] = template_of(values["prompt"], values["subject"])
    if "postive_list" in flat_row:
        values |= _lists_without_repeats(values)
    return Fact(**values)


def _lists_without_repeats(values: Mapping[str, Any]) -> dict[str, list[str]]:
    """PEAK's two lists without the target, and each answer once, in the first list that has it."""
    names = {comparable(values["target"])}
    lists: dict[str, list[str]] = {"correct": [], "false": []}
    for field, answers in lists.items():
        for answer in values[field]:
            if comparable(answer) not in names:
                answers.append(answer)
            names.add(comparable(answer))
    return lists


def template_of(prompt: str, subject: str) -> str:
    """The prompt with ``{}`` where it names the subject; unchanged where it does not do so exactly once."""
    if "{}" not in prompt and prompt.count(subject) == 1:
        return prompt.replace(subject, "{}")
    return prompt


def _text_in(cell: Any) -> Any:
    """One text: a cell itself, CounterFact's ``{"str": …}``, or a list of one (EasyEdit's ``prompts``)."""
    if isinstance(cell, Mapping) and "str" in cell:
        return cell["str"]
    if isinstance(cell, list) and len(cell) == 1:
        return cell[0]
    return cell


def _texts_in(cell: Any) -> list[Any]:
    """The texts of a cell of several; of locality the prompts, without the answers that some files give."""
    if cell is None:
        return []
    if isinstance(cell, str):
        text = cell.strip()
        if text.startswith("["):
            return _texts_in(_json_list(text))
        return [part.strip() for part in text.split("|") if part.strip()]
    if isinstance(cell, Mapping):
        if "prompt" in cell:
            return _texts_in(cell["prompt"])
        return [text for group in cell.values() for text in _texts_in(group)]
    if not isinstance(cell, list):
        return [cell]
    texts: list[Any] = []
    for item in cell:
        if isinstance(item, list):  # PEAK's pair of a prompt and its answer
            texts += item[:1]
        else:
            texts += _texts_in(item) if isinstance(item, Mapping) else [item]
    return texts


def _json_list(text: str) -> list[Any]:
    try:
        values = json.loads(text)
    except ValueError as error:
        raise RequestError(
            f'{text!r:.60} is no JSON list ({error}): write ["…", "…"], or separate texts by |'
        ) from error
    return list(values)
