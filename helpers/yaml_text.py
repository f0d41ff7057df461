"""YAML as the project's files have it: a key that stands twice is an error, not the last one's value."""

from __future__ import annotations

import re
from typing import Any

import yaml

MOST_VALUES = 10_000
_OTHER_BASE = re.compile(r"[-+]?0\d|.*:")


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

    def construct_yaml_int(self, node: yaml.ScalarNode) -> Any:
        """Text where YAML 1.1 counts by 60 or 8, as nobody means: 12:30 is no 750, 010 no 8."""
        return node.value if _OTHER_BASE.match(node.value) else super().construct_yaml_int(node)

    def construct_yaml_float(self, node: yaml.ScalarNode) -> Any:
        """Likewise 1:30.5."""
        return node.value if ":" in node.value else super().construct_yaml_float(node)


for _kind in ("int", "float"):
    _Loader.add_constructor(
        f"tag:yaml.org,2002:{_kind}", getattr(_Loader, f"construct_yaml_{_kind}")
    )


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
