"""A record by its number, or a sentence that names those there are."""

import pytest

from helpers.peak.records import load_peak
from helpers.records import by_case_id


def test_the_record_or_the_numbers_there_are():
    records = load_peak("peak-mini-cf", limit=8).records
    assert by_case_id(records, records[3].case_id) is records[3]
    with pytest.raises(ValueError, match=r"no case_id -1; there are 0, 1, .*, … 7"):
        by_case_id(records, -1)
    with pytest.raises(ValueError, match=r"there are 0, 1$"):
        by_case_id(records[:2], 9)
