"""What an edit costs: seconds without what is made once, and bytes of its file."""

from __future__ import annotations

import pytest

from helpers import UserError
from tools.edit_costs import costs_of


def test_costs_are_seconds_and_bytes_of_an_edit(tiny, make_editor, requests):
    editor = make_editor("rome", tiny("llama"))
    costs = costs_of(editor, requests)
    assert costs.edits == len(requests) - 1
    assert costs.cpu_seconds > 0
    assert costs.bytes > 4 * (32 + 48)  # the factors of an edit of rank one
    with pytest.raises(UserError, match="two records or more"):
        costs_of(editor, requests[:1])
