"""The ablations' tables, from results made up by hand."""

from __future__ import annotations

import pandas as pd

from helpers.editing.editors import Variant
from helpers.peak.ablations import with_neighbours


def test_the_whole_list_is_last_of_the_neighbours():
    names = ("rome+app@neighbours=3", "rome+app", "rome+app@neighbours=1", "rome")
    metrics = {Variant.parse(name): pd.DataFrame({"AFF_hard": [0.5]}) for name in names}
    assert [str(v) for v in with_neighbours(metrics, "rome")] == [names[2], names[0], names[1]]
