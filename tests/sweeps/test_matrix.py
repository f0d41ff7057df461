"""A sweep file expands to checked runs; mistakes name the file and the remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from helpers import UserError
from helpers.params import read_params
from helpers.paths import PARAMS, REPOSITORY
from helpers.peak.records import load_peak
from helpers.sweeps.matrix import Sweep, expand, read_sweep

SMALL = {"models": ["m"], "datasets": ["peak-mini-cf"], "editors": ["rome"]}


def expanded(sweep, where="mine.yaml"):
    return expand(sweep, source=where, folder=Path("runs"))


@given(records=st.integers(1, 12), shard=st.integers(1, 14))
def test_shards_cover_every_record_once(records, shard):
    sweep = Sweep(**SMALL, records=records, shard=shard)
    (found,) = expanded(sweep)
    parts = [load_peak(run.run.params["dataset"]).records for run in found.shard_jobs]
    whole = load_peak("peak-mini-cf", limit=records).records
    assert [record for part in parts for record in part] == list(whole)
    assert [run.edits for run in found.shard_jobs] == [len(part) for part in parts]
    assert all(0 < run.edits <= shard for run in found.shard_jobs)


def test_the_matrix_is_a_product():
    sweep = Sweep(
        models=["org/one", "two"],
        datasets=["peak-mini-cf", "peak-mini-t"],
        editors=["rome", "rome+app", "ft-l"],
        records=5,
        shard=3,
        params={"preset": "paper"},
    )
    found = expanded(sweep)
    shards = [run for each in found for run in each.shard_jobs]
    tables = [each.table_job for each in found]
    assert (len(shards), len(tables)) == (2 * 2 * 3 * 2, 2 * 2)
    assert sum(run.edits for run in shards) == 2 * 2 * 3 * 5
    assert all(run.run.params["preset"] == "paper" for run in [*shards, *tables])
    assert all(run.run.params["methods"] == ["rome", "rome+app", "ft-l"] for run in tables)
    assert all("/" not in run.name for run in [*shards, *tables])
    assert len({run.name for run in [*shards, *tables]}) == len(shards) + len(tables)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"editorss": ["rome"]}, "there is no sweep entry 'editorss'; there are models, .*editors"),
        ({"models": None}, "models: .*list, not None"),
        ({"shard": 0}, "shard: .*greater than 0, not 0"),
        ({"shard": "many"}, "shard: .*integer.*'many'"),
        ({"editors": []}, "editors: .*at least 1"),
        ({"datasets": "peak-cf"}, "datasets: .*list"),
    ],
)
def test_mistakes_in_a_sweep_file(tmp_path, change, message):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({**SMALL, **change}))
    with pytest.raises(UserError, match=rf"mine\.yaml: .*{message}"):
        read_sweep(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"params": {"presett": "tuned"}}, "no parameter 'presett'; there are .*preset"),
        ({"params": {"seed": "zero"}}, "seed: .*integer.*'zero'"),
        ({"params": {"records": 3}}, "records in params"),
        ({"editors": ["rom"]}, "no method 'rom' .*: write an editor"),
        ({"editors": ["kn+app"]}, "KN has no loss"),
        ({"editors": ["rome", "rome"]}, "both be called m_peak-mini-cf_rome_00000"),
        ({"models": ["a/b", "a-b"]}, "both be called a-b_"),
    ],
)
def test_mistakes_in_the_matrix(change, message):
    with pytest.raises(UserError, match=message):
        expanded(Sweep(**{**SMALL, **change}))


def test_the_sweep_that_the_guide_shows_is_valid():
    guide = (REPOSITORY / "docs" / "sweeps.md").read_text("utf-8")
    (shown,) = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    assert Sweep(**yaml.safe_load(shown)).shard == 500


def test_shards_of_a_slice_can_be_read():
    sweep = Sweep(**{**SMALL, "datasets": ["peak-mini-cf[4:8]"], "shard": 3})
    (combination,) = expanded(sweep)
    parts = [load_peak(run.run.params["dataset"]).records for run in combination.shard_jobs]
    assert sum(parts, ()) == load_peak("peak-mini-cf[4:8]").records * len(sweep.editors)


def test_unreadable_files(tmp_path):
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(UserError, match=r"no readable sweep file .*see params/sweeps"):
            read_sweep(path)
    path = tmp_path / "mine.yaml"
    for text, message in (
        ("models: [", r"mine\.yaml is not valid YAML"),
        ("- rome", "must be a mapping"),
        ("datasets: [peak-cf]\neditors: [rome]\n", "models: field required$"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=message):
            read_sweep(path)


def test_the_sweep_of_table_3_has_the_editors_of_the_paper_run():
    sweep = read_sweep(PARAMS / "sweeps" / "peak_llama2-7b.yaml")
    run = read_params(PARAMS / "paper" / "03_editing_runs" / "llama2-7b_peak-cf.yaml")
    assert sweep.editors == run["methods"]


@pytest.mark.parametrize("path", sorted((PARAMS / "sweeps").glob("*.yaml")), ids=lambda p: p.stem)
def test_the_packaged_sweeps_are_valid(path):
    sweep = read_sweep(path)
    packaged = sweep.model_copy(update={"datasets": ["peak-mini-cf"]})
    assert expanded(packaged)
