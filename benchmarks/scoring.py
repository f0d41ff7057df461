"""Packed scoring against padded batches of whole sequences, and how its cost grows.

python -m benchmarks.scoring                    # answers per question
python -m benchmarks.scoring --grow length      # tokens of the prompt
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.plain import plain_scores
from benchmarks.report import Report
from helpers import models
from helpers.models.language_model import LanguageModel
from helpers.models.weights import torch_dtype
from helpers.paths import RUNS
from helpers.peak.records import load_peak
from helpers.scoring.answers import Question, score_answers

ANSWERS, LENGTHS = (1, 4, 16, 35), (16, 64, 256, 1024)


def main(  # noqa: PLR0913 - the options of a command
    model: str = "smollm2-135m",
    dataset: str = "peak-cf",
    count: Annotated[int, typer.Option(help="questions per measurement")] = 48,
    grow: Annotated[str, typer.Option(help="answers or length")] = "answers",
    plain: Annotated[int, typer.Option(help="questions of the plain path")] = 12,
    dtype: str = "float32",
    device: str = "cpu",
    folder: Path = RUNS / "benchmarks",
) -> None:
    """Print busy seconds per question, packed and plain."""
    lm = models.load(model, dtype=dtype, device=device)
    records = load_peak(dataset, limit=count).records
    asked = [Question(r.edit_prompt, (*r.correct, *r.hard_false, *r.random_false)) for r in records]
    report = Report(f"scoring_{grow}", "question", torch_dtype(dtype), device, model, folder)
    for x in {"answers": ANSWERS, "length": LENGTHS}[grow]:
        questions = _grown(lm, asked, grow, x)
        call = partial(score_answers, lm, questions)
        one_by_one = partial(plain_scores, lm, questions[:plain])
        report.measure(model, x, (call, len(questions)), (one_by_one, plain))


def _grown(lm: LanguageModel, asked: Sequence[Question], grow: str, x: int) -> list[Question]:
    """The questions with x answers each, or with prompts of about x tokens."""
    if grow == "answers":
        return [Question(q.prompt, q.answers[:x]) for q in asked]
    filler = "Long ago, far away, it was said. "
    each = len(lm.tokenizer(filler)["input_ids"])
    return [Question(filler * (x // each) + q.prompt, q.answers[:16]) for q in asked]


if __name__ == "__main__":
    typer.run(main)
