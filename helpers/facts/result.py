"""What edits of facts did: tables, the edits themselves, and what can be done with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial, reduce
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from helpers import UserError, __version__
from helpers.editing.edit import Edit, EditError
from helpers.editing.weight_edit import apply, only_weights, write
from helpers.facts.benchmark import GREEDY
from helpers.facts.card import model_card
from helpers.facts.fact import Fact
from helpers.facts.summary import summary_table
from helpers.models import LanguageModel
from helpers.paths import file_name, write_whole
from helpers.records import read_json, read_text
from helpers.results.formats import format_of, write_table
from helpers.results.notes import ShownTable
from helpers.scoring.responses import sample_responses

EDITOR = "editor"  # the column that names it, where there are several
INDEX = "edits.json"
_TABLES = ("table", "texts", "placebo")


@dataclass
class EditedFacts:
    """Facts, their edits by method (one each, or one for all) and what these did (``edit_facts``).

    ``placebo`` is as ``table``, each fact under another fact's edit; ``texts`` has every prompt with the
    greedy continuations before and after. ``settings`` are each method's, all that its edits depend on.
    """

    lm: LanguageModel
    facts: tuple[Fact, ...]
    edits_of: Mapping[str, Callable[[], tuple[Edit, ...]]] = field(repr=False)
    settings: Mapping[str, Mapping[str, Any]] = field(repr=False)
    table: pd.DataFrame
    texts: pd.DataFrame
    placebo: pd.DataFrame
    _weights_before: list[tuple[Tensor, Tensor]] = field(
        default_factory=list, init=False, repr=False
    )

    @property
    def methods(self) -> tuple[str, ...]:
        """What the facts were edited by."""
        return tuple(self.edits_of)

    @cached_property
    def edits(self) -> tuple[Edit, ...]:
        """The edits of the one method; those of which only the answers are stored are made again."""
        return self.edits_of[self._only_method]()

    @property
    def _only_method(self) -> str:
        if len(self.methods) > 1:
            raise UserError(
                f"edited by {', '.join(self.methods)}: choose one, such as result.of({self.methods[0]!r})"
            )
        return self.methods[0]

    def of(self, method: str) -> EditedFacts:
        """What one of several editors did."""
        if method not in self.methods:
            raise UserError(f"no edits by {method!r}: there are {', '.join(self.methods)}")

        def rows_of_method(table: pd.DataFrame) -> pd.DataFrame:
            if EDITOR not in table:
                return table
            rows = table[table[EDITOR] == method].drop(columns=EDITOR)
            return rows.dropna(axis="columns", how="all").reset_index(drop=True)

        return EditedFacts(
            self.lm,
            self.facts,
            {method: self.edits_of[method]},
            {method: self.settings[method]},
            **{name: rows_of_method(getattr(self, name)) for name in _TABLES},
        )

    def summary(self) -> ShownTable:
        """Means over facts with their intervals, a row an editor, and one for its placebo."""
        tables = {}
        for method in self.methods:
            of_method = self.of(method)
            tables[method] = of_method.table
            tables[f"{method}, placebo"] = of_method.placebo
        return summary_table([fact.prompt for fact in self.facts], tables)

    def write_tables(self, path: Path | str) -> list[Path]:
        """Write the table, its summary and all texts, in the format of the path's ending."""
        paths = report_paths(Path(path))
        tables: Sequence[pd.DataFrame | ShownTable] = (self.table, self.summary(), self.texts)
        for file, table in zip(paths, tables, strict=True):
            write_table(table, file)
        return paths

    def generate(self, prompts: Sequence[str], *, fact: int | None = None) -> list[str]:
        """Greedy continuations under one fact's edit; once written, under all.

        Of several edits ``fact`` chooses one, by its place among the facts; without it a ``UserError``.
        """
        is_one_edit = len(self.edits) == 1
        chosen = 0 if fact is None and is_one_edit else fact
        if self.written:
            edit_index = -1
        elif chosen is not None and 0 <= chosen < len(self.facts):
            edit_index = 0 if is_one_edit else chosen
        else:
            raise UserError(
                f"edits: {len(self.edits)}; choose one by fact=0 to fact={len(self.facts) - 1}, or write"
                " them all first"
            )
        owners = [edit_index] * len(prompts)
        texts = sample_responses(self.lm, prompts, self.edits, owners, n=1, sampling=GREEDY)
        return [text for (text,) in texts]

    def composed(self) -> Edit:
        """All edits as one, in the order of the facts; many facts are better edited ``together``."""
        return reduce(lambda earlier, later: earlier.then(later), self.edits)

    @property
    def written(self) -> bool:
        """Whether the weights are edited."""
        return bool(self._weights_before)

    def write(self) -> LanguageModel:
        """Add all edits to the weights, once; ``undo`` takes them back while this object lives."""
        if not self.written:
            module_names = {name for edit in self.edits for name in only_weights(edit, "writing")}
            parameters = [
                p for name in sorted(module_names) for p in self.lm.module(name).parameters()
            ]
            weights_before: list[tuple[Tensor, Tensor]] = [
                (parameter, parameter.detach().cpu().clone()) for parameter in parameters
            ]
            write(self.lm, self.composed())
            self._weights_before = weights_before
        return self.lm

    def undo(self) -> LanguageModel:
        """Give the weights the numbers that they had before ``write``, bit for bit.

        A checkpoint that was saved meanwhile stays edited, and what was written into the same matrices since
        is lost.
        """
        with torch.no_grad():
            for parameter, value in self._weights_before:
                parameter.copy_(value)
        self._weights_before = []
        return self.lm

    def save(self, folder: Path | str) -> Path:
        """Write the edits of every method, their facts and tables into a folder, for ``load_edits``."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        files: dict[str, list[str]] = {}
        for method in self.methods:
            names = []
            for number, edit in enumerate(self.of(method).edits, start=1):
                names.append(f"{file_name(method)}-{number:03d}.safetensors")
                edit.save(target / names[-1])
            files[method] = names
        index = {
            "helpers": __version__,
            "model": self.lm.identity,
            "facts": [asdict(fact) for fact in self.facts],
            "settings": self.settings,
            "files": files,
            **{name: _table_records(getattr(self, name)) for name in _TABLES},
        }
        write_whole(target / INDEX, json.dumps(index, ensure_ascii=False, indent=1) + "\n")
        return target

    def save_model(self, folder: Path | str) -> Path:
        """Write the edited model with its tokenizer and a model card; the one in memory stays as it is."""
        target = Path(folder)
        method = self._only_method
        card = model_card(
            self.lm,
            method,
            self.settings[method],
            self.table,
            self.summary(),
            is_one=len(self.edits) == 1,
        )
        if self.written:
            self._save_checkpoint(target)
        else:
            for edit in self.edits:
                only_weights(edit, "writing")
            with apply(self.lm, self.composed()):
                self._save_checkpoint(target)
        write_whole(target / "README.md", card)
        return target

    def _save_checkpoint(self, target: Path) -> None:
        self.lm.network.save_pretrained(target)
        self.lm.tokenizer.save_pretrained(target)


def report_paths(path: Path) -> list[Path]:
    """The files of a report: ``table.csv``, ``table-summary.csv`` and ``table-texts.csv``."""
    format_of(path)
    others = [path.with_name(f"{path.stem}-{part}{path.suffix}") for part in ("summary", "texts")]
    return [path, *others]


def load_edits(folder: Path | str, lm: LanguageModel) -> EditedFacts:
    """What ``save`` wrote into a folder, for the model it was made for; another one is an ``EditError``."""
    source_folder = Path(folder)
    index = read_index(source_folder)
    made_for = index["model"]
    if made_for["fingerprint"] != lm.fingerprint:
        raise EditError(
            f"{source_folder} holds edits of {made_for['model']} in {made_for['dtype']}"
            f" ({made_for['fingerprint']}), not of {lm.name} in {lm.dtype_name} ({lm.fingerprint}): load"
            " that model, unedited"
        )

    def edits_of(names: Sequence[str]) -> tuple[Edit, ...]:
        return tuple(Edit.load(source_folder / name).to(lm.device) for name in names)

    loaders: dict[str, Callable[[], tuple[Edit, ...]]] = {}
    for method, names in index["files"].items():
        loaders[method] = partial(edits_of, names)
    tables = {name: pd.DataFrame(index[name]) for name in _TABLES}
    facts = tuple(Fact(**fact) for fact in index["facts"])
    return EditedFacts(lm, facts, loaders, index["settings"], **tables)


def read_index(folder: Path) -> dict[str, Any]:
    """The ``edits.json`` of a folder that ``save`` wrote."""
    path = folder / INDEX
    if not path.is_file():
        raise UserError(f"no {path}: give a folder that save, or helpers edit --save, wrote")
    index = read_json(read_text(path), str(path))
    names = {"model", "facts", "settings", "files", *_TABLES}
    if not isinstance(index, dict) or not names <= index.keys():
        raise UserError(f"{path} is no list of edits: save the edits again")
    return index


def _table_records(table: pd.DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(table.to_json(orient="records", double_precision=15))
    return rows
