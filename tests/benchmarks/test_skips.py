"""What a benchmark cannot have is left out with a word, and the rest is measured."""

from __future__ import annotations

import pandas as pd

from benchmarks import locating, precision
from helpers import models
from helpers.locating.locators import LOCATORS, ActivationMagnitude


class _TooLarge(ActivationMagnitude):
    def scores(self, *_):
        raise MemoryError("too large for this machine")


def test_a_locator_that_raises_is_left_out(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(models, "load", lambda *_, **__: tiny("llama"))
    monkeypatch.setitem(LOCATORS, "large", _TooLarge)
    locating.main("tiny-llama", "activation,large,random", sentences=1, folder=tmp_path)
    (file,) = tmp_path.glob("*.parquet")
    assert list(pd.read_parquet(file)["x"]) == ["activation", "random"]
    assert "large is left out: too large" in capsys.readouterr().err


def test_a_method_without_a_network_is_left_out(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(models, "load", lambda *_, **__: tiny("llama"))
    monkeypatch.setattr(precision, "preset_of", lambda _: "generic")
    precision.main("tiny-llama", "peak-mini-cf", 1, "mend,ft-m", folder=tmp_path)
    (file,) = tmp_path.glob("*.parquet")
    assert list(pd.read_parquet(file)["method"]) == ["ft-m"]
    assert "mend is left out" in capsys.readouterr().err
