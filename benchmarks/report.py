"""What every benchmark begins and ends with: records at hand, and one table with ours, the plain path,
their ratio and the fraction of the machine's peak.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import torch
import typer

from benchmarks.machine import matmul_peak, peak_memory
from helpers import UserError
from helpers.paths import file_name
from helpers.peak.records import PeakRecord, load_peak


def records_at_hand(dataset: str) -> list[PeakRecord]:
    """The data set's records; packaged ones, with a notice, where it can be neither found nor fetched."""
    try:
        return list(load_peak(dataset).records)
    except UserError as error:
        typer.echo(f"peak-mini-cf takes the place of {dataset}: {error}", err=True)
        return list(load_peak("peak-mini-cf").records)


@dataclass
class Report:
    """Rows of one benchmark on one machine, printed as they are made and kept as parquet.

    ``unit`` is what costs are divided by, ``label`` what tells reports apart. Columns: series and x,
    ours and plain (busy seconds per unit), ratio, GFLOP, and the share of ``peak`` that is reached.
    """

    name: str
    unit: str
    dtype: torch.dtype
    device: str
    label: str = ""
    rows: list[dict[str, object]] = field(default_factory=list)
    peak: float = 0.0

    def __post_init__(self) -> None:
        self.peak = matmul_peak(self.dtype, self.device)
        print(
            f"{self.name}: {self.kind} on {self.device}, {torch.get_num_threads()} threads; busy"
            f" seconds per {self.unit}; matrix peak {self.peak / 1e9:.0f} GFLOP per busy second",
            flush=True,
        )

    @property
    def kind(self) -> str:
        """The floating-point type in words."""
        return str(self.dtype).removeprefix("torch.")

    def add(
        self,
        series: str,
        x: float | str,
        ours: float,
        *,
        plain: float = float("nan"),
        flop: float = float("nan"),
        **more: object,
    ) -> None:
        """Add and print a row; costs and FLOP are per unit."""
        row = {
            "series": series,
            "x": str(x),
            "ours": ours,
            "plain": plain,
            "ratio": plain / ours,
            "GFLOP": flop / 1e9,
            "GFLOP/s": flop / 1e9 / ours,
            "of peak": flop / ours / self.peak,
            **more,
        }
        self.rows.append(row)
        table = pd.DataFrame([row]).to_string(index=False, float_format="{:.4g}".format)
        print(table if len(self.rows) == 1 else table.partition("\n")[2], flush=True)

    def save(self, folder: Path) -> Path:
        """Write ``<name>_<label>_<dtype>_<device>.parquet``; its path."""
        print(f"peak memory {peak_memory(self.device):.1f} GiB")
        folder.mkdir(parents=True, exist_ok=True)
        parts = [self.name, self.label, self.kind, self.device]
        path = folder / f"{file_name('_'.join(filter(None, parts)))}.parquet"
        table = pd.DataFrame(self.rows)
        table.assign(unit=self.unit, dtype=self.kind, device=self.device).to_parquet(path)
        return path
