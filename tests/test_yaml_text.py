"""Keys that stand twice are refused; merged ones may be replaced."""

import pytest
import yaml

from helpers.yaml_text import load_yaml

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


def test_keys_that_are_no_texts_are_yaml_errors():
    with pytest.raises(yaml.YAMLError, match="unhashable"):
        load_yaml("? [a, b]\n: 1")


def test_only_plain_values_are_made():
    with pytest.raises(yaml.YAMLError):
        load_yaml("!!python/object/apply:os.getcwd []")


def test_numbers_are_those_that_are_written():
    """YAML 1.1 counts 12:30 by 60 and 010 by 8."""
    read = load_yaml("[12:30, 010, 1:30.5, 12, 0, 1.5, -3]")
    assert read == ["12:30", "010", "1:30.5", 12, 0, 1.5, -3]
