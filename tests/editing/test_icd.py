"""icd on numbers worked out by hand, against a plain forward pass, and in every editor with a loss."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

from helpers import UserError
from helpers.editing.app import App
from helpers.editing.batch import EditBatch
from helpers.editing.build import build_editor
from helpers.editing.contexts import ContextTemplates
from helpers.editing.editor import Memoised
from helpers.editing.editors import EDITORS, EditorError, Variant, method_label
from helpers.editing.icd import Icd, ScoredTexts, TrainedText, divergences, list_contexts
from helpers.editing.request import EditRequest, RequestError, TrainingProbe
from helpers.editing.rows import edit_row
from helpers.editing.teacher import teacher_probabilities
from helpers.models.tokens import answer_ids, prompt_ids
from helpers.results.evaluation import Benchmark, Evaluation
from helpers.results.store import ResultsStore, settings_key
from helpers.scoring.answers import Question, score_answers
from tests.editing.conftest import assert_same

CONTEXTS = ContextTemplates((("{}", "The sea. {}"),))
LIST = EditRequest("Mars", "{} is a planet near", "Venus", ("Earth", "Ceres"), ("Paris",), "a")
NEAR = TrainingProbe("near", "{} is the colour of", "rust")
CHAIN = TrainingProbe("chain", "{} has a moon called", "Io", ("Mars is a planet near Venus.",))
ELSEWHERE = TrainingProbe("near", "Rome lies in", "Italy")
PROBED = replace(LIST, correct=(), probes=(NEAR, CHAIN))
LOSS = [name for name, editor in EDITORS.items() if editor.loss and name != "prune-added"]


def batch_of(lm, requests, icd, **options) -> EditBatch:
    rows = [edit_row(lm, request, icd=icd, **options) for request in requests]
    return EditBatch(lm, rows, 1)


# What is trained on.


def test_contexts_state_the_list_and_the_target_in_four_orders():
    request = replace(LIST, correct=("Earth", "Ceres", "Vesta", "Pallas", "Juno"))
    contexts = list_contexts(request, 4, 0)
    assert len(contexts) == 4
    for context in contexts:
        listed = context.removeprefix("Mars is a planet near ").removesuffix(".")
        assert sorted(listed.replace(" and ", ", ").split(", ")) == sorted(
            [*request.correct, "Venus"]
        )
    assert len(set(contexts)) > 1
    assert contexts == list_contexts(request, 4, 0) != list_contexts(request, 4, 1)
    places = {context.find("Venus") for context in list_contexts(request, 40, 0)}
    assert len(places) > 6  # the target is anywhere


def test_kinds_take_turns_up_to_the_most():
    request = replace(LIST, probes=(NEAR, CHAIN, NEAR))
    kinds = [probe.kind for probe in Icd().probes(request)]
    assert kinds == ["list", "chain", "near", "list", "near"]
    assert [probe.kind for probe in Icd(most=2).probes(request)] == ["list", "chain"]
    assert {probe.kind for probe in Icd(kinds=("near",)).probes(request)} == {"near"}
    assert Icd(mu=0).probes(request) == ()
    many = replace(LIST, correct=tuple("abcdefghijk"))
    assert [probe.answer for probe in Icd().probes(many)] == list("abcdefgh")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mu": -1}, "finite numbers from 0 on"),
        ({"mu": float("nan")}, "finite numbers from 0 on"),
        ({"most": 2.5}, "whole numbers"),
        ({"orders": 3}, "at least 4"),
        ({"kinds": ("cloze",)}, "no kind 'cloze'"),
    ],
)
def test_values_that_mean_nothing_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        Icd(**values)


def test_a_probe_of_no_kind_or_with_two_places_is_refused():
    with pytest.raises(RequestError, match="no kind 'far'"):
        TrainingProbe("far", "{} is", "a")
    with pytest.raises(RequestError, match="at most one"):
        TrainingProbe("near", "{} is {}", "a")


def test_a_request_without_probes_reads_as_it_did():
    """Results of ThinkEdit are kept by this text."""
    assert str(EditRequest("s", "{} is", "t", ("a",), record="1")) == (
        "EditRequest(subject='s', prompt='{} is', target='t', correct=('a',), false=(), record='1',"
        " further=())"
    )
    assert "probes=(TrainingProbe(kind='near'" in str(PROBED)


# The divergence.


def test_divergence_by_hand():
    teacher = torch.tensor([[0.5, 0.25, 0.25]])
    model = torch.tensor([[0.25, 0.25, 0.5]]).log()
    none = torch.tensor([-1])
    expected = 0.5 * torch.tensor(2.0).log() + 0.25 * torch.tensor(0.5).log()
    torch.testing.assert_close(divergences(teacher, model, none), expected[None])
    assert divergences(teacher, teacher.log(), none).item() == pytest.approx(0, abs=1e-7)


def test_a_one_hot_teacher_gives_the_nll_of_that_token():
    model = torch.randn(4, 9).log_softmax(-1)
    tokens = torch.tensor([3, 0, 8, 3])
    teacher = torch.nn.functional.one_hot(tokens, 9).float()
    found = divergences(teacher, model, torch.full((4,), -1))
    torch.testing.assert_close(found, -model[torch.arange(4), tokens])


def test_an_excluded_token_counts_for_neither():
    """How probable it is changes nothing, as long as the others' shares stay."""
    model = torch.randn(1, 6).log_softmax(-1)
    louder = model.clone()
    louder[0, 2] += 3
    teacher = torch.tensor([[0.2, 0.3, 0.0, 0.1, 0.4, 0.0]])
    excluded = torch.tensor([2])
    found = divergences(teacher, model, excluded)
    torch.testing.assert_close(found, divergences(teacher, louder.log_softmax(-1), excluded))
    rest = [0, 1, 3, 4, 5]
    alone = divergences(teacher[:, rest], model[:, rest].log_softmax(-1), torch.tensor([-1]))
    torch.testing.assert_close(found, alone)


def test_the_divergence_has_the_right_gradient():
    torch.manual_seed(0)
    teacher = torch.randn(3, 7, dtype=torch.float64).softmax(-1)
    teacher[0, 4] = 0
    teacher[0] /= teacher[0].sum()
    logits = torch.randn(3, 7, dtype=torch.float64, requires_grad=True)
    excluded = torch.tensor([4, -1, -1])
    assert torch.autograd.gradcheck(
        lambda x: divergences(teacher, x.log_softmax(-1), excluded), (logits,)
    )


# On tiny models.


def plain_probabilities(lm, ids, count: int) -> torch.Tensor:
    """The model's own distributions of the last ``count`` tokens of a text, by transformers alone."""
    with torch.no_grad():
        logits = lm.network(torch.tensor([ids], device=lm.device)).logits[0]
    return logits[-count - 1 : -1].float().softmax(-1)


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_the_term_equals_plain_passes(tiny, architecture):
    """Whole texts, one at a time: the list with its four contexts, o*'s first token left out."""
    lm = tiny(architecture)
    icd = Icd(mu=1.0)
    request = replace(LIST, probes=(NEAR, CHAIN))
    expected = []
    for probe in icd.probes(request):
        text = probe.text("Mars")
        answer = answer_ids(lm, probe.answer)
        texts = [f"{context}\n\n{text}" if context else text for context in probe.contexts]
        teacher = torch.stack(
            [plain_probabilities(lm, (*prompt_ids(lm, t), *answer), len(answer)) for t in texts]
        ).mean(0)
        model = plain_probabilities(lm, (*prompt_ids(lm, text), *answer), len(answer))
        if probe.kind == "list":
            first = answer_ids(lm, "Venus")[0]
            for distribution in (teacher, model):
                distribution[0, first] = 0
                distribution[0] /= distribution[0].sum()
        terms = torch.xlogy(teacher, teacher) - torch.xlogy(teacher, model)
        expected.append(terms.nan_to_num().sum(-1).mean())
    batch = batch_of(lm, [LIST, request], icd)
    found = batch.loss_terms(batch.hidden(), icd=icd)["icd"][1]
    torch.testing.assert_close(found, torch.stack(expected).mean(), rtol=1e-4, atol=1e-6)
    assert found > 1e-4


@pytest.mark.parametrize("contexts", [None, CONTEXTS], ids=["whole rows", "vector"])
def test_without_a_context_the_unedited_model_has_no_divergence_and_no_gradient(tiny, contexts):
    lm, icd = tiny("llama"), Icd(mu=100.0)
    request = replace(PROBED, probes=(NEAR,))
    batch = batch_of(lm, [request], icd, contexts=contexts)
    batch.entering = batch.entering.detach().requires_grad_()
    terms = batch.loss_terms(batch.hidden(), icd=icd)
    assert terms["icd"].item() == pytest.approx(0, abs=1e-4)
    gradients = []
    for name in ("icd", "nll"):  # a pass each: its gradient takes the place of its scores
        terms = batch.loss_terms(batch.hidden(), icd=icd)
        (gradient,) = torch.autograd.grad(terms[name].sum(), batch.entering)
        gradients.append(gradient)
    assert gradients[0].abs().max() < 1e-4 * gradients[1].abs().max()


@pytest.mark.parametrize("name", ["mend", "ultraedit"])
@pytest.mark.parametrize("mu", [0.5, 8.0])
def test_one_gradient_without_a_context_is_that_of_the_base_editor(tiny, make_editor, name, mu):
    lm = tiny("llama")
    request = replace(LIST, probes=(NEAR, ELSEWHERE))
    icd = Icd(mu=mu, kinds=("near",))
    (base,) = make_editor(name, lm).edit([request])
    (distilled,) = make_editor(name, lm, icd=icd).edit([request])
    assert_same(distilled, base)
    (with_context,) = make_editor(name, lm, icd=Icd(mu=mu)).edit([request])
    module = next(iter(base))
    assert not torch.allclose(with_context[module].dense(), base[module].dense(), rtol=1e-2)


def test_a_one_hot_teacher_asks_for_the_answer(tiny):
    """Then the term is the answer's mean negative log-likelihood."""
    lm, icd = tiny("llama"), Icd(mu=1.0)
    row = edit_row(lm, replace(PROBED, probes=(NEAR,)), icd=icd)
    (vocabulary,) = {len(probability[0]) for probability in teacher_probabilities(lm, [row])}
    answer = torch.tensor(answer_ids(lm, "rust"))
    one_hot = torch.nn.functional.one_hot(answer, vocabulary).float()
    batch = EditBatch(lm, [row], 1, teachers=[one_hot])
    found = batch.loss_terms(batch.hidden(), icd=icd)["icd"]
    scores = score_answers(lm, [Question("Mars is the colour of", ("rust",))])["mean"]
    assert found.item() == pytest.approx(-scores.item(), abs=1e-4)


def test_a_vector_learns_nothing_from_probes_that_are_not_about_its_subject(tiny):
    lm = tiny("llama")
    rows = [
        edit_row(lm, replace(PROBED, probes=probes), icd=Icd(), contexts=contexts)
        for probes, contexts in (((NEAR, ELSEWHERE), CONTEXTS), ((NEAR, ELSEWHERE), None))
    ]
    counts = [len(answer_ids(lm, probe.answer)) for probe in (NEAR, ELSEWHERE)]
    assert [len(row.distilled) for row in rows] == [counts[0], sum(counts)]
    for row in rows:
        assert sum(token.weight for token in row.distilled) == pytest.approx(1)


def test_a_context_longer_than_the_model_takes_names_the_record(tiny):
    lm = tiny("llama")
    probe = TrainingProbe("chain", "{} has", "moons", ("word " * 600,))
    row = edit_row(lm, replace(PROBED, probes=(probe,)), icd=Icd())
    with pytest.raises(RequestError, match=r"record 'a'.*exceed the context of 512"):
        EditBatch(lm, [row], 1)


# In every editor.


@pytest.fixture
def with_probes(requests):
    """The requests of the other tests, one of them with a chain and a near fact, one with nothing."""
    first, second, third = requests
    return [replace(first, probes=(NEAR, CHAIN)), replace(second, correct=()), third]


@pytest.mark.parametrize("name", LOSS)
@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_batched_equals_alone(tiny, make_editor, with_probes, architecture, name):
    lm = tiny(architecture)
    editor = make_editor(name, lm, icd=Icd(mu=0.5, gamma=0.1))
    assert editor.method == f"{name}+icd"
    together = editor.edit(with_probes)
    for request, one in zip(with_probes, together, strict=True):
        (other,) = editor.edit([request])
        assert "icd" in one.diagnostics["losses"][0] or name == "ft-bf"
        assert one.keys() == other.keys() != set()
        assert one.diagnostics.get("steps") == other.diagnostics.get("steps")
        for module, delta in other.items():
            dense, found = delta.dense(), one[module].dense()
            tolerance = 1e-4 * float(dense.abs().max()) + 1e-3 * dense.abs()
            if name.startswith("ft"):  # Adam's first steps are signs: noise in a gradient may flip
                assert float((found - dense).abs().median()) < 1e-4
            else:  # RECT cuts at a quantile
                unequal = int(((found - dense).abs() > tolerance).sum())
                assert unequal <= (2 if name == "rect" else 0)


@pytest.mark.parametrize(
    "name", [name for name in LOSS if name not in ("mend", "ultraedit", "ft-bf")]
)
def test_icd_lowers_its_own_objective(tiny, make_editor, with_probes, name):
    """Against a run that records the objective and hardly weighs it."""
    lm = tiny("llama")
    steps = {} if name.startswith("ft") or name == "lora" else {"stop_threshold": 0.0}
    weighed, watched = (
        make_editor(name, lm, icd=Icd(mu=weight), **steps).edit(with_probes[:1])
        for weight in (5.0, 1e-6)
    )
    divergence, watched_divergence = (
        edits[0].diagnostics["losses"][-1]["icd"] / weight
        for edits, weight in ((weighed, 5.0), (watched, 1e-6))
    )
    assert divergence < watched_divergence


def test_ft_bf_trains_on_the_probes(tiny, make_editor, with_probes):
    base, distilled = (
        make_editor("ft-bf", tiny("llama"), icd=icd).edit_jointly(with_probes)
        for icd in (None, Icd(mu=5.0))
    )
    (module,) = base
    assert not torch.allclose(base[module].dense(), distilled[module].dense(), rtol=1e-2)
    first_losses = [edit.diagnostics["losses"][0]["total"] for edit in (base, distilled)]
    assert first_losses[1] > first_losses[0]


@pytest.mark.parametrize("name", ["rome", "ft-m", "lora"])
def test_gamma_alone_is_the_third_term_of_app(tiny, make_editor, requests, name):
    stop = {"stop_on": "nll"} if name == "rome" else {"stop_threshold": 0.0}
    lm = tiny("llama")
    (by_app,) = make_editor(name, lm, app=App(0, 0, 0.7), **stop).edit(requests[:1])
    (by_icd,) = make_editor(name, lm, icd=Icd(mu=0, gamma=0.7), **stop).edit(requests[:1])
    assert_same(by_icd, by_app)


@pytest.mark.parametrize("name", ["rome", "ft-m", "lora"])
def test_the_nll_alone_ends_an_edit(tiny, make_editor, requests, name):
    """However large the other term is."""
    lm = tiny("llama")
    (first,) = make_editor(name, lm, icd=Icd(mu=50.0)).edit(requests[:1])
    losses = first.diagnostics["losses"]
    threshold = losses[0]["nll"] + 1e-3
    assert losses[0]["icd"] > 0.1
    (stopped,) = make_editor(name, lm, icd=Icd(mu=50.0), stop_threshold=threshold).edit(
        requests[:1]
    )
    assert stopped.diagnostics["steps"] == 0


def test_the_key_holds_all_that_determines_it(tiny, make_editor):
    lm = tiny("llama")
    base = make_editor("rome", lm).settings()
    assert "icd" not in base
    assert "icd" not in base["versions"]
    variants = [
        Icd(),
        Icd(mu=0.2),
        Icd(gamma=0.1),
        Icd(kinds=("list",)),
        Icd(orders=5),
        Icd(most=4),
        Icd(seed=1),
    ]
    keys = {settings_key(base)}
    keys |= {settings_key(make_editor("rome", lm, icd=icd).settings()) for icd in variants}
    assert len(keys) == 1 + len(variants)
    assert make_editor("rome", lm, icd=Icd()).settings()["versions"]["icd"] == 1


# By name.


def test_names_labels_and_variants():
    assert method_label("rome+icd") == "ROME+ICD"
    assert Variant.parse("rome+icd@gamma=0.1").label == "ROME+ICD, γ = 0.1"
    assert Variant.parse("rome+icd@mu=2x").change == "2 μ"
    with pytest.raises(EditorError, match=r"\+icd mu, gamma"):
        Variant.parse("rome+icd@alpha=0x")
    with pytest.raises(EditorError, match="KN has no loss"):
        method_label("kn+icd")


def test_coefficients_are_those_of_the_preset(tiny):
    lm = tiny("llama")
    options = {"preset": {"layers": [1], "num_steps": 2, "lr": 0.01}, "corpus": "self-8x16"}
    assert build_editor("ft-m+icd", lm, **options).icd == Icd()
    assert build_editor("ft-m", lm, **options).icd is None
    options["preset"]["icd"] = {"mu": 0.2, "kinds": ["chain"]}
    assert build_editor("ft-m+icd", lm, **options).icd == Icd(mu=0.2, kinds=("chain",))
    assert build_editor("ft-m+icd", lm, icd=Icd(3.0), **options).icd == Icd(3.0)
    with pytest.raises(EditorError, match="one objective"):
        build_editor("ft-m+icd", lm, app=App(), **options)
    with pytest.raises(EditorError, match="one objective"):
        build_editor("ft-m", lm, icd=Icd(), **options)
    options["preset"]["icd"] = {"nu": 1}
    with pytest.raises(EditorError, match=r"icd: .*nu"):
        build_editor("ft-m+icd", lm, **options)


# The leak rule.


@pytest.mark.parametrize(
    ("prompt", "answer", "kind"),
    [
        ("Mars is a planet near", "earth", "list"),
        ("They say that Mars is near", "Earth", "list"),
        ("Mars is a planet near", "Paris", "false"),
        ("Mars has a moon called", "anything", "chain"),
    ],
)
def test_what_trains_must_not_score(prompt, answer, kind):
    request = replace(LIST, correct=("Earth",), probes=(CHAIN,))
    icd = Icd(gamma=0.1)
    assert kind in {text.kind for text in icd.trained(request)}
    with pytest.raises(RequestError, match=r"record 'a': icd trains on .* which is scored"):
        ScoredTexts([(prompt, [answer])]).check_unscored(icd, request)


def test_what_does_not_train_may_score():
    request = replace(LIST, correct=("Earth",), probes=(CHAIN,))
    asked = [("Mars is a planet near", ["Venus", "Ceres", "Paris"]), ("Ceres is near", ["Earth"])]
    ScoredTexts(asked).check_unscored(Icd(), request)
    assert Icd().trained(request) == [
        TrainedText("list", "Mars is a planet near", "Earth"),
        TrainedText("chain", "Mars has a moon called", "Io"),
    ]


def test_probes_that_mend_leaves_out_are_not_recorded_as_trained(tiny, make_editor, tmp_path):
    """A probe without a context gives no gradient: it does not train, so that it may score."""
    lm = tiny("llama")
    request = replace(LIST, correct=(), probes=(NEAR, CHAIN))
    asked = [Question(NEAR.text(LIST.subject), (NEAR.answer, "ice"))]
    keys = pd.DataFrame({"case_id": [3, 3], "answer_index": [0, 1]})
    benchmark = Benchmark(
        name="near",
        version=1,
        data={"dataset": "one", "checksum": "none"},
        path="",
        cases=[SimpleNamespace(case_id=3)],
        request=lambda _: request,
        questions=lambda _: (asked, keys),
        relation=lambda _: None,
        content=lambda case: case.case_id,
    )
    store = ResultsStore(tmp_path)
    mend = make_editor("mend", lm, icd=Icd())
    for editor in (mend, Memoised(mend, {})):
        evaluation = Evaluation(lm, benchmark, store, editor)
        evaluation.complete()
        table = evaluation.read("probes")
        trained = table.loc[table["use"] == "trained", ["kind", "prompt"]]
        assert trained.to_numpy().tolist() == [["chain", CHAIN.text(LIST.subject)]]
    rome = Evaluation(lm, benchmark, store, make_editor("rome", lm, icd=Icd()))
    with pytest.raises(UserError, match="which is scored"):  # it trains on the probe
        rome.complete()
