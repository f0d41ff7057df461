"""Rows whose every token changes from one block on, and the losses read from them: FT and MEND.

Prompt, target and, for APP, all answers of an edit form one prefix forest. The blocks below the
first edited one see nothing of the edit, so they run once; each evaluation starts at that block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from helpers.editing.app import AnswerScores, App, app_terms
from helpers.editing.readers import AnswerReaders, Readout
from helpers.editing.request import EditRequest, RequestError
from helpers.editing.rows import EditRow
from helpers.editing.targets import weighted_targets
from helpers.models.forest import PackedRows, pack
from helpers.models.forward import Mask, hidden_states, resumed
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import ids_of_answers, prompt_ids, separator_after
from helpers.models.trace import record_inputs


def loss_row(
    language_model: LanguageModel,
    request: EditRequest,
    app: App | None = None,
    *,
    targets: str = "new",
    prompt_last: bool = False,
) -> EditRow:
    """The row of one request: the bare prompt with its target and answers.

    Args:
        language_model: the model, for its tokenizer.
        app: whose answers are scored too, if any.
        targets: which answers are made likely, of ``helpers.editing.targets.TARGETS``.
        prompt_last: read every token of an answer from the distribution after the prompt (FT-L)
            instead of after the tokens before it.

    Raises:
        RequestError: a text cannot be tokenised or exceeds the context; names the record.
    """
    request.refuse_further("FT or MEND")
    row = EditRow(request.record or request.text)
    correct, false = app.answers(request) if app else ((), ())
    weighted = weighted_targets(request, targets)
    texts = (*(text for text, _ in weighted), *correct, *false)
    with request.named():
        prompt = prompt_ids(language_model, request.text)
        tokens = ids_of_answers(language_model, texts, separator_after(request.text))
    # FT-L itself reads only the prompt, but whoever scores its edit reads the answers after it.
    longest = len(prompt) + max(map(len, tokens.values())) - 1
    if longest > language_model.context_length:
        raise RequestError(
            f"record {row.record!r}: prompt and target of {longest} tokens exceed the context of"
            f" {language_model.context_length}; shorten them"
        )
    for text, weight in weighted:
        row.target += row.predict(prompt, tokens[text], at_once=prompt_last, scale=weight)
    for answers, slots in ((correct, row.correct), (false, row.false)):
        slots += [row.predict(prompt, tokens[text], at_once=prompt_last) for text in answers]
    return row


@dataclass
class LossBatch:
    """Packed rows ready to run again and again from block ``layer`` on.

    ``entering`` [rows, width, hidden] is that block's input; ``lengths`` [rows] counts each row's
    tokens; ``reference`` holds the unedited answer scores once they were read.
    """

    version: ClassVar[int] = 1  # raise it when the same rows give other losses
    language_model: LanguageModel
    layer: int
    packed: PackedRows
    entering: Tensor
    lengths: Tensor
    readers: AnswerReaders
    reference: tuple[Tensor, Tensor] | None = None
    mask: Mask = field(init=False)
    readout: Readout = field(init=False)

    def __post_init__(self) -> None:
        """Make what every evaluation of these rows shares."""
        packed = self.packed
        self.mask = Mask.of(self.language_model, packed.positions, packed.visible)
        self.readout = Readout.of(self.readers, *packed.ids.shape)

    @classmethod
    def build(cls, language_model: LanguageModel, rows: Sequence[EditRow], layer: int) -> LossBatch:
        """Pack the rows, run the blocks below ``layer``, prepare the readers."""
        packed = pack([row.forest for row in rows], language_model)
        block = language_model.layout.block(layer)
        with torch.no_grad(), record_inputs(language_model, [block]) as seen:
            hidden_states(language_model, packed.ids, packed.positions, packed.visible)
        return cls.assemble(language_model, rows, layer, packed, seen[block])

    @classmethod
    def assemble(
        cls,
        language_model: LanguageModel,
        rows: Sequence[EditRow],
        layer: int,
        packed: PackedRows,
        entering: Tensor,
    ) -> LossBatch:
        """The batch of rows whose states ``entering`` block ``layer`` are known."""
        width = packed.ids.shape[1]
        columns = np.broadcast_to(np.arange(width), (len(rows), width))
        device = language_model.device
        return cls(
            language_model,
            layer,
            packed,
            entering,
            torch.tensor([len(row.forest) for row in rows], device=device),
            AnswerReaders.build(rows, columns, device),
        )

    def hidden(self) -> Tensor:
        """Final hidden states [rows, width, hidden] under whatever hooks are set."""
        packed = self.packed
        with resumed(self.language_model, self.layer, self.entering):
            return hidden_states(self.language_model, packed.ids, packed.positions, self.mask)

    def loss_terms(self, hidden: Tensor, app: App | None = None) -> dict[str, Tensor]:
        """The terms of the loss, each [rows], from one pass of the vocabulary head.

        ``nll`` is the targets' weighted sum of means over tokens; ``app``, where APP adds anything,
        is weighted, and measured against the answers' scores in the first call.
        """
        scored = app if app and not app.inert else None
        (target, correct, false), _ = self.readout.read(self.language_model, hidden)
        terms = {"nll": -target[:, 0]}
        if scored:
            terms["app"] = scored.total(self._app_terms(correct, false, scored.margin))
        return terms

    def _app_terms(self, correct: Tensor, false: Tensor, margin: float) -> Tensor:
        """APP's L1, L2 and L3 [rows, 3]; the first call's scores are the reference."""
        if self.reference is None:
            self.reference = (correct.detach(), false.detach())
        _, real_correct, real_false = self.readout.real
        answers = AnswerScores(correct, real_correct), AnswerScores(false, real_false)
        return app_terms(*answers, *self.reference, margin)

    def keep(self, index: Tensor) -> None:
        """Drop all rows but those in ``index``, and the padding nobody needs any more."""
        new_row = torch.full((len(self.lengths),), -1, device=index.device)
        new_row[index] = torch.arange(len(index), device=index.device)
        self.lengths = self.lengths[index]
        width = int(self.lengths.max())
        packed = self.packed
        self.packed = PackedRows(
            packed.ids[index, :width],
            packed.positions[index, :width],
            packed.visible[index, :width, :width],
        )
        self.entering = self.entering[index, :width]
        self.readers = self.readers.keep(new_row)
        if self.reference is not None:
            correct, false = self.reference
            self.reference = (correct[index], false[index])
        self.__post_init__()
