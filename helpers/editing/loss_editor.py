"""What FT and MEND share: their losses are read from whole rows, in batches of like length."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from tqdm.auto import tqdm

from helpers.editing.batch import EditBatch
from helpers.editing.editor import Editor, batches_of
from helpers.editing.request import EditRequest, several_requests
from helpers.editing.rows import EditRow, loss_row
from helpers.editing.update import Update
from helpers.models.batching import run_halving, token_batches


class LossEditor(Editor):
    """Base of the editors whose every token changes from one block on.

    ``targets`` says which answers are made likely (``helpers.editing.rows``; PEAK, Table 5).
    ``token_budget`` bounds the tokens of a batch.

    Raises:
        ValueError: unknown ``targets``.
    """

    token_budget: int
    progress: bool
    activity: ClassVar[str] = "editing"  # what its progress bar says

    @abstractmethod
    def edit_rows(self, rows: Sequence[EditRow]) -> list[Update]:
        """One independent update per row, made in one batch."""

    @property
    def prompt_last(self) -> bool:
        """Whether all tokens of a target are read from the distribution after the prompt."""
        return False

    @property
    def edits_at_a_time(self) -> int | None:
        """Most edits of a batch; None: as many as its tokens allow."""
        return None

    def versions(self) -> dict[str, int]:
        """Also that of the loss."""
        return super().versions() | {"loss": EditBatch.version}

    def settings(self) -> dict[str, Any]:
        """Also the choice of targets."""
        return super().settings() | {"targets": self.targets}

    def edit(self, requests: Sequence[EditRequest]) -> list[Update]:
        """One independent update per request."""
        rows = [self._row(request) for request in several_requests(requests)]
        made: dict[int, Update] = {}
        bar = tqdm(total=len(rows), unit="edit", desc=self.activity, disable=not self.progress)
        for alike in token_batches([len(row.forest) for row in rows], self.token_budget):
            for batch in batches_of(alike, self.edits_at_a_time or len(alike)):
                parts = run_halving(batch, lambda chosen: self.edit_rows([rows[i] for i in chosen]))
                updates = [update for part in parts for update in part]
                made.update(zip(batch, updates, strict=True))
                bar.update(len(batch))
        bar.close()
        return [made[i] for i in range(len(rows))]

    def _row(self, request: EditRequest) -> EditRow:
        return loss_row(
            self.language_model,
            request,
            self.app,
            targets=self.targets,
            prompt_last=self.prompt_last,
        )
