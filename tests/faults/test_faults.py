"""What goes wrong on real machines: nothing finished is lost, nothing counted twice, and the message
says what to do. Killed workers and two sweeps at once are in ``tests/sweeps``."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from filelock import FileLock

from helpers import UserError
from helpers.execute import PlannedRun, RunError, execute, planned_run
from helpers.peak.records import load_peak
from helpers.peak.run import score_records
from helpers.results.store import Cases, ResultsStore

IDS = list(range(40))


def scores(case_ids: list[int], answers: int = 500) -> pd.DataFrame:
    """Numbers that do not compress, the same for a record whenever they are made."""
    tables = [
        pd.DataFrame({"case_id": i, "sum": np.random.default_rng(i).normal(size=answers)})
        for i in case_ids
    ]
    return pd.concat(tables, ignore_index=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting a small file system is not permitted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_keeps_what_is_finished_and_the_run_resumes(small_disk):
    filler = small_disk / "filler"
    filler.write_bytes(b"\0" * 150_000)
    results = ResultsStore(small_disk / "store").open({})
    made: list[int] = []

    def compute(case_ids: list[int]) -> dict[str, pd.DataFrame]:
        made.extend(case_ids)
        return {"scores": scores(case_ids)}

    with pytest.raises(UserError, match=r"No space left.*free space"):
        Cases({n: n for n in IDS}, 4).completed(results, compute)
    finished = results.read()
    assert 0 < finished["case_id"].nunique() < len(IDS)
    assert not list(results.folder.glob(".*"))
    filler.unlink()
    Cases({n: n for n in IDS}, 4).completed(results, compute)
    pd.testing.assert_frame_equal(results.read(), scores(IDS))
    assert len(made) == len(IDS) + 4  # only the chunk that found no space was made twice


def test_no_flipped_bit_goes_unnoticed(tmp_path):
    """Wherever it is: in the numbers, or in the footer, where it may rename a column."""
    results = ResultsStore(tmp_path).open({})
    results.add({"scores": scores([1, 2])})
    (part,) = results.folder.glob("scores-*.parquet")
    intact = part.read_bytes()
    footer = len(intact) - 8 - int.from_bytes(intact[-8:-4], "little")
    draw = random.Random(0)
    numbers, footers = range(footer), range(footer, len(intact))
    chosen = *draw.sample(numbers, 5), *draw.sample(footers, 10)
    for position in chosen:
        damaged = bytearray(intact)
        damaged[position] ^= 1 << draw.randrange(8)
        part.write_bytes(damaged)
        with pytest.warns(UserWarning, match="computed again"):
            assert results.read().empty
    part.write_bytes(intact)
    pd.testing.assert_frame_equal(results.read(), scores([1, 2]))


def test_a_row_that_was_cut_off_counts_as_not_run(tmp_path):
    planned = planned_run(
        Path("a.yaml"), {}, notebook=Path("03_editing_runs.ipynb"), folder=tmp_path
    )
    assert planned.outcome() is None
    planned.output_folder.mkdir(parents=True)
    for text in ("", '{"notebook": "03_edi', "{}", "[1]"):
        (planned.output_folder / "run.json").write_text(text)
        assert planned.outcome() is None


def test_a_gpu_without_memory_gives_the_same_scores_in_smaller_batches(tiny, monkeypatch):
    """The allocation fails, as on a GPU, whenever a pass has more than three rows."""
    model = tiny("llama")
    records = load_peak("peak-mini-cf", limit=2).records
    expected = score_records(model, records)
    forward = type(model.network.model).forward
    failures = []

    def limited(self, *args, **kwargs):
        rows = next(v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor)).shape[0]
        if rows > most:
            failures.append(rows)
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(type(model.network.model), "forward", limited)
    most = 3
    with pytest.warns(UserWarning, match="halves"):
        scored = score_records(model, records)
    assert failures
    pd.testing.assert_frame_equal(scored, expected, rtol=1e-4)
    most = 0
    with (
        pytest.warns(UserWarning, match="halves"),
        pytest.raises(MemoryError, match=r"smaller model.*bfloat16"),
    ):
        score_records(model, records)


@pytest.mark.parametrize(
    ("places", "said"), [("runs", "another run of these parameters"), ("file", "check the path")]
)
def test_a_run_in_an_unusual_place(tmp_path, monkeypatch, places, said):
    """Another run of the same, a file."""
    monkeypatch.setattr("helpers.execute._run_cells", lambda *_: pytest.fail("it was started"))
    (tmp_path / "file").touch()
    planned = PlannedRun(Path("03_editing_runs.ipynb"), Path("a.yaml"), {}, tmp_path / places / "x")
    held = planned.output_folder if places == "runs" else tmp_path
    held.mkdir(parents=True, exist_ok=True)
    with FileLock(held / ".lock"), pytest.raises(RunError, match=said):
        execute(planned)
