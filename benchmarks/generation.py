"""Sampling many responses at once against one at a time, unedited and under edits.

python -m benchmarks.generation --prompts 16 --samples 5
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
import typer

from benchmarks.machine import measured, warm_up
from benchmarks.report import Report
from helpers import models
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import prompt_ids
from helpers.models.weights import torch_dtype
from helpers.paths import RUNS
from helpers.peak.records import load_peak
from helpers.scoring.responses import Sampling, sample_responses

ROWS = (1, 8, 32, 80)


def main(
    model: str = "smollm2-135m",
    prompts: int = 16,
    samples: int = 5,
    tokens: int = 32,
    dtype: str = "float32",
    device: str = "cpu",
    threads: int = torch.get_num_threads(),
    folder: Path = RUNS / "benchmarks",
) -> None:
    """Print busy seconds per generated token for growing batches, beside ``generate`` one by one."""
    torch.set_num_threads(threads)
    language_model = models.load(model, dtype=dtype, device=device)
    asked = [record.edit_prompt for record in load_peak("peak-mini-cf", limit=prompts).records]
    sampling = Sampling(max_new_tokens=tokens, chat=False)
    report = Report("generation", "token", torch_dtype(dtype), device, model)
    one_by_one = partial(_one_by_one, language_model, asked[:4], tokens)
    warm_up(device, one_by_one)
    cost, generated = measured(one_by_one, device)
    plain = cost.busy / generated
    for rows in ROWS:
        draw = partial(
            sample_responses, language_model, asked, n=samples, sampling=sampling, rows=rows
        )
        warm_up(device, draw)
        cost, responses = measured(draw, device)
        count = sum(_length(language_model, text) for own in responses for text in own)
        report.add(model, rows, cost.busy / count, plain=plain, tokens=count)
    report.save(folder, axis="responses at a time")


def _one_by_one(language_model: LanguageModel, prompts: Sequence[str], tokens: int) -> int:
    """The library's own sampling, one response at a time; how many tokens came out."""
    torch.manual_seed(0)
    total = 0
    for prompt in prompts:
        ids = torch.tensor([prompt_ids(language_model, prompt)], device=language_model.device)
        made = language_model.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            temperature=0.7,
            max_new_tokens=tokens,
            pad_token_id=0,
        )
        total += made.shape[1] - ids.shape[1]
    return total


def _length(language_model: LanguageModel, text: str) -> int:
    """Tokens of a response, its end included."""
    return len(language_model.tokenizer(text, add_special_tokens=False)["input_ids"]) + 1


if __name__ == "__main__":
    typer.run(main)
