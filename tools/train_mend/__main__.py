"""Train MEND's hypernetwork for a model.

    python -m tools.train_mend --model smollm2-135m

Layers and rank are the preset's. An interrupted run resumes as if it had not been.

Three differences from the published recipe are on purpose. The normalisation is measured once instead
of running along. The updates' rates have a learning rate of their own (the published code means to,
but trains them at the network's). The learning rates suit thousands of steps instead of a million.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
import typer

from helpers import models
from helpers.editing.presets import default_preset, read_hyperparameters
from helpers.kept import kept_at
from tools.train_mend.trainer import (
    Trainer,
    TrainingRecord,
    TrainingSettings,
    packaged_records,
    save_network,
    split,
)


def train(
    trainer: Trainer,
    held_out: Sequence[TrainingRecord],
    output: Path,
    *,
    every: int = 100,
    patience: float = float("inf"),
) -> None:
    """Train to the last step, writing checkpoint, network and curve every ``every`` steps.

    ``patience`` in seconds ends the run early at a checkpoint, from which it can be resumed.
    """
    checkpoint, curve = output.with_suffix(".checkpoint"), output.with_suffix(".csv")
    if kept_at(checkpoint).exists():
        trainer.resume(checkpoint)
    else:
        trainer.measure()
        _note(curve, {"step": 0, "NLL": "", "train_KL": "", **trainer.evaluate(held_out)}, new=True)
    start = time.monotonic()
    losses = []
    while trainer.step < trainer.settings.steps:
        losses.append(trainer.train_step())
        if trainer.step % every == 0 or trainer.step == trainer.settings.steps:
            nll, kl = torch.tensor(losses).mean(0).tolist()
            row = {"step": trainer.step, "NLL": nll, "train_KL": kl}
            _note(curve, row | trainer.evaluate(held_out))
            losses = []
            trainer.save(checkpoint)
            save_network(trainer.network, output, trainer.learner.states.lm)
            if time.monotonic() - start > patience:
                return


def _note(curve: Path, row: dict[str, Any], *, new: bool = False) -> None:
    rounded = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()}
    table = pd.DataFrame([rounded])
    table.to_csv(curve, mode="w" if new else "a", header=new, index=False)
    print(" ".join(f"{k}={v}" for k, v in rounded.items()), flush=True)


def main(  # noqa: PLR0913 - the options of a command
    model: str = "smollm2-135m",
    output: Annotated[Path | None, typer.Option(help="default: MODEL.safetensors here")] = None,
    preset: Annotated[str, typer.Option(help="whose layers and rank; default: the model's")] = "",
    steps: int = 1200,
    seed: int = 0,
    every: int = 100,
    dtype: str = "float32",
    device: Annotated[str, typer.Option(help="default: a GPU, where there is one")] = "",
) -> None:
    """Train a network and write it next to its training curve."""
    wanted = read_hyperparameters("mend", model, preset or default_preset("mend", model))
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    lm = models.load(model, dtype=dtype, device=device)
    settings = TrainingSettings(layers=wanted.layers, rank=wanted.rank, steps=steps, seed=seed)
    training, kept = split(packaged_records(seed=seed), held_out=100, seed=seed)
    print(f"{len(training)} records to train on, {len(kept)} held out", flush=True)
    target = output or Path(f"{Path(model).name}.safetensors")
    train(Trainer(lm, training, settings), kept, target, every=every)


if __name__ == "__main__":
    typer.run(main)
