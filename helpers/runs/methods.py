"""Methods as tables name them: an editor, alone, with APP, or with all answers as targets.

``rome`` → ROME, ``rome+app`` → ROME+APP, ``rome+all`` → ROME+ (the fairer baseline, PEAK Table 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from helpers.editing.app import App
from helpers.editing.build import EDITOR_NAMES, build_editor
from helpers.editing.editor import Editor
from helpers.models.language_model import LanguageModel

LABELS = {
    "rome": "ROME",
    "r-rome": "R-ROME",
    "memit": "MEMIT",
    "alphaedit": "AlphaEdit",
    "rect": "RECT",
    "prune": "PRUNE",
    "ft-l": "FT-L",
    "ft-m": "FT-M",
    "kn": "KN",
    "mend": "MEND",
}
_SUFFIXES = {"": "", "app": "+APP", "all": "+"}


class MethodError(ValueError):
    """Raised for a method name that does not parse, listing those that do."""


def method_label(method: str) -> str:
    """The heading of a method's row.

    Raises:
        MethodError: unknown editor or suffix.
    """
    name, _, suffix = method.partition("+")
    if name not in LABELS or suffix not in _SUFFIXES:
        raise MethodError(
            f"no method {method!r}: write an editor ({', '.join(EDITOR_NAMES)}), optionally followed"
            " by +app or +all"
        )
    return LABELS[name] + _SUFFIXES[suffix]


def build_method(
    method: str,
    language_model: LanguageModel,
    *,
    preset: str,
    app: App | None = None,
    overrides: Mapping[str, Any] | None = None,
    **options: Any,
) -> Editor:
    """Build a method's editor; ``options`` as in ``build_editor`` (corpus, seed, progress).

    ``app`` replaces the params file's coefficients for ``+app`` methods.
    """
    method_label(method)
    name, _, suffix = method.partition("+")
    return build_editor(
        name,
        language_model,
        preset=preset,
        app=(app or True) if suffix == "app" else None,
        targets="all" if suffix == "all" else "new",
        overrides=overrides,
        **options,
    )


def build_methods(
    methods: Sequence[str], language_model: LanguageModel, **options: Any
) -> dict[str, Editor]:
    """Editors by label, in the order given."""
    return {method_label(m): build_method(m, language_model, **options) for m in methods}
