"""All wrong records of a file are named at once; a record by its number, or the numbers there are."""

import pytest
from pydantic import BaseModel

from helpers import UserError
from helpers.peak.records import load_peak
from helpers.records import by_case_id, compared, read_all, read_json


class Fact(BaseModel):
    subject: str
    year: int


def test_all_wrong_records_are_named_in_one_line():
    good, bad = {"subject": "Oslo", "year": 1048}, {"year": "soon"}
    assert read_all([("f.json, 0", good)], Fact.model_validate) == [Fact(**good)]
    items = [("f.json, 0", good), ("f.json, 1", bad), *((f"f.json, {n}", {}) for n in range(2, 8))]
    with pytest.raises(UserError) as error:
        read_all(items, Fact.model_validate)
    (line,) = str(error.value).splitlines()
    assert "f.json, 1: subject: field required" in line
    assert "year: input should be a valid integer" in line
    assert "f.json, 5: " in line
    assert line.endswith("; and 2 more: nothing was edited yet; correct the file")


def test_what_is_not_json_is_named():
    with pytest.raises(UserError, match=r"f\.json, line 3: not JSON"):
        read_json("{", "f.json, line 3")


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("Côte d’Ivoire ", "CÔTE D'IVOIRE", True),
        ("Peru", "Peru\u200b", True),
        ("New  York", "New\u00a0York", True),
        ("ﬁnch", "FINCH", True),
        ("Perú", "Peru", False),  # an accent makes another name
        ("Guinea-Bissau", "Guinea Bissau", False),
        ("\ufeff", "", True),
    ],
)
def test_names_are_compared_as_people_do(one, other, equal):
    assert (compared(one) == compared(other)) == equal


def test_the_record_or_the_numbers_there_are():
    records = load_peak("peak-mini-cf", limit=8).records
    assert by_case_id(records, records[3].case_id) is records[3]
    with pytest.raises(UserError, match=r"no case_id -1; there are 0, 1, .*, … 7"):
        by_case_id(records, -1)
    with pytest.raises(UserError, match=r"there are 0, 1$"):
        by_case_id(records[:2], 9)
