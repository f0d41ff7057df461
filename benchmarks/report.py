"""What every benchmark ends with: ours, the plain path, and the fraction of the machine's peak."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from benchmarks.machine import (
    Timed,
    arithmetic,
    cost_of,
    kernels_of,
    matmul_peak,
    peak_memory,
)
from helpers.paths import RUNS, file_name


@dataclass
class Report:
    """Rows of one benchmark on one machine, printed as they are made and kept as parquet.

    ``unit`` is what costs are divided by, ``label`` what tells reports apart. Columns: series and x,
    ours and plain (busy seconds per unit), ratio, GFLOP, the share of ``peak`` that is reached, the share
    of matrix products in torch's time and the other kernels of a pass, wall seconds per unit, and the
    largest memory so far.
    """

    name: str
    unit: str
    dtype: torch.dtype
    device: str
    label: str
    folder: Path = RUNS / "benchmarks"
    rows: list[dict[str, Any]] = field(default_factory=list)
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

    def measure(
        self, series: str, x: float | str, ours: Timed, plain: Timed | None = None
    ) -> dict[str, Any]:
        """Time both, count the arithmetic of ours, and add, print and keep the row."""
        call, units = ours
        cost, flop = cost_of(call, self.device), arithmetic(call) / units
        busy, alone = cost.busy / units, float("nan")
        if plain:
            alone = cost_of(plain[0], self.device).busy / plain[1]
        row = {
            "series": series,
            "x": str(x),
            "ours": busy,
            "plain": alone,
            "ratio": alone / busy,
            "GFLOP": flop / 1e9,
            "GFLOP/s": flop / 1e9 / busy,
            "of peak": flop / busy / self.peak,
            "wall": cost.wall / units,
            "GiB": peak_memory(self.device),
        }
        kernels = kernels_of(call)
        on_cpu = torch.device(self.device).type == "cpu"  # else the profiler's times are the host's
        row |= {
            "in products": kernels.products if on_cpu else float("nan"),
            "kernels a pass": kernels.others,
        }
        self.rows.append(row)
        table = pd.DataFrame([row]).to_string(index=False, float_format="{:.4g}".format)
        print(table if len(self.rows) == 1 else table.partition("\n")[2], flush=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        name = file_name("_".join([self.name, self.label, self.kind, self.device]))
        rows = pd.DataFrame(self.rows).assign(unit=self.unit, dtype=self.kind, device=self.device)
        rows.to_parquet(self.folder / f"{name}.parquet")  # at once: the next one may not fit
        return row
