"""One table per benchmark: ours, the plain path, their ratio, and the fraction of the peak.

Rows are printed as they are made and kept as parquet with a plot beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import torch

from benchmarks.machine import matmul_peak, peak_memory
from helpers.models.weights import dtype_name
from helpers.paths import file_name
from helpers.results.style import MARKERS, PALETTE, use_style


@dataclass
class Report:
    """Rows of one benchmark on one machine.

    ``unit`` is what costs are divided by (``record``, ``sentence``, ``token``); ``label`` says what
    else one report differs by from the next, such as model and methods. Columns: series and
    x (for the plot), ours and plain (busy seconds per unit), ratio, GFLOP per unit and per busy
    second, and the share of ``peak`` that is reached.
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
        kind = dtype_name(self.dtype, torch.device(self.device))
        print(
            f"{self.name}: {kind} on {self.device}, {torch.get_num_threads()} threads;"
            f" busy seconds per {self.unit};"
            f" matrix peak {self.peak / 1e9:.0f} GFLOP per busy second",
            flush=True,
        )

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

    def save(self, folder: Path, *, axis: str) -> Path:
        """Write ``<name>_<label>_<dtype>_<device>.parquet`` and a plot over ``axis``; its path."""
        print(f"peak memory {peak_memory(self.device):.1f} GiB")
        folder.mkdir(parents=True, exist_ok=True)
        kind = dtype_name(self.dtype, torch.device(self.device))
        parts = [self.name, self.label, kind, self.device]
        path = folder / f"{file_name('_'.join(filter(None, parts)))}.parquet"
        table = pd.DataFrame(self.rows).assign(
            unit=self.unit, dtype=kind, device=self.device, peak=self.peak
        )
        table.to_parquet(path, index=False)
        figure = self._plot(table, axis)
        figure.savefig(path.with_suffix(".png"))
        plt.close(figure)
        return path

    def _plot(self, table: pd.DataFrame, axis: str) -> plt.Figure:
        use_style()
        figure, axes = plt.subplots(figsize=(6.6, 3.4))
        labels = list(dict.fromkeys(table["x"]))
        for index, (series, part) in enumerate(table.groupby("series", sort=False)):
            places = [labels.index(x) for x in part["x"]]
            style: dict[str, Any] = {
                "marker": MARKERS[index % len(MARKERS)],
                "color": PALETTE[index % 8],
            }
            axes.plot(places, part["ours"], label=str(series), **style)
            if part["plain"].notna().any():
                axes.plot(places, part["plain"], linestyle=":", fillstyle="none", **style)
        axes.set_xticks(range(len(labels)), labels)
        axes.set_yscale("log")
        axes.set_xlabel(axis)
        axes.set_ylabel(f"busy seconds per {self.unit}")
        axes.set_title(f"{self.name}: ours (solid), plain (dotted)", loc="left")
        axes.legend()
        return figure
