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

from helpers.editing.edit import Edit
from helpers.editing.editor import Editor
from helpers.editing.editors import SYMBOLS, Variant, method_label
from helpers.editing.running import decided_beforehand, last_tokens, prefixes_of, under
from helpers.models import LanguageModel
from helpers.models.batching import run_halving, token_batches
from helpers.models.forest import padded
from helpers.models.forward import hidden_states, vocabulary_scores
from helpers.models.state import in_own_state
from helpers.models.tokens import ids_of_prompts
from helpers.peak.figures import ACROSS, MAIN_RUN
from helpers.peak.metrics import metrics_table
from helpers.peak.records import PeakRecord
from helpers.peak.run import PeakRun, edit_request
from helpers.peak.tables import caption_of, metric_contrast, scores_of
from helpers.results.archive import Run, TableKey
from helpers.results.evaluation import Mode
from helpers.results.figure import figure
from helpers.results.publish import Part
from helpers.results.statistics import LEVEL, mean_interval
from helpers.results.style import PALETTE, marked, with_caption
from helpers.scoring.answers import resolve_owners

VERSION = 1  # of ``locality_shifts``: raise it when what is computed changes
_LOCALITY = "locality"  # the kind of a variant's stored table of shifts
SERIES = ["method", "field", "measure"]
DAMAGE = {"LS": "LS", "AFF_hard": "AFF", "ANF_hard": "ANF", "kl_alone": "KL", "top5_alone": "top 5"}
DAMAGE |= {"kl_stated": "KL, stated", "top5_stated": "top 5, stated"}
_WORDS = SYMBOLS | {"norm_constraint": "norm bound", "kl_factor": "KL factor"}


def locality_shifts(run: PeakRun, editor: Editor) -> pd.DataFrame:
    """Per record, locality prompt and way of asking: kl and top5 after its own edit (0 and 1 if given up)."""

    def make(records: Sequence[PeakRecord]) -> dict[str, pd.DataFrame]:
        prompts, owners, rows = [], [], []
        for owner, record in enumerate(records):
            statement = f"{record.edit_prompt} {record.target_new}. "
            for index, (prompt, _) in enumerate(record.locality):
                prompts += [prompt, statement + prompt]
                owners += [owner, owner]
                rows += [(record.case_id, index, way) for way in ("alone", "stated")]
        edits = editor.edit(list(map(edit_request, records)))
        edited = next_token_scores(lm, prompts, edits, owners)
        unedited = next_token_scores(lm, prompts, [], [-1] * len(owners))
        table = pd.DataFrame(rows, columns=["case_id", "prompt_index", "asked"])
        return {"scores": table.join(distribution_shifts(unedited, edited))}

    lm = run.lm
    mode: Mode[PeakRecord] = Mode("locality", settings={"locality": VERSION})
    return run.evaluation(editor, mode).complete(make)


def distribution_shifts(before: Tensor, after: Tensor) -> pd.DataFrame:
    """``kl`` and ``top5`` of distributions given as log-probabilities [n, vocabulary]."""
    first, second = (scores.topk(5).indices for scores in (before, after))
    both = (first[:, :, None] == second[:, None]).sum((1, 2)) / 5
    kl = (after.double().exp() * (after.double() - before)).sum(-1)
    return pd.DataFrame({"kl": kl.numpy(), "top5": both.numpy()})


@in_own_state
@torch.inference_mode()
def next_token_scores(
    lm: LanguageModel, prompts: Sequence[str], edits: Sequence[Edit], owners: Sequence[int]
) -> Tensor:
    """Log-probabilities after each prompt [prompts, vocabulary], fp32, on the CPU; see ``score_answers``."""
    owners = resolve_owners(len(prompts), edits, owners)
    on_device = [edit.to(lm.device) for edit in edits]
    prefixes = prefixes_of(lm, on_device, owners, prompts)
    texts = [prefix + prompt for prefix, prompt in zip(prefixes, prompts, strict=True)]
    ids_of_text = ids_of_prompts(lm, texts)
    token_ids = [ids_of_text[text] for text in texts]
    beforehand = decided_beforehand(lm, on_device, owners, token_ids)
    scores = torch.empty(len(prompts), lm.network.config.vocab_size)

    def run(batch: Sequence[int]) -> None:
        rows = padded(lm, [token_ids[i] for i in batch])
        ends = last_tokens(rows.real, batch, len(prompts))
        decisions = {} if beforehand is None else beforehand
        with under(lm, on_device, [owners[i] for i in batch], ends, decisions):
            hidden = hidden_states(lm, rows.ids, rows.positions, rows.visible)
        every = torch.arange(len(batch), device=hidden.device)
        _, distributions = vocabulary_scores(lm, rows.last(hidden), every, every, every)
        scores[list(batch)] = distributions.to(scores)

    for batch in token_batches([len(ids) for ids in token_ids], 4096):
        run_halving(batch, run)
    return scores


def doses_of(run: Run) -> pd.Series:
    """Values of the measures ``DAMAGE`` by method, field, dose, case_id, relation and measure."""
    measures = {}
    for key in run.keys:
        if key.kind == _LOCALITY and key.method in run.tables:
            shifts = run.tables[str(key)].pivot_table(["kl", "top5"], "case_id", "asked")
            shifts.columns = shifts.columns.map("_".join)
            metrics = metrics_table(scores_of(run, only=[key.method])[key.method])
            measures[Variant.parse(key.method)] = metrics.join(shifts)
    by_dose = {}
    for variant, table in measures.items():
        preset = Variant(variant.method)
        if variant.times and variant.value and preset in measures:
            by_dose[variant.method, variant.field, variant.value] = table
            by_dose[variant.method, variant.field, 1.0] = measures[preset]
    doses = pd.concat(by_dose, names=["method", "field", "dose"])
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
    """Slope per doubling of the dose: mean, interval, n, sd over records; level at 1; ``first_dose``."""
    rows = {}
    for (method, field, measure), part in doses.groupby(SERIES):
        values = part.unstack("dose").dropna()
        steps = np.log2(values.columns.to_numpy(float))
        slopes = values @ (steps - steps.mean()) / steps.var() / len(steps)
        rows[method, field, measure] = {
            **vars(mean_interval(slopes)),
            "at 1": values[1.0].mean(),
            "sd": slopes.std(),
            "first dose": first_dose(str(measure), values),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(SERIES)


@figure("04_doses", of="ablations", main=f"{MAIN_RUN}@doses", needs=(_LOCALITY,))
def dose_slopes(run: Run) -> Figure:
    """What a doubled hyperparameter changes: a panel a measure, a row a hyperparameter of a method."""
    slopes = dose_table(doses_of(run))
    series = list(dict.fromkeys(key[:2] for key in slopes.index))
    rows = np.arange(len(series))[::-1]
    fig, panels = plt.subplots(1, len(DAMAGE), figsize=(9.2, 0.4 * len(rows) + 1.6), sharey=True)
    for axes, (measure, title) in zip(panels, DAMAGE.items(), strict=True):
        unit = "nats" if "KL" in title else "points"
        scale = 1 if unit == "nats" else 100
        of_measure = slopes.xs(measure, level="measure").loc[series] * scale
        marked(axes, rows, pd.DataFrame(of_measure), fmt="o", color=PALETTE[0], **ACROSS)
        axes.axvline(0, color="0.4", linewidth=0.9)
        axes.set(title=title.replace(", ", ",\n"), xlabel=unit, ymargin=0.15)
    panels[0].set_yticks(rows, [f"{method_label(m)}: {_WORDS.get(f, f)}" for m, f in series])
    note = "change for twice the value, t intervals; title: paired tests by relation"
    return with_caption(fig, _changes_in_words(slopes), f"{caption_of(run)}\n{note}")


def _changes_in_words(slopes: pd.DataFrame) -> str:
    """Which measure most doses of a ``dose_table`` change, and which the fewest."""
    count = len({key[:2] for key in slopes.index})
    changed = slopes["first dose"].notna().groupby("measure").sum()[[*DAMAGE]]
    if not changed.any():
        return f"At no dose of these {count} is a change of any measure conclusive"
    most = DAMAGE[str(changed.idxmax())]
    least = DAMAGE[str(changed.idxmin())]
    return (
        f"Of {count} doses {changed.max()} change {most}, {changed.min() or 'none'} change {least}"
    )


def dose_parts(run: PeakRun, editors: Mapping[str, Editor]) -> Iterator[Part]:
    """The shifts of notebook 04's doses."""
    for name, editor in editors.items():
        make = partial(locality_shifts, run, editor)
        settings = {"locality": VERSION, **editor.settings()}
        cases = [record.case_id for record in run.data.records]
        yield Part(str(TableKey(_LOCALITY, name)), settings, make, cases=cases)
