"""The citation is whole and of this version."""

from __future__ import annotations

import yaml

import helpers
from helpers.paths import REPOSITORY


def test_the_citation_is_whole_and_of_this_version():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text("utf-8"))
    assert {"cff-version", "message", "title", "authors", "abstract"} <= citation.keys()
    assert citation["version"] == helpers.__version__
    papers = citation["references"]
    assert len(papers) == 3
    assert all(paper["authors"] and paper["title"] and paper["url"] for paper in papers)
