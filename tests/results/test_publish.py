"""One loop publishes any paper's parts: what is there is not made again, and no other source joins it."""

from __future__ import annotations

import pandas as pd
import pytest

from helpers import UserError
from helpers.results.archive import About, Archive, ArchiveError
from helpers.results.publish import Part, Publication, publish_parts

SOURCE = {"model": "tiny"}


def rows(*case_ids):
    return pd.DataFrame({"case_id": case_ids, "sum": [each / 3 for each in case_ids]})


@pytest.fixture
def into(tmp_path):
    return Archive(tmp_path / "paper")


def part(made, name, *cases, settings=None, finished=None):
    def make():
        made.append(name)
        return rows(*cases)

    stored = None if finished is None else lambda: rows(*finished)
    return Part(name, settings or {"layers": (1, 2)}, make, stored, cases)


def publish(into, *parts, source=SOURCE, preset="tuned", records=(1, 2), **options):
    relations = {str(case_id): "P17" for case_id in records}
    about = About(source, caption={"relations": relations, "preset": preset})
    return publish_parts(Publication("run", about, parts), into, **options)


def test_only_what_is_missing_is_made(into):
    made = []
    publish(into, part(made, "a: rome, deep", 1, 2), part(made, "b", 1))
    parts = [part(made, "a: rome, deep", 1, 2), part(made, "a: ft", 2), part(made, "b", 1)]
    lines = []
    publish(into, *parts, tell=lines.append)
    assert lines == ["run: making a: ft, table 1 of 1"]
    assert made == ["a: rome, deep", "b", "a: ft"]
    run = into.get("run")
    settings = {name: {"layers": [1, 2]} for name in ("a: rome, deep", "b", "a: ft")}
    assert run.about == About(
        SOURCE, settings, {"relations": {"1": "P17", "2": "P17"}, "preset": "tuned"}
    )
    assert run.kinds == ["a", "b"]
    pd.testing.assert_frame_equal(run.joined("a"), rows(1, 2, 2))
    with pytest.raises(
        ArchiveError, match=r"run 'run' has no table 'c': publish it .* model: tiny"
    ):
        run.joined("c")


@pytest.mark.parametrize(
    ("second", "cases"), [({"settings": {"layers": [3]}}, (1, 2)), ({}, (1, 2, 3))]
)
def test_other_settings_and_further_cases_are_made(into, second, cases):
    made = []
    publish(into, part(made, "a", 1, 2))
    publish(into, part(made, "a", *cases, **second))
    assert made == ["a", "a"]
    assert into.get("run").tables["a"]["case_id"].tolist() == list(cases)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"source": {"model": "large"}}, "model 'tiny', now 'large'"),
        ({"records": (2, 3)}, "has records that this run lacks"),
        ({"preset": "paper"}, "is of preset tuned, this run of paper: .* under --name NAME"),
    ],
)
def test_another_source_or_preset_or_fewer_records_are_refused_before_anything_is_made(
    into, other, words
):
    made = []
    publish(into, part(made, "a", 1, 2))
    with pytest.raises(ArchiveError, match=words):
        publish(into, part(made, "b", 1), **other)
    assert made == ["a"]


def test_finished_stores_what_is_there_and_makes_nothing(into):
    made = []
    with pytest.raises(UserError, match="nothing of run is finished"):
        publish(into, part(made, "a", 1, 2, finished=()), part(made, "b", 1), from_store_only=True)
    assert not into.root.exists()
    publish(into, part(made, "a", 1, 2, finished=(2,)), part(made, "b", 1), from_store_only=True)
    assert not made
    assert {name: len(table) for name, table in into.get("run").tables.items()} == {"a": 1}
    publish(into, part(made, "a", 1, 2, finished=(2,)), part(made, "b", 1))
    assert made == ["a", "b"]


def test_an_interrupted_run_keeps_its_finished_parts(into):
    made = []

    def fail():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish(into, part(made, "a", 1), Part("b", {}, fail))
    publish(into, part(made, "a", 1), part(made, "b", 1))
    assert made == ["a", "b"]
