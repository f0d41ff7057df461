"""What an edit costs: seconds without what is made once, and bytes of its file."""

from __future__ import annotations

import pytest

from helpers import UserError
from helpers.comparison.measures import COSTS
from helpers.results.archive import Archive
from tools import edit_costs
from tools.edit_costs import costs_of


def test_costs_are_seconds_and_bytes_of_an_edit(tiny, make_editor, requests):
    editor = make_editor("rome", tiny("llama"))
    costs = costs_of(editor, requests)
    assert costs.edits == len(requests) - 1
    assert costs.cpu_seconds > 0
    assert costs.bytes > 4 * (32 + 48)  # the factors of an edit of rank one
    with pytest.raises(UserError, match="two records or more"):
        costs_of(editor, requests[:1])


def test_each_method_is_stored_as_soon_as_it_is_measured(tmp_path, monkeypatch):
    stored = Archive(tmp_path)
    monkeypatch.setattr(edit_costs, "archive", lambda kind: stored)
    options = {"dataset": "peak-mini-cf", "records": 2, "preset": "generic"}
    with pytest.raises(UserError, match="no method 'no-editor'"):
        edit_costs.main("shape:tiny", ["in-context", "no-editor"], **options)
    edit_costs.main("shape:tiny", ["memory-bm25"], **options)
    (run,) = stored.runs()
    assert run.tables[COSTS]["method"].tolist() == ["in-context", "memory-bm25"]
    assert run.tables[COSTS]["edits"].tolist() == [1, 1]
