"""The audit of gates: measures of keys made by hand, and keys of a tiny model against plain reading."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot as plt

from helpers.editing.masks import shared_columns, top_columns
from helpers.editing.memory import Memory, MemoryHyperparameters
from helpers.facts.fact import Fact
from helpers.gates import audit
from helpers.gates.audit import GateAudit, drawn_facts, publication
from helpers.gates.figures import gate_panels
from helpers.gates.keys import LAYER_KEYS, WORD_KEYS, cosines, word_nearness
from helpers.gates.tables import clustered_area, gate_audit_table, key_measures
from helpers.models import LanguageModel
from helpers.models.hooks import record
from helpers.peak.gates import area_under_curve
from helpers.results.archive import Archive
from helpers.results.publish import publish_parts
from helpers.results.store import ResultsStore

FACTS = [
    Fact("Mars", "{} is a planet near", "Venus", ("A planet near {} is",), ("Peru is near",)),
    Fact("Lake Chad", "The shore of {} touches", "Peru", ("It rained. {} touches",), ("Bach is",)),
    Fact("Bach", "{} wrote", "Aida", (), ("Verdi wrote", "Mars is red and")),
]


def prompts_of(rows: list[tuple[int, float]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["case_id", "nearness"])


def inputs_of(lm: LanguageModel, text: str, layer: int) -> torch.Tensor:
    """What enters a layer's second MLP matrix in a text that the network runs by itself [tokens, in]."""
    module_name = lm.layout.mlp_out(layer)
    ids = torch.tensor([lm.tokenizer(text)["input_ids"]])
    with record(lm, inputs=[module_name]) as recorded:
        lm.network(ids)
    return recorded[module_name][0]


def test_masks_hold_the_largest_values_and_share_columns() -> None:
    features = torch.tensor([[3.0, -4.0, 1.0, 0.5], [0.1, 9.0, -2.0, 0.2]])
    masks = top_columns(features, 2)
    assert masks.tolist() == [[True, True, False, False], [False, True, True, False]]
    assert shared_columns(masks, masks).tolist() == [[2.0, 1.0], [1.0, 2.0]]


def test_cosines_have_a_row_a_prompt_and_a_column_a_fact() -> None:
    vectors = torch.tensor([[2.0, 0.0], [0.0, -1.0], [1.0, 1.0]])
    stored = torch.tensor([[3.0, 0.0], [0.0, 5.0]])
    expected = torch.tensor([[1.0, 0.0], [0.0, -1.0], [0.5**0.5, 0.5**0.5]])
    torch.testing.assert_close(cosines(vectors, stored), expected)  # [prompts, facts]
    torch.testing.assert_close(cosines(stored, vectors), expected.T)


def test_the_area_counts_ties_as_half_and_resamples_facts() -> None:
    paraphrases = prompts_of([(1, 2.0), (2, 1.0)])
    others = prompts_of([(1, 1.0), (2, 0.0), (2, 3.0)])
    # 2 beats 1 and 0; 1 ties with 1 and beats 0: 3.5 of 6 pairs.
    area = clustered_area(paraphrases, others)
    assert area.mean == pytest.approx(3.5 / 6)
    assert area.n == 2
    # A resample is both facts, or one twice: 1 of fact 1 (2 against 1), 0.5 of fact 2 (1 against 0, 3).
    assert (area.low, area.high) == (pytest.approx(0.5), pytest.approx(1.0))


def test_resampled_areas_are_those_of_repeated_rows() -> None:
    generator = np.random.default_rng(1)
    values = generator.integers(0, 6, size=40).astype(float)
    table = prompts_of([(i % 8, value) for i, value in enumerate(values)])
    paraphrases, others = table[:20], table[20:]
    area = clustered_area(paraphrases, others)
    draws = np.random.default_rng(0).multinomial(8, np.full(8, 1 / 8), 2000)
    areas = []
    for draw in draws:
        first, second = (
            np.repeat(part["nearness"], draw[part["case_id"]]).to_numpy()
            for part in (paraphrases, others)
        )
        areas.append(area_under_curve(first, second))
    assert area.low == pytest.approx(np.nanquantile(areas, 0.025))
    assert area.high == pytest.approx(np.nanquantile(areas, 0.975))


def test_shares_of_paraphrases_are_by_fact_and_threshold() -> None:
    rows = [
        (1, "paraphrase", 0, 1, 5.0),
        (1, "paraphrase", 1, 2, 9.0),
        (2, "paraphrase", 0, 2, 0.0),
    ]
    rows += [(2, "locality", index, 1, float(index) / 10) for index in range(41)]  # 0 to 4
    columns = ["case_id", "role", "prompt_index", "entry", "nearness"]
    measures = key_measures(pd.DataFrame(rows, columns=columns).assign(layer=3)).loc[3]
    assert measures["own first"].mean == pytest.approx((0.5 + 1) / 2)
    assert measures["at 5 %"].mean == pytest.approx((1 + 0) / 2)  # above 3.8, as 2 of 41 others
    assert measures["own at 5 %"].mean == pytest.approx((0.5 + 0) / 2)


def test_without_other_prompts_no_share_is_let_in() -> None:
    columns = ["case_id", "role", "prompt_index", "entry", "nearness"]
    table = pd.DataFrame(
        [(1, "paraphrase", 0, 1, 5.0), (2, "paraphrase", 0, 2, 4.0)], columns=columns
    )
    measures = key_measures(table.assign(layer=3)).loc[3]
    assert measures["own first"].mean == 1
    assert np.isnan(measures["at 5 %"].mean)
    assert np.isnan(measures["own at 5 %"].mean)


def test_words_are_near_where_they_are_shared_and_the_subject_is_named() -> None:
    statements = ["Bach wrote Aida", "Mars is near Venus"]
    nearness = word_nearness(statements, ["Bach", "Mars"], ["Verdi wrote", "who is Bach", "a b c"])
    assert (nearness["bm25"][0] > 0).tolist() == [True, False]
    assert nearness["bm25-subject"][0].tolist() == [0.0, 0.0]
    assert (nearness["bm25-subject"][1] > 0).tolist() == [True, False]
    assert not nearness["bm25"][2].any()


@pytest.fixture
def audited(tiny, tmp_path) -> GateAudit:
    results = ResultsStore(tmp_path / "store").open({})
    return GateAudit(tiny("llama"), dict(enumerate(FACTS)), results)


def test_every_prompt_has_its_nearest_fact_by_every_key(audited) -> None:
    prompts = audited.prompts_of(range(3))
    assert len(prompts) == 3 + 2 + 4
    for key in (*LAYER_KEYS, *WORD_KEYS):
        table = audited.table(key)
        layers = len(audited.layers) if key in LAYER_KEYS else 1
        assert len(table) == layers * len(prompts)
        assert set(table["entry"]) <= {-1, 0, 1, 2}
        own = table[table["role"] == "edit"]
        if key in ("last", "subject", "mask", "bm25", "bm25-subject"):
            assert (own["entry"] == own["case_id"]).all()
    assert (audited.table("last").query("role == 'edit'")["nearness"].abs() < 1e-4).all()
    assert audited.table("mask").query("role == 'edit'")["nearness"].eq(1).all()
    nothing = audited.table("bm25-subject").query("role == 'locality' and case_id == 0")
    assert nothing["entry"].tolist() == [-1]


def test_keys_are_those_of_the_editors(audited) -> None:
    """GRACE's distance and the memory's cosine, each prompt alone; the subject's by a plain loop."""
    lm = audited.lm
    texts = audited.prompts_of(range(3))["text"].tolist()
    nearness = audited.nearness(texts)
    layer = audited.layers[-1]
    requests = [fact.request for fact in FACTS]
    keys = torch.stack([inputs_of(lm, request.text, layer)[-1] for request in requests])
    queries = torch.stack([inputs_of(lm, text, layer)[-1] for text in texts])
    by_grace = -torch.cdist(queries, keys).numpy()
    np.testing.assert_allclose(nearness["last", layer], by_grace, atol=1e-4)
    settings = MemoryHyperparameters(retriever="hidden", relative_layer=layer / lm.layout.blocks)
    memory = Memory(lm, settings)._memory(None, requests, "")
    by_memory = memory.scores(lm, texts)
    np.testing.assert_allclose(nearness["hidden", layer], by_memory, atol=1e-4)


def test_the_subjects_key_is_compared_with_every_token_but_the_first(audited) -> None:
    lm = audited.lm
    layer = audited.layers[0]
    key = inputs_of(lm, "The shore of Lake Chad", layer)[-1]
    text = "It rained. Lake Chad touches"
    by_token = (inputs_of(lm, text, layer) - key).norm(dim=-1)  # [tokens]
    nearness = audited.nearness([text, "Peru is near"])["subject", layer]
    assert nearness[0, 1] == pytest.approx(-float(by_token[1:].min()), abs=1e-4)


def test_a_run_is_published_resumed_tabled_and_drawn(tiny, tmp_path, monkeypatch) -> None:
    file = tmp_path / "mine.csv"
    lines = ["subject,prompt,target,paraphrases,locality"]
    for fact in FACTS:
        lists = ("|".join(fact.paraphrases), "|".join(fact.locality))
        lines.append(",".join([fact.subject, fact.prompt, fact.target, *lists]))
    file.write_text("\n".join(lines), "utf-8")
    monkeypatch.setattr(audit.models, "load", lambda *_, **__: tiny("llama"))
    params = {
        "model": "tiny-llama",
        "dataset": str(file),
        "facts": 3,
        "dtype": "float32",
        "device": "cpu",
        "seed": 0,
        "results": str(tmp_path / "store"),
    }
    archive = Archive(tmp_path / "gates")
    folder = publish_parts(publication(params), archive)
    assert folder.name == "tiny-llama_mine"
    run = archive.get(folder.name)
    assert list(run.tables) == [*LAYER_KEYS, *WORD_KEYS]
    monkeypatch.setattr(GateAudit, "_made", lambda *_: pytest.fail("made again"))
    publish_parts(publication(params), archive)
    again = publish_parts(publication(params), Archive(tmp_path / "again"))  # from the store
    assert (again / "last.parquet").read_bytes() == (folder / "last.parquet").read_bytes()
    shown = gate_audit_table(run)
    assert len(shown.table) == len(LAYER_KEYS) * 3 + len(WORD_KEYS)
    fig = gate_panels([run])
    assert "AUC on mine" in " ".join(fig.get_suptitle().split())
    plt.close(fig)


def test_facts_are_drawn_by_seed() -> None:
    assert sorted(drawn_facts(FACTS, 5, 0)) == [0, 1, 2]
    for seed, count in product(range(3), (1, 2)):
        drawn = drawn_facts(FACTS, count, seed)
        assert drawn == drawn_facts(FACTS, count, seed)
        assert all(FACTS[number] is fact for number, fact in drawn.items())
