"""The exam: perplexity by the model's own loss, one by one as in batches."""

import numpy as np
import torch

from helpers.behaviour import exam_run
from helpers.editing.weight_edit import WeightEdit
from helpers.peak.records import load_peak
from helpers.peak.run import PeakRun, score_records
from helpers.results.store import ResultsStore
from helpers.scoring.answers import Question
from tests.scoring.random_edits import random_edits


def test_scores_of_the_exam(tiny, tmp_path, monkeypatch):
    texts = [Question("Alice", (text,)) for text in ("went down", "saw France", "sat")]
    facts = [Question(f"The capital of {c} is", tuple("PRXY")) for c in "abcdef"]
    monkeypatch.setattr(
        exam_run, "exam", lambda: {"austen": texts, "carroll": texts, "facts": facts}
    )
    model, data = tiny("llama"), load_peak("peak-mini-cf", limit=3)
    ask, last = (
        exam_run.examined(PeakRun(model, data, ResultsStore(tmp_path))).ask,
        data.records[-1],
    )
    updates = [*random_edits(model)[:2], WeightEdit({})]  # the last of which changes nothing
    table = score_records(model, data.records, updates, ask=ask)
    alone = [
        score_records(model, [r], [u], ask=ask) for r, u in zip(data.records, updates, strict=True)
    ]
    np.testing.assert_allclose(table["sum"], np.hstack([each["sum"] for each in alone]), atol=1e-4)
    ids = torch.tensor([model.tokenizer(f"Alice {ask(last)[0][0].answers[0]}")["input_ids"]])
    loss = model.network(ids, labels=ids.where(torch.arange(ids.shape[1]) > 4, -100)).loss
    own = table[(table["case_id"] == last.case_id) & (table["role"] == "austen")]
    np.testing.assert_allclose(-own["sum"] / own["tokens"], float(loss), atol=1e-4)
