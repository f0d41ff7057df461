"""YAML as the project's files have it: a key that stands twice is an error, not the last one's value."""

from __future__ import annotations

from typing import Any

import yaml

MOST_VALUES = 10_000


class _Loader(yaml.SafeLoader):
    """Plain values only, and every key of a mapping once, besides what it merges from another."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} stands twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return node


def _check_size(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Values a node stands for, aliases written out; few lines may stand for millions."""
    if id(node) not in sizes:
        sizes[id(node)] = MOST_VALUES  # a node inside itself
        items = [] if isinstance(node, yaml.ScalarNode) else node.value
        inner = [each for item in items for each in (item if isinstance(item, tuple) else (item,))]
        sizes[id(node)] = 1 + sum(_check_size(each, sizes) for each in inner)
        if sizes[id(node)] > MOST_VALUES:
            raise yaml.MarkedYAMLError(
                problem=f"more than {MOST_VALUES} values, counting what aliases repeat",
                problem_mark=node.start_mark,
            )
    return sizes[id(node)]


def load_yaml(text: str) -> Any:
    """Read one document.

    Raises:
        yaml.YAMLError: not YAML, more than ``MOST_VALUES`` values, a key that stands twice, or a value
            that is no plain one.
    """
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _check_size(node, {})
        return loader.construct_document(node)
    except RecursionError as error:
        raise yaml.YAMLError("nested too deeply") from error
    finally:
        loader.dispose()
