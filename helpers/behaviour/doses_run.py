"""How far an edit moves the next token at locality prompts.

Prompts are asked alone and *stated*, after "<edit prompt> <new answer>. ". From p before the edit to p' after
it, kl is sum p' ln(p' / p) in nats, and top5 the share of the five likeliest tokens that p and p' have in
common.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pandas as pd
import torch
from torch import Tensor

from helpers.behaviour.doses import LOCALITY
from helpers.editing.edit import Edit
from helpers.editing.editor import Editor
from helpers.editing.running import PromptTokens, decided_beforehand, prefixes_of, under
from helpers.models import LanguageModel
from helpers.models.batching import run_halving, token_batches
from helpers.models.forest import padded
from helpers.models.forward import hidden_states, vocabulary_scores
from helpers.models.state import in_own_state
from helpers.models.tokens import ids_of_prompts
from helpers.peak.records import PeakRecord
from helpers.peak.run import PeakRun, edit_request
from helpers.results.archive import TableKey
from helpers.results.evaluation import Mode
from helpers.results.publish import Part
from helpers.scoring.answers import resolve_owners

VERSION = 1  # of ``locality_shifts``: raise it when what is computed changes


def locality_shifts(run: PeakRun, editor: Editor) -> pd.DataFrame:
    """Per record, locality prompt and way of asking: kl and top5 after its own edit (0 and 1 if given up)."""

    def make(records: Sequence[PeakRecord]) -> dict[str, pd.DataFrame]:
        prompts: list[str] = []
        owners: list[int] = []
        rows: list[tuple[int, int, str]] = []
        for owner, record in enumerate(records):
            statement = f"{record.edit_prompt} {record.target_new}. "
            for prompt_index, (prompt, _) in enumerate(record.locality):
                prompts += [prompt, statement + prompt]
                owners += [owner, owner]
                rows.append((record.case_id, prompt_index, "alone"))
                rows.append((record.case_id, prompt_index, "stated"))
        edits = editor.edit(list(map(edit_request, records)))
        edited = next_token_scores(lm, prompts, edits, owners)
        unedited = next_token_scores(lm, prompts, [], [-1] * len(owners))
        prompts_of_records = pd.DataFrame(rows, columns=["case_id", "prompt_index", "asked"])
        return {"scores": prompts_of_records.join(distribution_shifts(unedited, edited))}

    lm = run.lm
    mode: Mode[PeakRecord] = Mode("locality", settings={"locality": VERSION})
    return run.evaluation(editor, mode).complete(make)


def distribution_shifts(before: Tensor, after: Tensor) -> pd.DataFrame:
    """``kl`` and ``top5`` of distributions given as log-probabilities [n, vocabulary]."""
    top_before = before.topk(5).indices  # [n, 5]
    top_after = after.topk(5).indices
    shared_share = (top_before[:, :, None] == top_after[:, None]).sum((1, 2)) / 5
    kl = (after.double().exp() * (after.double() - before)).sum(-1)
    return pd.DataFrame({"kl": kl.numpy(), "top5": shared_share.numpy()})


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

    def score_batch(batch: Sequence[int]) -> None:
        padded_rows = padded(lm, [token_ids[prompt_index] for prompt_index in batch])
        prompt_tokens = PromptTokens.of_rows(padded_rows.real, batch, len(prompts))
        decisions = {} if beforehand is None else beforehand
        owners_of_rows = [owners[prompt_index] for prompt_index in batch]
        with under(lm, on_device, owners_of_rows, prompt_tokens, decisions):
            hidden = hidden_states(lm, padded_rows.ids, padded_rows.positions, padded_rows.visible)
        batch_rows = torch.arange(len(batch), device=hidden.device)
        last_hidden = padded_rows.last(hidden)
        _, distributions = vocabulary_scores(lm, last_hidden, batch_rows, batch_rows, batch_rows)
        scores[list(batch)] = distributions.to(scores)

    for batch in token_batches([len(ids) for ids in token_ids], 4096):
        run_halving(batch, score_batch)
    return scores


def dose_parts(run: PeakRun, editors: Mapping[str, Editor]) -> Iterator[Part]:
    """The shifts of notebook 08's doses."""
    for name, editor in editors.items():
        make = partial(locality_shifts, run, editor)
        settings = {"locality": VERSION, **editor.settings()}
        cases = [record.case_id for record in run.data.records]
        yield Part(str(TableKey(LOCALITY, name)), settings, make, cases=cases)
