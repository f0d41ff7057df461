"""Records that a model can be asked about: all are tokenised before the first of them is edited."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from helpers.models.language_model import LanguageModel
from helpers.peak.asked import askable
from helpers.peak.records import PeakData, load_peak


def load_usable(
    language_model: LanguageModel, name_or_path: str, *, skip_bad: bool = False, **options: Any
) -> PeakData:
    """``load_peak`` for a model.

    Args:
        language_model: what will be asked.
        name_or_path: as for ``load_peak``.
        skip_bad: leave out records that break the schema or cannot be asked, each named in the
            data's ``skipped``.
        options: further ones of ``load_peak``.

    Raises:
        UserError: such records, by name, or no record is left; and the errors of ``load_peak``.
    """
    data = load_peak(name_or_path, skip_bad=skip_bad, **options)
    return usable(language_model, data, skip_bad=skip_bad)


def usable(language_model: LanguageModel, data: PeakData, *, skip_bad: bool = False) -> PeakData:
    """``load_usable`` for records that are read already."""
    found = askable(language_model, data.records, where=str(data.path)).checked(skip_bad=skip_bad)
    skipped = (*data.skipped, *found.wrong.values())
    return replace(data, records=tuple(found.records.values()), skipped=skipped)
