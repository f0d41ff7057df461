"""An explorer with a tiny random model and a quick editor, and facts to edit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.editing.app import App
from helpers.editing.ft import Ft, FtHyperparameters
from helpers.explorer.one_edit import LISTING, ChainExplorer, Explorer
from helpers.peak.records import load_peak
from helpers.results.store import ResultsStore
from helpers.thinkedit.knowgic import load_edited_graphs
from tests.shortened import shortened


class QuickExplorer(Explorer):
    """Fine-tuning in two steps, under every editor's name but one that does not exist; as "memit" in
    so many that there is time to cancel."""

    def editor(self, name, *, app=False):
        if name == "mend":
            raise ValueError("no network <for this> model")
        steps = FtHyperparameters(layers=(1,), num_steps=2, lr=0.01)
        if name == "memit":
            steps = steps.model_copy(update={"num_steps": 1_000_000, "lr": 1e-9})
        return Ft(self.lm, steps, App() if app else None)


def quick_explorer(model):
    """An explorer that samples two short continuations."""
    return QuickExplorer(model, samples=2, sampling=replace(LISTING, max_new_tokens=4))


def short_records():
    """Two facts about one subject, one about another, with two answers a list: quick to edit."""
    every = load_peak("peak-mini-cf").records
    subjects = [record.subject for record in every]
    twice = [r for r in every if subjects.count(r.subject) > 1]
    pair = [r for r in twice if r.subject == twice[0].subject][:2]
    other = next(r for r in every if r.subject != twice[0].subject)
    return tuple(shortened(record, locality=1) for record in (*pair, other))


@pytest.fixture
def explorer(tiny):
    return quick_explorer(tiny("llama"))


@pytest.fixture(scope="session")
def records():
    return short_records()


@pytest.fixture
def chains(tiny, tmp_path):
    return ChainExplorer(tiny("llama"), load_edited_graphs("mini")[1:], ResultsStore(tmp_path))
