"""Which editor: the table of editors, and the names of methods and variants made of them.

A method is an editor, alone, with an objective (APP, icd), or with all answers as targets:

    rome → ROME      rome+app → ROME+APP      rome+icd → ROME+ICD
    rome+all → ROME+ (mean)      rome+all-sum → ROME+ (sum): the fairer baseline, Table 5

A variant changes one field of APP or icd, or one of ``DOSES``, to a value or (ending in ``x``) by a factor:

    rome+app@alpha=0x → without L1      rome+app@neighbours=3      rome@kl_factor=2x
    rome+icd@gamma=0.1 → with APP's L3

Figures need names but no torch: an editor's class is imported when it is needed. How an editor looks in
them is in ``results/looks.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal, get_type_hints

from helpers import UserError
from helpers.editing.app import OBJECTIVES, SYMBOLS
from helpers.editing.icd import ICD_SYMBOLS
from helpers.records import did_you_mean


class EditorError(UserError):
    """An editor, method, preset or hyperparameter that does not exist, with the remedy."""


@dataclass(frozen=True)
class NamedEditor:
    """One row of ``EDITORS``."""

    name: str
    label: str  # in tables and figures
    class_path: str  # module in this folder and class
    values: Mapping[str, Any] = field(default_factory=dict)  # that the name itself implies
    loss: bool = True  # which APP, icd and further targets can join
    same_as_single: str = ""  # the editor that makes the same update where each edit is made alone
    reported: tuple[str, ...] = ()  # hyperparameters that are printed next to its numbers
    # What a sequence's edit was told: each request once, or all of them again and again.
    information: Literal["once", "all"] = "once"

    @property
    def editor_class(self) -> Any:
        """The editor's class."""
        module_name, _, class_name = self.class_path.rpartition(".")
        return getattr(import_module(f"{__package__}.{module_name}"), class_name)

    @property
    def section(self) -> str:
        """Its section of ``params/models/<model>.yaml``: the class in lower case."""
        return self.class_path.rpartition(".")[2].lower()

    @property
    def hyperparameters(self) -> Any:
        """The class its hyperparameters are checked with."""
        return get_type_hints(self.editor_class)["hyperparameters"]


_ROWS = (
    NamedEditor("alphaedit", "AlphaEdit", "memit.AlphaEdit"),
    NamedEditor("nas", "NAS", "memit.AlphaEdit", {"norm_feedback": True}),
    NamedEditor("memit", "MEMIT", "memit.Memit"),
    NamedEditor(
        "memit-seq",
        "MEMIT accumulated",
        "memit.Memit",
        {"accumulate": True},
        same_as_single="memit",
    ),
    NamedEditor("encore", "ENCORE", "encore.Encore"),
    NamedEditor("emmet", "EMMET (e = 0)", "emmet.Emmet"),
    NamedEditor("ultraedit", "UltraEdit", "ultraedit.UltraEdit", reported=("lr",)),
    NamedEditor("rect", "RECT", "rect_prune.Rect"),
    NamedEditor("prune", "PRUNE", "rect_prune.Prune", same_as_single="memit"),
    NamedEditor(
        "prune-added",
        "PRUNE added",
        "rect_prune.Prune",
        {"prune_compat": "added"},
        same_as_single="memit",
    ),
    NamedEditor("simie", "SimIE", "simie.Simie"),
    NamedEditor("rome", "ROME", "rome.Rome"),
    NamedEditor("r-rome", "R-ROME", "rome.Rome", {"rome_key": "averaged"}),
    NamedEditor("ft-m", "FT-M", "ft.Ft", {"objective": "target_new"}),
    NamedEditor("ft-l", "FT-L", "ft.Ft", {"objective": "prompt_last"}),
    NamedEditor("ft-bf", "FT-BF", "ftbf.FtBf", information="all"),
    NamedEditor("lora", "LoRA", "lora.Lora", reported=("lr",)),
    NamedEditor("kn", "KN", "kn.Kn", loss=False, reported=("steps", "adaptive_threshold", "p")),
    NamedEditor("mend", "MEND", "mend.Mend"),
    NamedEditor("grace", "GRACE", "grace.Grace", loss=False, reported=("epsilon",)),
    NamedEditor("memoir", "MEMOIR", "memoir.Memoir", loss=False, reported=("mask_share",)),
    NamedEditor("in-context", "In context", "in_context.InContext", loss=False),
    NamedEditor("ike", "IKE", "in_context.Ike", loss=False, reported=("k",)),
    NamedEditor("memory-bm25", "Memory (BM25)", "memory.Memory", {"retriever": "bm25"}, loss=False),
    NamedEditor(
        "memory-hidden", "Memory (hidden)", "memory.Memory", {"retriever": "hidden"}, loss=False
    ),
)
EDITORS = {editor.name: editor for editor in _ROWS}  # in the order of tables and figures

_SUFFIXES = {"": "", "app": "+APP", "icd": "+ICD", "all": "+ (mean)", "all-sum": "+ (sum)"}
_NAME = re.compile(r"([^@]+)(@([a-z_]+)=([0-9.]+)(x?))?")
DOSES = (
    "kl_factor",
    "clamp_norm_factor",
    "norm_constraint",
)  # of hyperparameters, not of APP or icd
# What a variant can change after each suffix, as tables write it.
_SYMBOLS_AFTER: Mapping[str, Mapping[str, str]] = {"app": SYMBOLS, "icd": ICD_SYMBOLS}


def split_method(method: str) -> tuple[NamedEditor, str]:
    """The editor of a method, and what follows its ``+``: empty, app, icd, all or all-sum."""
    name, _, suffix = str(method).partition("+")
    if name not in EDITORS or suffix not in _SUFFIXES:
        known = [editor + ("+" + end if end else "") for editor in EDITORS for end in _SUFFIXES]
        raise EditorError(
            f"no method {method!r}{did_you_mean(method, known)}: write an editor"
            f" ({', '.join(EDITORS)}), optionally followed by +app, +icd, +all or +all-sum"
        )
    editor = EDITORS[name]
    if suffix and not editor.loss:
        raise EditorError(f"no method {method!r}: {editor.label} has no loss; omit +{suffix}")
    return editor, suffix


def method_label(method: str) -> str:
    """The heading of a method's row."""
    editor, suffix = split_method(method)
    return editor.label + _SUFFIXES[suffix]


def method_named(label: str) -> str:
    """The method that a row or a stored table has this heading of: ``rome+app`` for "ROME+APP"."""
    method_of_label = {
        editor.label + ending: f"{editor.name}+{suffix}" if suffix else editor.name
        for editor in _ROWS
        for suffix, ending in _SUFFIXES.items()
    }
    if label not in method_of_label:
        hint = did_you_mean(label, method_of_label)
        raise EditorError(f"no method has the label {label!r}{hint}: publish its table again")
    return method_of_label[label]


def distinct(methods: Iterable[str]) -> list[str]:
    """The methods, by name or by label, without those that make another one's updates by construction.

    Where each edit is made alone, PRUNE restrains nothing and is MEMIT: a test between the two has nothing
    to find, and both together count one editor twice. In sequences they differ.
    """
    by_label = {editor.label: editor for editor in _ROWS}
    all_methods = list(methods)
    distinct_methods = []
    for method in all_methods:
        name, plus, suffix = method.partition("+")
        editor = EDITORS.get(name) or by_label.get(name)
        twin = editor.same_as_single if editor else ""
        if twin and name not in EDITORS:
            twin = EDITORS[twin].label
        if not twin or twin + plus + suffix not in all_methods:
            distinct_methods.append(method)
    return distinct_methods


@dataclass(frozen=True)
class Variant:
    """A method, with ``field`` replaced by ``value`` or multiplied by it (``times``)."""

    method: str
    field: str = ""
    value: float = 0.0
    times: bool = False

    def __post_init__(self) -> None:
        _, suffix = split_method(self.method)
        if self.field not in ("", *DOSES, *_SYMBOLS_AFTER.get(suffix, ())):
            raise EditorError(
                f"no variant {self!s}: write @FIELD=VALUE or @FIELD=FACTORx with one of"
                f" {', '.join(DOSES)}, or after a method with +app {', '.join(SYMBOLS)}, with +icd"
                f" {', '.join(ICD_SYMBOLS)}"
            )

    @classmethod
    def parse(cls, name: str) -> Variant:
        """The variant of a name such as ``rome+app@beta=2x``; an ``EditorError`` for any other name."""
        if (match := _NAME.fullmatch(name)) is None:
            raise EditorError(f"no variant {name!r}: write METHOD, or METHOD+app@FIELD=VALUE")
        method, _, field, value, times = match.groups()
        return cls(method, field or "", float(value or 0), bool(times))

    def __str__(self) -> str:
        return self.method + f"@{self.field}={self.value:g}{'x' * self.times}" * bool(self.field)

    def changed(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a method's APP or icd, or its hyperparameters, with the variant's change."""
        if self.field not in values or (self.times and values[self.field] is None):
            raise EditorError(f"no variant {self!s}: {self.method} has no {self.field} to change")
        value = self.value * (values[self.field] if self.times else 1)
        return {**values, self.field: int(value) if self.field == "neighbours" else value}

    @property
    def editor(self) -> str:
        """The name of the method's editor, without what follows its ``+``."""
        return self.method.partition("+")[0]

    @property
    def change(self) -> str:
        """What is changed, in a table's words; empty for the method as it is."""
        symbol = (SYMBOLS | ICD_SYMBOLS).get(self.field, self.field)
        if self.times and not self.value and self.field in OBJECTIVES:
            return f"without {OBJECTIVES[self.field]}"
        text = f"{self.value:g} {symbol}" if self.times else f"{symbol} = {self.value:g}"
        return text if self.field else ""

    @property
    def label(self) -> str:
        """The heading of its row."""
        return ", ".join(filter(None, [method_label(self.method), self.change]))


def objectives(editor: str) -> list[Variant]:
    """The plain method, with APP, and with APP short of one objective (PEAK, Figures 3 and 5)."""
    names = ("", "+app", *(f"+app@{field}=0x" for field in OBJECTIVES))
    return [Variant.parse(editor + name) for name in names]


def fairer(editor: str) -> list[Variant]:
    """The plain method, with all answers as targets in both weightings, with APP (PEAK, Table 5)."""
    return [Variant(editor + suffix) for suffix in ("", "+all", "+all-sum", "+app")]
