"""Small graphs to build from."""

import pytest

from helpers.construction.facts import packaged_relations
from helpers.construction.graph import Graph, read_graph
from helpers.construction.sources import packaged_store


@pytest.fixture(scope="session")
def packaged_graph() -> Graph:
    """The packaged facts as a graph."""
    return read_graph(packaged_store(), sorted(packaged_relations()))
