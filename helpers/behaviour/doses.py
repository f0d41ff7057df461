"""How far an edit moves the next token at locality prompts; which measure of damage a dose changes first.

Prompts are asked alone and *stated*, after "<edit prompt> <new answer>. ". From p before the edit to p' after
it, kl is sum p' ln(p' / p) in nats, and top5 the share of the five likeliest tokens that p and p' have in
common. A dose is a factor of one field of a method (``Variant``); 1 is the preset's value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

from helpers.editing.editor import Editor
from helpers.editing.editors import Variant
from helpers.editing.update import Update, overlay
from helpers.models import LanguageModel
from helpers.models.batching import run_halving, token_batches
from helpers.models.forest import padded
from helpers.models.forward import hidden_states, vocabulary_scores
from helpers.peak.figures import MAIN_RUN
from helpers.peak.metrics import metric_interval, metrics_table
from helpers.peak.records import PeakRecord
from helpers.peak.run import PeakRun, edit_request
from helpers.peak.tables import caption_of, metric_contrast, scores_of
from helpers.results.archive import Run
from helpers.results.figure import figure
from helpers.results.publish import Part
from helpers.results.statistics import LEVEL, mean_interval
from helpers.results.style import AT_RIGHT, marked, method_line, told, use_style
from helpers.scoring.answers import Question, owned, tokenised

VERSION = 1  # of ``locality_shifts``: raise it when what is computed changes
SERIES = ["method", "field", "measure"]
DAMAGE = ("LS", "AFF_hard", "ANF_hard", "kl_alone", "kl_stated", "top5_alone", "top5_stated")


def locality_shifts(run: PeakRun, editor: Editor) -> pd.DataFrame:
    """Per record, locality prompt and way of asking: kl and top5 after its own edit (0 and 1 if given up)."""

    def made(records: Sequence[PeakRecord]) -> dict[str, pd.DataFrame]:
        asked, rows = [], []
        for owner, record in enumerate(records):
            before = f"{record.edit_prompt} {record.target_new}. "
            for index, (prompt, _) in enumerate(record.locality):
                asked += [(prompt, owner), (before + prompt, owner)]
                rows += [(record.case_id, index, how) for how in ("alone", "stated")]
        prompts, owners = [prompt for prompt, _ in asked], [owner for _, owner in asked]
        updates = editor.edit(list(map(edit_request, records)))
        edited = next_token_scores(model, prompts, updates, owners)
        unedited = next_token_scores(model, prompts, [], [-1] * len(owners))
        table = pd.DataFrame(rows, columns=["case_id", "prompt_index", "asked"])
        return {"scores": table.join(compared(unedited, edited))}

    model = run.model
    how = {"mode": "locality", "locality": VERSION, **editor.settings()}
    return run.completed(run.open(how), made)


def compared(before: Tensor, after: Tensor) -> pd.DataFrame:
    """``kl`` and ``top5`` of distributions given as log-probabilities [n, vocabulary]."""
    first, second = (scores.topk(5).indices for scores in (before, after))
    both = (first[:, :, None] == second[:, None]).sum((1, 2)) / 5
    kl = (after.double().exp() * (after.double() - before)).sum(-1)
    return pd.DataFrame({"kl": kl.numpy(), "top5": both.numpy()})


@torch.inference_mode()
def next_token_scores(
    model: LanguageModel, prompts: Sequence[str], updates: Sequence[Update], owners: Sequence[int]
) -> Tensor:
    """Log-probabilities after each prompt [prompts, vocabulary], fp32, on the CPU; see ``score_answers``."""
    moved, owners = owned(model, len(prompts), updates, owners)
    asked = tokenised(model, [Question(prompt, ()) for prompt in prompts])
    scores = torch.empty(len(asked), model.model.config.vocab_size)

    def run(batch: Sequence[int]) -> None:
        texts = padded(model, [asked[i][0] for i in batch])
        with overlay(model, moved, [owners[i] for i in batch]):
            hidden = hidden_states(model, texts.ids, texts.positions, texts.visible)
        every = torch.arange(len(batch), device=hidden.device)
        found = vocabulary_scores(model, texts.last(hidden), every, every, every)
        scores[list(batch)] = found[1].to(scores)

    for batch in token_batches([len(ids) for ids, _ in asked], 4096):
        run_halving(batch, run)
    return scores


def doses_of(run: Run) -> pd.Series:
    """``DAMAGE`` by method, field, dose, case_id and measure."""
    found, parts = {}, {}
    for name in run.tables:
        kind, _, variant = name.partition(": ")
        if kind == "locality":
            shifts = run.tables[name]
            wide = shifts.pivot_table(["kl", "top5"], "case_id", "asked")
            wide.columns = wide.columns.map("_".join)
            metrics = metrics_table(scores_of(run, only=[variant])[variant])
            found[Variant.parse(variant)] = metrics.droplevel("relation").join(wide)
    for each in (v for v in found if v.times and v.value and Variant(v.method) in found):
        parts[each.method, each.field, each.value] = found[each]
        parts[each.method, each.field, 1.0] = found[Variant(each.method)]
    doses = pd.concat(parts, names=["method", "field", "dose"])
    return doses[[*DAMAGE]].rename_axis(columns="measure").stack()  # type: ignore[return-value]


def first_dose(measure: str, doses: pd.DataFrame) -> float:
    """The smallest dose (column) from which on each differs from the lowest, tested downwards; or NaN."""
    first, (lowest, *others) = float("nan"), doses.columns
    for dose in reversed(others):
        if not metric_contrast(measure, doses[lowest], doses[dose]).p_value < LEVEL:
            break
        first = float(dose)
    return first


def dose_table(doses: pd.Series) -> pd.DataFrame:
    """Slope per doubling of the dose: mean, interval, n and sd over records; ``first_dose``."""
    rows = {}
    for (method, field, measure), part in doses.groupby(SERIES):
        values = part.unstack("dose").dropna()
        steps = np.log2(values.columns.to_numpy(float))
        slopes = values @ (steps - steps.mean()) / steps.var() / len(steps)
        rows[method, field, measure] = {
            **vars(mean_interval(slopes)),
            "sd": slopes.std(),
            "first dose": first_dose(str(measure), values),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(SERIES)


@figure("04_doses", title="Doses", of="ablations", main=f"{MAIN_RUN}@doses", needs=("locality",))
def dose_panels(run: Run) -> Figure:
    """Each measure (a row) against factors of a hyperparameter (a column), a line a method."""
    use_style()
    found = doses_of(run)
    fields = [*found.index.unique("field")]
    drawn = plt.figure(figsize=(2.2 * len(fields) + 1, 9))
    grid = drawn.subplots(len(DAMAGE), len(fields), squeeze=False, sharex="col", sharey="row")
    for (method, field, measure), part in found.groupby(SERIES):
        values = part.unstack("dose").dropna()
        row, column = DAMAGE.index(measure), fields.index(field)
        axes = grid[row, column]
        means = [vars(metric_interval(str(measure), values[dose])) for dose in values]
        marked(axes, values.columns, pd.DataFrame(means), **method_line(str(method)))
        axes.set_xscale("log", base=2)
        axes.set(title="" if row else field, ylabel="" if column else measure)
        if row == 0:
            axes.legend(**AT_RIGHT)
    changed = dose_table(found)["first dose"].unstack().notna()
    counts = ", ".join(f"{measure} {n}" for measure, n in changed.sum().items())
    finding = f"Changed by the dose, of {len(changed)} series: {counts}"
    return told(drawn, finding, f"{caption_of(run)}; 95 % intervals; KL in nats")


def dose_parts(run: PeakRun, editors: Mapping[str, Editor]) -> Iterator[Part]:
    """The shifts of notebook 04's doses."""
    for name, editor in editors.items():
        make = partial(locality_shifts, run, editor)
        yield Part(f"locality: {name}", editor.settings(), make, cases=run.cases.by_id)
