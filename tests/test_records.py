"""A YAML key stands once; a record by its number, or a sentence that names those there are."""

import pytest
import yaml

from helpers import UserError
from helpers.peak.records import load_peak
from helpers.records import by_case_id, load_yaml

MERGED = """
first: &first {rate: 1, steps: 5}
deep: {inner: &inner {<<: *first, rate: 2}}
second: {<<: *inner, steps: 6}
"""


def test_merged_keys_may_be_replaced():
    read = load_yaml(MERGED)
    assert read["second"] == {"rate": 2, "steps": 6}
    assert read["deep"]["inner"] == {"rate": 2, "steps": 5}


@pytest.mark.parametrize("text", ["a: 1\na: 2", "a: {b: 1, c: 2, b: 1}", "- {a: 1, 'a': 2}"])
def test_a_key_that_stands_twice_is_an_error(text):
    with pytest.raises(yaml.YAMLError, match=r"stands twice\n.*line"):
        load_yaml(text)


def test_only_plain_values_are_made():
    with pytest.raises(yaml.YAMLError):
        load_yaml("!!python/object/apply:os.getcwd []")


def test_the_record_or_the_numbers_there_are():
    records = load_peak("peak-mini-cf", limit=8).records
    assert by_case_id(records, records[3].case_id) is records[3]
    with pytest.raises(UserError, match=r"no case_id -1; there are 0, 1, .*, … 7"):
        by_case_id(records, -1)
    with pytest.raises(UserError, match=r"there are 0, 1$"):
        by_case_id(records[:2], 9)
