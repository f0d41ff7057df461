"""Facts of one's own: the README's example and the recipe run, and the table says what happened."""

from __future__ import annotations

import json
import re
import string
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

from helpers import UserError, models
from helpers.editing.app import App
from helpers.editing.build import build_editor
from helpers.editing.editors import EditorError
from helpers.editing.mend import NetworkError
from helpers.editing.presets import (
    FOLDER,
    base_hyperparameters,
    content_of,
    model_file,
    preset_words,
    read_hyperparameters,
)
from helpers.editing.request import EditRequest, RequestError
from helpers.editing.rome import RomeHyperparameters
from helpers.editing.weight_edit import WeightEdit
from helpers.facts import GREEDY, Fact, answers, edit_facts
from helpers.facts import fact as facts_room
from helpers.models.shapes import SHAPES
from helpers.models.tokens import answer_ids, chat_prompt
from helpers.paths import REPOSITORY
from helpers.peak.metrics import additivity, keep_answers
from helpers.scoring.answers import Question, score_answers
from helpers.scoring.responses import sample_responses, sample_tokens
from tests.facts.conftest import CHAT

FAST = {"layers": [1], "num_steps": 30, "lr": 0.05, "norm_constraint": 0.5}
# Random byte models go on after a target as they like: targets that end their own word are given whole.
SUDAN = Fact(
    "Sudan",
    "{} shares a border with",
    "Thailand!",
    paraphrases=("A country beside {} is",),
    locality=("The sun is",),
    correct=("Egypt", "Chad"),
    false=("Laos", "Peru"),
)


def blocks(name: str) -> list[str]:
    return re.findall(
        r"^```python\n(.*?)^```$", (REPOSITORY / name).read_text("utf-8"), re.M | re.S
    )


def test_an_edit_is_seen_in_the_table(tiny):
    other = Fact("Peru", "{} lies beside", "Mali!")
    result = edit_facts(tiny("llama"), [SUDAN, other], editor="ft-m", preset=FAST)
    table = result.table
    assert table["efficacy"].tolist() == [1.0, 1.0]
    assert (table["P after"] > table["P before"]).all()
    assert table["CPC"].notna().tolist() == [True, False]
    assert table["AFF"].dropna().between(0, 1).all()
    assert table["locality"].notna().tolist() == [True, False]
    assert table["outcome"].tolist() == ["written", "written"]
    plain = edit_facts(tiny("llama"), [other], editor="ft-m", preset=FAST).table
    assert {"generality", "locality", "CPC"}.isdisjoint(plain)
    assert plain["P after"][0] == pytest.approx(table["P after"][1], abs=1e-4)  # one by one


def test_measures_are_of_tokens_and_the_text_is_only_shown(tiny):
    """By hand: the greedy tokens and log-probabilities that the table's numbers are made of."""
    model = tiny("llama")
    greedy = replace(GREEDY, stop=None)
    starts = [f"{letter} is\n" for letter in string.ascii_letters]
    own = sample_tokens(model, starts, None, None, greedy)
    texts = [model.tokenizer.decode(ids[0][:1]) for ids in own]
    known, start = next(pair for pair in zip(texts, starts, strict=True) if pair[0].isalnum())
    facts = [
        replace(SUDAN, paraphrases=("Chad is near {}, near",), locality=("A", "The sun is")),
        Fact(start[0], "{} is\n", known),
    ]
    result = edit_facts(model, facts, editor="ft-m", preset=FAST)
    first, second = result.table.to_dict("records")
    assert (second["outcome"], first["outcome"]) == ("known before", "written")
    assert np.isnan(second["efficacy"])
    assert first["efficacy"] == 1
    asked = [Question(facts[0].prompts[0], ("Thailand!",))] * 2
    scores = score_answers(model, asked, result.edits, [-1, 0])
    assert first["P before"] == pytest.approx(np.exp(scores["sum"][0]), rel=1e-4)
    assert first["P after"] == pytest.approx(np.exp(scores["sum"][1]), rel=1e-4)
    prompts = facts[0].prompts[1:]
    before, after = (
        [ids for (ids,) in sample_tokens(model, prompts, [u], [o] * 3, greedy)]
        for u, o in ((result.edits[0], -1), (result.edits[0], 0))
    )
    target = answer_ids(model, "Thailand!")
    assert first["generality"] == float(after[0][: len(target)] == target)
    assert before[1:] != after[1:]
    departs = [
        next((i for i, pair in enumerate(zip(*both, strict=True)) if len(set(pair)) > 1), 12)
        for both in zip(before[1:], after[1:], strict=True)
    ]
    assert first["locality"] == pytest.approx(np.mean(departs) / 12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"false": ("thailand! ",)}, "border with': 'thailand!' is given twice in target, correct"),
        ({"false": ("EGYPT",)}, "'egypt' is given twice"),
        ({"correct": ("Perú", "Peru\u0301")}, "'perú' is given twice"),
        ({"correct": ("Guinea-Bissau", "Guinea\u2011Bissau")}, "'guinea-bissau' is given twice"),
        ({"correct": ("Chad", "Thai\u200bland!")}, "'Thailand!' is already a correct answer"),
        ({"correct": ("Chad", "")}, "fact about 'Sudan': text 2 of correct is empty"),
    ],
)
def test_an_answer_belongs_to_one_list(change, message):
    with pytest.raises(RequestError, match=message):
        replace(SUDAN, **change)


def test_the_fields_of_a_fact_are_read_alike():
    """From the cells of a table, for instance: numbers, NumPy's texts, empty cells, lists."""
    fact = Fact(
        np.str_("Oslo"),
        "{} was founded in",
        np.int64(1048),
        paraphrases=["The year of {} is", 1048],
        locality=float("nan"),
        correct=pd.Series(["1050"]),
        false=None,
    )
    assert fact == Fact(
        "Oslo", "{} was founded in", "1048", ("The year of {} is", "1048"), (), ("1050",), ()
    )
    assert {type(fact.subject), type(fact.target)} == {str}
    assert fact.request == EditRequest("Oslo", "{} was founded in", "1048", ("1050",))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"subject": None}, "fact about None: the subject is missing"),
        ({"target": float("nan")}, "fact about 'Sudan': the target is missing"),
        ({"target": pd.NA}, "the target is missing"),
        ({"target": 3.0}, "the target is 3.0, of type float; write it as a text"),
        ({"target": True}, "the target is True, of type bool"),
        ({"target": np.bool_(True)}, "the target is .*True.*, of type bool"),
        ({"prompt": b"{} is"}, "the prompt is b'{} is', of type bytes"),
        ({"prompt": "{} and {} are"}, "fact about 'Sudan': prompt .* exactly one {}"),
        ({"prompt": "it is"}, "exactly one {}"),
        ({"target": "\ud83d"}, "the target .* holds half of a sign"),
        ({"subject": " \u200b"}, "the subject is empty"),
        ({"paraphrases": ("a", float("nan"))}, "text 2 of paraphrases is missing"),
        ({"paraphrases": {"a", "b"}}, "paraphrases is of type set; give a list"),
        ({"locality": {"a": "b"}}, "locality is of type dict"),
        ({"locality": 7}, "locality is of type int"),
        ({"correct": "Egypt"}, "correct takes several texts, not 'Egypt'"),
    ],
)
def test_what_is_no_text_is_refused_with_the_fact_and_the_field(change, message):
    with pytest.raises(RequestError, match=message) as caught:
        replace(SUDAN, **change)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("facts", "options", "message"),
    [
        (pd.DataFrame({"subject": ["a"]}), {}, r"a table; make each row one: \[Fact\(\*\*row\)"),
        ([{"subject": "a"}], {}, "fact 1 is a dict; give a list of facts"),
        ([SUDAN, None], {}, "fact 2 is a NoneType"),
        ([], {}, "give a list of facts"),
        ("Sudan", {}, "give a list of facts"),
        (None, {}, "give a list of facts"),
        ([SUDAN], {"seed": "0"}, "seed: must be a whole number of at least 0, not '0'"),
        ([SUDAN], {"seed": True}, "seed: .* not True"),
        ([SUDAN], {"seed": 0.5}, "seed: .* not 0.5"),
        ([SUDAN], {"seed": -1}, "seed: .* not -1"),
        ([SUDAN], {"editor": "memmit"}, r"no method 'memmit' \(did you mean 'memit'\?\)"),
        ([SUDAN], {"editor": "ROME+APP"}, r"\(did you mean 'rome\+app'\?\)"),
        ([SUDAN], {"editor": None}, "no method None"),
        ([SUDAN], {"corpus": "wikpedia"}, r"no corpus 'wikpedia' \(did you mean 'wikipedia'\?\)"),
        ([SUDAN], {"preset": 3}, "no preset 3"),
    ],
)
def test_what_cannot_be_edited_is_refused_before_the_model_runs(
    tiny, monkeypatch, facts, options, message
):
    # The first that would run it.
    monkeypatch.setattr("helpers.results.evaluation.score_answers", None)
    options = {"editor": "ft-m", "preset": FAST, **options}
    with pytest.raises(UserError, match=message) as caught:
        edit_facts(tiny("llama"), facts, **options)
    assert len(str(caught.value).splitlines()) == 1


def test_a_misspelt_editor_is_told_whatever_the_models_presets(tiny):
    with pytest.raises(EditorError, match=r"no method 'Rome' \(did you mean 'rome'\?\)"):
        edit_facts(tiny("llama"), [SUDAN], editor="Rome")


def test_a_misspelt_preset_is_told_what_there_is():
    with pytest.raises(EditorError, match=r"no preset 'tund' \(did you mean 'tuned'\?\); it has"):
        read_hyperparameters("rome", "smollm2-135m", "tund")


def test_all_facts_are_checked_before_an_editor_is_made(tiny, monkeypatch):
    made = []
    monkeypatch.setattr("helpers.facts.edit.build_editor", lambda *_, **__: made.append(1))
    bare = Fact("Peru", "{} lies next to", "Mali")
    long = replace(bare, paraphrases=("a " * 600 + "{} is",))
    for facts, options, message in (
        ([SUDAN, long], {}, "exceed the context"),
        ([SUDAN, bare], {"app": True}, "'Peru lies next to': APP protects .* omit APP"),
        ([SUDAN], {"editors": ("ft-m+icd",)}, "icd would train on them; use build_editor"),
        ([replace(SUDAN, locality=("The sun is\t",))], {}, "ends with a blank"),
    ):
        with pytest.raises(ValueError, match=message):
            edit_facts(tiny("llama"), facts, editor="ft-m", preset=FAST, **options)
    assert made == []


VECTOR = {
    **{"layers": [1], "v_num_grad_steps": 2, "v_lr": 0.1, "v_weight_decay": 0.1},
    **{"clamp_norm_factor": 2, "kl_factor": 0.1, "context_template_length_params": []},
    "mom2_update_weight": 10,
}


@pytest.mark.parametrize(
    ("editor", "own"), [("rect", {"keep": 0.25}), ("prune", {"log_base": 2.0})]
)
def test_a_wrapping_editor_takes_its_own_hyperparameters_and_its_bases(tiny, tmp_path, editor, own):
    model, options = tiny("llama"), {"corpus": "self-8x16"}
    path = tmp_path / "mine.yaml"
    path.write_text(json.dumps({**own, **VECTOR}))
    made = [
        build_editor(editor, model, preset=preset, **options)
        for preset in ({**own, **VECTOR}, path)
    ]
    ((name, value),) = own.items()
    assert {getattr(each.hyperparameters, name) for each in made} == {value}
    assert {each.base.hyperparameters.v_num_grad_steps for each in made} == {2}
    assert base_hyperparameters(editor, "any", path).moment_layers == (1,)
    with pytest.raises(EditorError, match="kep: Extra inputs"):
        build_editor(editor, model, preset={**own, **VECTOR, "kep": 1})


def test_the_table_reports_what_is_odd_about_an_edit(tiny):
    """A subject in the first token, an update as large as the weights."""
    first, how = Fact("P", "{} lies next to", "Mali"), {"preset": VECTOR, "corpus": "self-8x16"}
    table = edit_facts(tiny("qwen2"), [first, SUDAN], editor="prune", **how).table
    assert ["put a word before it" in str(text) for text in table["warning"]] == [True, False]
    table = edit_facts(tiny("llama"), [SUDAN], editor="ft-m", preset=FAST).table
    assert table["warning"][0] == "the update is as large as the weights"


def test_facts_that_are_odd_are_edited_and_told():
    near = replace(SUDAN, paraphrases=("Sudan is near", "A country beside it is"), locality=())
    other = replace(near, target="Mali", prompt="{}  shares a border with")

    def told(fact, *others, together=False):
        return facts_room.fact_warnings(fact, [fact, *others], together=together)

    assert told(replace(near, paraphrases=near.paraphrases[:1])) == []
    assert told(near) == ["the paraphrase 'A country beside it is' does not name the subject"]
    assert told(replace(near, target="SUDAN", paraphrases=())) == ["the target is the subject"]
    itself = replace(near, paraphrases=("sudan shares a border with", *near.paraphrases[:1]))
    assert told(itself) == ["the paraphrase 'sudan shares a border with' is the prompt"]
    fact = replace(near, paraphrases=())
    cut = replace(fact, subject="an", prompt="Sud{} shares a border with", target="Mali")
    assert len(told(fact, cut, together=True)) == 1  # the same question, whatever its subject
    assert told(fact, other) == []
    assert told(fact, other, together=True) == [
        "facts with this prompt have other targets, and one update is to write them all"
    ]
    assert told(fact, replace(fact, target="thailand!")) == [
        "the fact is given more than once, and its edits add up where all are written"
    ]


def test_an_edit_that_protects_nothing_is_told_in_the_table(tiny):
    preset = {**VECTOR, "L2": 1.0, "nullspace_threshold": 1e9}
    del preset["mom2_update_weight"]
    how = {"editor": "alphaedit", "preset": preset, "corpus": "self-8x16"}
    with pytest.warns(UserWarning, match="layer 1: every direction"):
        table = edit_facts(tiny("llama"), [SUDAN], **how).table
    assert "layer 1: every direction has a second moment below 1e+09" in table["warning"][0]


def test_a_target_is_given_where_its_name_ends(tiny):
    model = tiny("llama")  # a token is a byte

    def given(text, target):
        return answers.gives(
            model, tuple(answer_ids(model, text)), tuple(answer_ids(model, target))
        )

    assert given("Niger and Chad", "Niger")
    assert given("Niger", "Niger")
    assert given("Niger-based", "Niger")
    assert not given("Nigeria", "Niger")
    assert not given("Guinea-Bissau", "Guinea")
    assert not given("Chad and Niger", "Niger")
    assert not given("Nigeré", "Niger")
    assert given("東京都", "東京")


def test_a_target_that_the_answer_only_begins_with_is_not_known_before(tiny, monkeypatch):
    """The unedited model says Nigeria, the edited one Niger."""
    model = tiny("llama")
    said = iter([[[answer_ids(model, "Nigeria.")]], [[answer_ids(model, "Niger.")]]])
    monkeypatch.setattr("helpers.facts.benchmark.sample_tokens", lambda *_, **__: next(said))
    fact = Fact("Chad", "The neighbour of {} is", "Niger")
    row = edit_facts(model, [fact], editor="ft-m", preset=FAST).table.iloc[0]
    assert (row["outcome"], row["efficacy"]) == ("written", 1.0)
    assert (row["generated before"], row["generated after"]) == ("Nigeria.", "Niger.")


def test_the_pieces_of_a_row():
    failed = "too large"
    assert answers.outcome(failed, known_before=True, given_after=True) == "given up: too large"
    assert answers.outcome("", known_before=True, given_after=True) == "known before"
    assert answers.outcome("", known_before=False, given_after=True) == "written"
    assert answers.outcome("", known_before=False, given_after=False) == "not written"
    assert answers.shared_beginning((1, 2, 3), (1, 2, 4)) == 0.5  # of three tokens and the end
    assert answers.shared_beginning((1,), (1,)) == 1
    assert answers.shared_beginning((1,), (1, 2)) == 0.5
    assert answers.shared_beginning(tuple(range(20)), (*range(11), 0)) == pytest.approx(11 / 12)


def test_damage_is_of_the_answers_that_were_in_order_before(tiny):
    """By hand, from scores of the prompt's answers before and after."""
    lm = tiny("llama")
    letters = tuple(string.ascii_lowercase)
    asked = Question(SUDAN.prompts[0], letters)
    ranked = [letters[i] for i in np.argsort(-score_answers(lm, [asked])["mean"].to_numpy())]
    # One false answer is above the last correct one, and is not counted.
    correct = (ranked[0], ranked[1], ranked[3])
    false = (ranked[2], *ranked[4:9])
    fact = replace(SUDAN, correct=correct, false=false)
    result = edit_facts(lm, [fact], editor="ft-m", preset=FAST)
    question = Question(fact.prompts[0], (*correct, *false))
    scores = score_answers(lm, [question] * 2, result.edits, [-1, 0])["mean"].to_numpy()
    before, after = scores.reshape(2, -1)
    of_correct, of_false = np.split(np.array([before, after]), [len(correct)], axis=1)
    counted = keep_answers(of_correct[0], of_false[0], of_false[0])
    assert (len(counted.correct), len(counted.hard)) == (3, 5)
    expected = additivity(of_correct[:, counted.correct], of_false[:, counted.hard])
    row = result.table.iloc[0]
    for name in ("CPC", "AFF", "ANF"):
        assert row[name] == pytest.approx(expected[name], rel=1e-4)


def test_a_fact_is_edited_and_scored_inside_the_chat_template(tiny, monkeypatch):
    model = tiny("llama")
    monkeypatch.setattr(model.tokenizer, "chat_template", CHAT)
    asked = replace(SUDAN, prompt=chat_prompt(model, SUDAN.prompt))
    row = edit_facts(model, [asked], editor="ft-m", preset=FAST).table.iloc[0]
    assert row["fact"] == "Q Sudan shares a border with\nA\n"
    assert row["generated after"].startswith("Thailand")


def test_facts_together_are_one_update(checkpoint, tmp_path):
    facts = [SUDAN, Fact("Peru", "{} lies beside", "Mali")]
    lm = models.load(str(checkpoint))
    result = edit_facts(lm, facts, editor="ft-m", preset=FAST, together=True)
    (update,) = result.edits
    update.save(tmp_path / "edit.safetensors")
    assert WeightEdit.load(tmp_path / "edit.safetensors").diagnostics == update.diagnostics
    before = result.generate(["Peru lies beside"], fact=1)
    assert result.write() is lm
    after = sample_responses(lm, ["Peru lies beside"], n=1, sampling=GREEDY)
    assert before == after[0]
    weights = {name: lm.weight(name).clone() for name in update}
    assert result.write() is lm
    assert all(torch.equal(lm.weight(name), kept) for name, kept in weights.items())
    assert result.generate(["Peru lies beside"], fact=1) == before  # not twice the edit


def test_a_models_name_and_a_text_of_editors_are_refused(tiny):
    with pytest.raises(UserError, match="'smollm2-135m' is no loaded model"):
        edit_facts("smollm2-135m", [SUDAN])  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"give a list, \['ft-m', 'mend'\]"):
        edit_facts(tiny("llama"), [SUDAN], editors="ft-m,mend")


def test_of_several_edits_one_is_chosen(tiny):
    lm = tiny("llama")
    facts = [SUDAN, Fact("Peru", "{} lies beside", "Mali")]
    result = edit_facts(lm, facts, editor="ft-m", preset=FAST)
    prompts = ["Peru lies beside"]
    with pytest.raises(UserError, match=r"^edits: 2; choose one by fact=0 to fact=1, or write"):
        result.generate(prompts)
    for wrong in (-1, 2):  # -1 is not the last, nor the unedited model
        with pytest.raises(UserError, match="edits: 2; choose one"):
            result.generate(prompts, fact=wrong)
    expected = sample_responses(lm, prompts, result.edits, [1], n=1, sampling=GREEDY)
    assert result.generate(prompts, fact=1) == [*expected[0]]
    result.write()
    assert result.generate(prompts) == [*sample_responses(lm, prompts, n=1, sampling=GREEDY)[0]]
    result.undo()


@pytest.mark.parametrize("app", [True, App()])
def test_an_editor_that_has_no_loss_or_no_network_says_so(tiny, app):
    with pytest.raises(EditorError, match=r"KN optimises no loss that APP"):
        edit_facts(tiny("llama"), [SUDAN], editor="kn", preset="generic", app=app)
    preset = {"layers": [1], "network": "none.safetensors"}
    with pytest.raises(NetworkError, match=r"no MEND network none\.safetensors .*train one:"):
        edit_facts(tiny("llama"), [SUDAN], editor="mend", preset=preset)


def test_hyperparameters_come_from_anywhere(tiny, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("layers: [1]\nnum_steps: 3\nlr: 0.05\nnorm_constraint: 0.5\n")
    model = tiny("llama")
    tables = [
        edit_facts(model, [SUDAN], editor="ft-m", preset=preset).table
        for preset in (path, str(path), {**FAST, "num_steps": 3})
    ]
    assert len({table["P after"][0] for table in tables}) == 1
    with pytest.raises(EditorError, match=r"no file .*absent\.yaml"):
        edit_facts(model, [SUDAN], editor="ft-m", preset=tmp_path / "absent.yaml")
    path.write_text("editors: {}\n")
    with pytest.raises(EditorError, match="editors: Extra inputs"):
        edit_facts(model, [SUDAN], editor="ft-m", preset=path)


def test_the_generic_preset_follows_depth_and_width_and_says_that_it_is_untuned():
    assert "untuned" in preset_words("any", "generic", ["rome"])
    small, large = (
        read_hyperparameters("memit", "any", "generic", model_size=size)
        for size in ((30, 576), (40, 5120))
    )
    assert (small.layers, large.layers) == ((4, 5, 6, 7, 8), (5, 6, 7, 8, 9))
    assert large.mom2_update_weight / small.mom2_update_weight == pytest.approx(5120 / 576)
    assert isinstance(read_hyperparameters("rome", "any", "generic"), RomeHyperparameters)
    with pytest.raises(EditorError, match="mend has no generic preset"):
        read_hyperparameters("mend", "any", "generic")


def test_a_folder_takes_hyperparameters_by_configuration_and_never_by_name(checkpoint, tmp_path):
    for name in ("my-model", "smollm2-135m"):
        folder = checkpoint if name == "my-model" else checkpoint.rename(tmp_path / name)
        lm = models.load(str(folder))
        with pytest.raises(EditorError, match=r"copy a file .*'generic'"):
            edit_facts(lm, [SUDAN], editor="rome")
    real = tmp_path / "anything"
    real.mkdir()
    (real / "config.json").write_text(
        json.dumps({**SHAPES["smollm2-135m"], "architectures": ["LlamaForCausalLM"]})
    )
    assert model_file(str(real)).stem == "smollm2-135m"


def test_a_hub_name_that_fits_by_name_only_is_refused(tiny):
    model = replace(tiny("llama"), name="somebody/gpt2-xl")
    with pytest.raises(EditorError, match="by name only"):
        edit_facts(model, [SUDAN], editor="ft-m", preset="paper")


def test_the_configurations_are_those_of_the_shapes():
    for name, shape in SHAPES.items():
        path = model_file(f"shape:{name}")
        if path.exists():
            known = content_of(path)["configuration"]
            assert known["model_type"] == shape["model_type"]
            assert known["blocks"] == shape.get("num_hidden_layers", shape.get("n_layer"))
            assert known["hidden_size"] == shape.get("hidden_size", shape.get("n_embd"))
    assert all("configuration" in content_of(path) for path in FOLDER.glob("*.yaml"))


def test_one_text_is_not_taken_letter_by_letter(tiny):
    with pytest.raises(TypeError, match="several texts"):
        sample_responses(tiny("llama"), "Sudan is")
    with pytest.raises(RequestError, match="give a list of facts"):
        edit_facts(tiny("llama"), SUDAN)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/edit_my_model.md"])
def test_what_the_pages_show_runs(page, checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path / "cache"))
    found = blocks(page)
    assert found
    namespace: dict[str, object] = {}
    for block in found:
        imported = set(re.findall(r"^from (peft|lm_eval)\b", block, re.M))
        if any(find_spec(package) is None for package in imported):
            continue  # an optional extra that is not installed
        # A tiny folder instead of the page's model, so that it runs in seconds.
        code = re.sub(r'models\.load\("[^"]+"\)', f"models.load({str(checkpoint)!r})", block)
        code = code.replace('editor="rome"', 'editor="rome", preset="generic", corpus="self-8x16"')
        code = code.replace(
            'editors=["rome", "ft-m"]',
            'editors=["rome", "ft-m"], preset="generic", corpus="self-8x16"',
        )
        code = code.replace('preset="tuned"', 'preset="generic", corpus="self-8x16"')
        exec(compile(code, page, "exec", dont_inherit=True), namespace)
    assert len(namespace["result"].table) >= 1  # type: ignore[attr-defined]
    if "adapted" in namespace:  # the adapter on the unedited model is the model that was written
        ids = namespace["inputs"]["input_ids"]  # type: ignore[index]
        with torch.no_grad():
            adapted = namespace["adapted"](input_ids=ids).logits  # type: ignore[operator]
            written_model = AutoModelForCausalLM.from_pretrained("edited-model")
            written = written_model(input_ids=ids).logits
            with namespace["adapted"].disable_adapter():  # type: ignore[attr-defined]
                base = namespace["adapted"](input_ids=ids).logits  # type: ignore[operator]
        torch.testing.assert_close(adapted, written, atol=1e-4, rtol=1e-4)
        assert (adapted - base).abs().max() > 1e-3
    if page.startswith("docs"):
        pages_extras = {"peft": "adapted", "lm_eval": "results"}
        for package, name in pages_extras.items():
            assert (name in namespace) == (find_spec(package) is not None)
