"""The atlas of identities: every row as its two formulas, with the difference that it is held to."""

from __future__ import annotations

import pytest
import torch

from helpers.editing.identities import IDENTITIES, identity_table, made_up_problem
from helpers.editing.key_history import compact


@pytest.mark.parametrize("identity", IDENTITIES, ids=lambda identity: identity.name)
def test_what_is_called_one_method_is_one(tiny, identity) -> None:
    difference = identity.measure(tiny("llama"))
    assert identity.holds(difference), difference


def test_the_table_shows_every_row_with_its_difference(tiny) -> None:
    table = identity_table(tiny("llama"))
    assert table.index.tolist() == [identity.name for identity in IDENTITIES]
    assert table["as stated"].all()
    assert not table.loc["memit", "one method"]
    assert table.loc["memit", "difference"] > 0.01 > 1e-9 > table.loc["memit-seq", "difference"]


def test_a_history_of_many_keys_takes_no_more_columns_than_they_have_numbers() -> None:
    keys = torch.randn(6, 13, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert compact(keys[:, :12]) is not None
    assert compact(keys[:, :12]).shape == (6, 12)
    fewer = compact(keys)
    assert fewer.shape == (6, 6)
    torch.testing.assert_close(fewer @ fewer.T, keys @ keys.T)
    assert made_up_problem().keys.shape[1] == 5
