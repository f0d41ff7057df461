"""UltraEdit: its statistics, its solve against the equations as printed, and what it refuses."""

from __future__ import annotations

import pytest
import torch

from helpers.editing.edit import Edit
from helpers.editing.held_out import first_held_out, held_out_requests
from helpers.editing.request import EditRequest, RequestError
from helpers.editing.ultraedit import TokenStatistics
from helpers.models.tokens import answer_ids, prompt_ids
from helpers.scoring.answers import Question, score_answers
from tests.editing.conftest import assert_same

LONG = EditRequest("Ada", "{} lives in", "Oslo by the sea", record="long")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path_factory.getbasetemp() / "ultraedit"))


def numbers(rows: int, seed: int) -> torch.Tensor:
    return torch.randn(rows, 5, generator=torch.Generator().manual_seed(seed)) * 3 + 1


def test_statistics_that_grow_are_those_of_all_tokens() -> None:
    parts = [numbers(7, 0), numbers(1, 1), numbers(10, 2)]
    statistics = TokenStatistics.of_none(parts[0])
    for part in parts:
        statistics = statistics.with_tokens(part, exact=True)
    together = torch.cat(parts).double()
    expected = (together - together.mean(0)) / (together.std(0) + 1.2e-7)
    torch.testing.assert_close(statistics.normalised(together), expected)
    assert statistics.count == 18


def test_the_authors_statistics_of_ten_tokens_are_5_percent_too_large() -> None:
    tokens = numbers(10, 0)
    deviations = []
    for exact in (True, False):
        of_tokens = TokenStatistics.of_none(tokens).with_tokens(tokens, exact=exact)
        deviations.append((of_tokens.squares / 9).sqrt())
    torch.testing.assert_close(
        deviations[1] / deviations[0], torch.full((5,), (10 / 9) ** 0.5).double()
    )


def by_hand(lm, request: EditRequest, module_name: str, statistics: TokenStatistics, lr: float):
    """The primal solve, with inputs and gradients from transformers and one plain backward pass."""
    ids = prompt_ids(lm, request.text)
    answer = answer_ids(lm, request.target)
    seen = {}

    def keep(_, arguments, output):
        seen["h"] = arguments[0].detach()[0]
        seen["g"] = output
        output.retain_grad()

    with lm.module(module_name).register_forward_hook(keep):
        embedded = lm.network.get_input_embeddings()(torch.tensor([[*ids, *answer]])).detach()
        logits = lm.network(inputs_embeds=embedded.requires_grad_()).logits[0]
    places = torch.arange(len(ids) - 1, len(ids) + len(answer) - 1)
    loss = -logits.log_softmax(-1)[places, torch.tensor(answer)].mean()
    loss.backward()
    h, g = seen["h"][places].double(), seen["g"].grad[0, places].double()
    z = statistics.normalised(torch.cat([h, g], dim=1))
    normal_h, normal_g = z[:, : h.shape[1]], z[:, h.shape[1] :]
    v = -lr * normal_h.square().sum(1, keepdim=True) * normal_g
    gram = h.T @ h + torch.eye(h.shape[1], dtype=torch.float64)
    return torch.linalg.solve(gram, h.T @ v).T


@pytest.mark.parametrize("matrix", ["up", "down"])
def test_an_edit_is_the_printed_solve(tiny, make_editor, matrix) -> None:
    lm = tiny("llama")
    editor = make_editor("ultraedit", lm, layers=(2,), matrices=(matrix,))
    (edit,) = editor.edit([LONG])
    ((module_name, delta),) = edit.items()
    statistics = editor._first_statistics[editor._shape(module_name)]
    expected = by_hand(lm, LONG, module_name, statistics, editor.hyperparameters.lr)
    torch.testing.assert_close(delta.dense().double(), expected, rtol=1e-3, atol=1e-6)
    assert delta.left.shape[1] == len(answer_ids(lm, LONG.target))


def test_a_sequence_counts_its_own_tokens(tiny, make_editor, requests) -> None:
    """After the first turn the statistics hold its tokens too; the joint edit of one is that turn."""
    lm = tiny("llama")
    editor = make_editor("ultraedit", lm)
    first, second = list(editor.edit_sequentially(requests[:2]))
    assert_same(first, editor.edit_jointly(requests[:1]))
    (frozen,) = editor.edit(requests[:1])
    module_name = next(iter(first))
    assert not torch.equal(first[module_name].dense(), frozen[module_name].dense())
    assert second.diagnostics["losses"] != first.diagnostics["losses"]


def test_a_rate_of_nothing_is_the_unedited_model_to_the_bit(tiny, make_editor, requests) -> None:
    lm = tiny("llama")
    (edit,) = make_editor("ultraedit", lm, lr=0.0).edit(requests[:1])
    questions = [Question(requests[0].text, (requests[0].target, "Rome"))]
    edited = score_answers(lm, questions, [edit], [0])["sum"]
    assert (edited == score_answers(lm, questions)["sum"]).all()


def test_statistics_are_the_unedited_models_whenever_they_are_asked_for(
    tiny, make_editor, requests, monkeypatch, tmp_path
) -> None:
    lm = tiny("llama")
    (earlier,) = make_editor("rome", lm).edit(requests[:1])
    expected = make_editor("ultraedit", lm)._first_statistics
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path))
    editor = make_editor("ultraedit", lm)
    editor.edit_on(earlier, requests[1:2])
    for shape, statistics in editor._first_statistics.items():
        torch.testing.assert_close(statistics.mean, expected[shape].mean)


def test_an_edit_is_saved_and_read(tiny, make_editor, requests, tmp_path) -> None:
    (edit,) = make_editor("ultraedit", tiny("llama")).edit(requests[:1])
    edit.save(tmp_path / "edit.safetensors")
    assert_same(Edit.load(tmp_path / "edit.safetensors"), edit)


def test_one_token_without_statistics_is_refused(tiny, make_editor) -> None:
    """After a line break no blank comes first: one byte is one token here."""
    lm = tiny("llama")
    single = EditRequest("Ada", "{} lives in:\n", "X", record="short")
    editor = make_editor("ultraedit", lm, held_out=0)
    for make in (editor.edit, editor.edit_jointly, lambda r: list(editor.edit_sequentially(r))):
        with pytest.raises(RequestError, match=r"record 'short': .* one token; set held_out"):
            make([single])
    assert not editor.edit([LONG])[0].failed
    assert not editor.edit_jointly([single, LONG]).failed
    assert not make_editor("ultraedit", lm).edit([single])[0].failed


def test_statistics_from_the_requests_themselves_are_refused(tiny, make_editor) -> None:
    editor = make_editor("ultraedit", tiny("llama"))
    held_out = first_held_out(12)[3]
    request = EditRequest(held_out.subject, held_out.prompt, "Oslo", record="r")
    with pytest.raises(RequestError, match=r"record 'r': its prompt is one of the 12 held-out"):
        editor.edit([LONG, request])
    editor.edit([EditRequest(held_out.subject, "{} is near", "Oslo")])


def test_held_out_requests_are_of_many_relations_and_ask_for_another_answer() -> None:
    requests = held_out_requests()
    assert len(requests) >= 480
    assert len({request.text for request in requests}) == len(requests)
    assert len({request.prompt for request in requests[:17]}) > 14
    with pytest.raises(RequestError, match="are packaged; lower held_out"):
        first_held_out(10_000)
