"""Packed scoring against padded batches of whole sequences, and how its cost grows.

python -m benchmarks.scoring                    # answers per question
python -m benchmarks.scoring --grow length      # tokens of the prompt
python -m benchmarks.scoring --grow edits       # under edits that change no weights, next to none
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
import typer

from benchmarks.machine import measured
from benchmarks.plain import plain_scores
from benchmarks.report import Report
from helpers import models
from helpers.cli import run_command
from helpers.editing.edit import Edit
from helpers.editing.grace import Codebook, NearestKey
from helpers.editing.in_context import InContext, InContextHyperparameters
from helpers.editing.memory import Memory, MemoryHyperparameters
from helpers.editing.weight_edit import WeightEdit
from helpers.models.language_model import LanguageModel
from helpers.models.weights import torch_dtype
from helpers.paths import RUNS
from helpers.peak.records import PeakRecord, load_peak
from helpers.peak.run import edit_request
from helpers.peak.run import questions as peak_questions
from helpers.scoring.answers import Question, score_answers

ANSWERS, LENGTHS = (1, 4, 16, 35), (16, 64, 256, 1024)
STORED = 1000  # statements of the memory, keys of the codebook


def main(  # noqa: PLR0913 - the options of a command
    model: str = "smollm2-135m",
    dataset: str = "peak-cf",
    count: Annotated[int, typer.Option(help="questions per measurement")] = 48,
    grow: Annotated[str, typer.Option(help="answers, length or edits")] = "answers",
    plain: Annotated[int, typer.Option(help="questions of the plain path")] = 12,
    dtype: str = "float32",
    device: str = "cpu",
    folder: Path = RUNS / "benchmarks",
) -> None:
    """Print busy seconds per question, packed and plain."""
    lm = models.load(model, dtype=dtype, device=device)
    if grow == "edits":
        print(
            under_edits(lm, load_peak(dataset).records, count).to_string(
                float_format="{:.4g}".format
            )
        )
        return
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


def under_edits(lm: LanguageModel, records: Sequence[PeakRecord], count: int) -> pd.DataFrame:
    """What scoring the first ``count`` records costs under edits that change no weights, in one run.

    Columns: tokens that are run (padding included), busy seconds, and both as multiples of the unedited
    model's. A memory and a codebook hold ``STORED`` entries; the rows of their look-ups are parts of the rows
    above them.
    """
    requests = [edit_request(record) for record in records[:STORED]]
    questions: list[Question] = []
    owners: list[int] = []
    for number, record in enumerate(records[:count]):
        questions_of_record, _ = peak_questions(record)
        questions += questions_of_record
        owners += [number] * len(questions_of_record)
    prompts = [question.prompt for question in questions]
    of_all = [0] * len(questions)
    statements = InContext(lm, InContextHyperparameters()).edit(requests[:count])
    memory = Memory(lm, MemoryHyperparameters()).edit_on(WeightEdit({}), requests)
    codebook = random_codebook(lm)
    size_in = lm.layout.intermediate_size
    queries = torch.randn(len(prompts), size_in, device=lm.device)

    def scoring(edits: Sequence[Edit] | None, owners: Sequence[int] | None) -> Callable[[], object]:
        return partial(score_answers, lm, questions, edits, owners)

    calls: dict[str, Callable[[], object]] = {
        "unedited": scoring(None, None),
        "in-context": scoring(statements, owners),
        f"memory-bm25, {len(requests)} statements": scoring([memory], of_all),
        "memory-bm25, look-ups alone": partial(memory.prefixes, lm, prompts),
        f"grace, {STORED} keys": scoring([codebook], of_all),
        "grace, look-ups alone": partial(codebook.gate.decide, queries),
    }
    score_answers(lm, questions[:1])  # untimed: it loads kernels
    rows = []
    for name, call in calls.items():
        run: list[int] = []
        embeddings = lm.network.get_input_embeddings()
        with embeddings.register_forward_pre_hook(lambda _, ids: run.append(ids[0].numel())):  # noqa: B023
            cost, _ = measured(call, lm.device)
        rows.append((name, sum(run), cost.busy))
    table = pd.DataFrame(rows, columns=["", "tokens", "busy s"]).set_index("")
    ratios = (table / table.iloc[0]).add_suffix(" / unedited")
    return table.join(ratios)


def random_codebook(lm: LanguageModel) -> Codebook:
    """``STORED`` keys that no prompt is near: they cost what a look-up costs and change nothing."""
    numbers = torch.Generator().manual_seed(0)
    gate = NearestKey(
        keys=torch.randn(STORED, lm.layout.intermediate_size, generator=numbers),
        values=torch.zeros(STORED, lm.layout.hidden_size),
        radii=torch.zeros(STORED),
    ).to(lm.device)
    module_name = lm.layout.mlp_out(lm.layout.blocks - 3)
    return Codebook(module_name, gate, ((0,),) * STORED, lm.fingerprint)


if __name__ == "__main__":
    run_command(main)
