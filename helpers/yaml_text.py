"""YAML as the project's files have it: a key that stands twice is an error, not the last one's value."""

from __future__ import annotations

from typing import Any

import yaml


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


def load_yaml(text: str) -> Any:
    """Read one document.

    Raises:
        yaml.YAMLError: not YAML, a key that stands twice, or a value that is no plain one.
    """
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()
