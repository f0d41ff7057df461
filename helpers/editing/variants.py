"""Methods and their variants by name.

A method is an editor, alone, with APP, or with all answers as targets:

    rome → ROME      rome+app → ROME+APP
    rome+all → ROME+ (mean)      rome+all-sum → ROME+ (sum): the fairer baseline, Table 5

A variant changes one field of APP, to a value or (ending in ``x``) by a factor:

    rome+app@alpha=0x → without L1      rome+app@neighbours=3      rome+app@margin=4
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from helpers.editing.app import OBJECTIVES, SYMBOLS
from helpers.editing.registry import editors

_SUFFIXES = {"": "", "app": "+APP", "all": "+ (mean)", "all-sum": "+ (sum)"}
_NAME = re.compile(r"(?P<method>[^@]+)(@(?P<field>[a-z]+)=(?P<value>[0-9.]+)(?P<times>x?))?")


class MethodError(ValueError):
    """Raised for a method or variant name that does not parse, listing those that do."""


def method_label(method: str) -> str:
    """The heading of a method's row.

    Raises:
        MethodError: unknown editor or suffix.
    """
    name, _, suffix = method.partition("+")
    if name not in editors() or suffix not in _SUFFIXES:
        raise MethodError(
            f"no method {method!r}: write an editor ({', '.join(editors())}), optionally followed"
            " by +app, +all or +all-sum"
        )
    editor = editors()[name]
    if suffix and not editor.loss:
        raise MethodError(
            f"no method {method!r}: {editor.label} optimises no loss that answers could join"
        )
    return editor.label + _SUFFIXES[suffix]


@dataclass(frozen=True)
class Variant:
    """A method, with ``field`` of its APP replaced by ``value`` or multiplied by it (``times``)."""

    method: str
    field: str = ""
    value: float = 0.0
    times: bool = False

    def __post_init__(self) -> None:
        method_label(self.method)
        if self.field and (self.field not in SYMBOLS or not self.method.endswith("+app")):
            raise MethodError(
                f"no variant {self!s}: after a method with +app write @FIELD=VALUE or"
                f" @FIELD=FACTORx with one of {', '.join(SYMBOLS)}"
            )

    @classmethod
    def parse(cls, name: str) -> Variant:
        """The variant of a name; see the module's description.

        Raises:
            MethodError: not the name of a variant.
        """
        match = _NAME.fullmatch(name)
        if match is None:
            raise MethodError(f"no variant {name!r}: write METHOD, or METHOD+app@FIELD=VALUE")
        if match["field"] is None:
            return cls(match["method"])
        return cls(match["method"], match["field"], float(match["value"]), bool(match["times"]))

    def __str__(self) -> str:
        change = f"@{self.field}={self.value:g}{'x' * self.times}" if self.field else ""
        return self.method + change

    @property
    def editor(self) -> str:
        """The editor alone."""
        return self.method.partition("+")[0]

    @property
    def change(self) -> str:
        """What is changed, in a table's words; empty for the method as it is."""
        if self.times and not self.value and self.field in OBJECTIVES:
            return f"without {OBJECTIVES[self.field]}"
        if self.times:
            return f"{self.value:g} {SYMBOLS[self.field]}"
        return f"{SYMBOLS[self.field]} = {self.value:g}" if self.field else ""

    @property
    def label(self) -> str:
        """The heading of its row."""
        return ", ".join(filter(None, [method_label(self.method), self.change]))


def objectives(editor: str) -> list[Variant]:
    """The plain method, with APP, and with APP short of one objective (PEAK, Figures 3 and 5)."""
    whole = Variant(f"{editor}+app")
    short = [Variant(whole.method, field, 0.0, True) for field in OBJECTIVES]
    return [Variant(editor), whole, *short]


def fairer(editor: str) -> list[Variant]:
    """The plain method, with all answers as targets in both weightings, with APP (PEAK, Table 5)."""
    return [Variant(editor + suffix) for suffix in ("", "+all", "+all-sum", "+app")]
