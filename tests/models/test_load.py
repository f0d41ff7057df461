"""What is loaded is used as it is, and what cannot be used is refused in one line with the remedy."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import torch
from safetensors.torch import load_file, save_file
from tokenizers import processors
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BertForPreTraining,
    JambaConfig,
    Llama4Config,
    Llama4TextConfig,
    Mamba2Config,
    MambaConfig,
    Mistral3Config,
    MixtralConfig,
    OPTConfig,
    OPTForCausalLM,
    Qwen3_5TextConfig,
    Qwen3MoeConfig,
    RecurrentGemmaConfig,
    RwkvConfig,
)
from transformers.utils import hub

from helpers import models
from helpers.editing.contexts import context_templates
from helpers.models import ARCHITECTURES, LanguageModel, shapes
from helpers.models.architectures import ModelError, architecture_of
from helpers.models.load import _ready
from helpers.models.shapes import byte_tokenizer, random_model
from helpers.models.tokens import answer_ids, prompt_ids
from helpers.scoring.answers import Question, score_answers
from helpers.scoring.responses import Sampling, sample_responses
from tests.conftest import TINY

httpx = pytest.importorskip("httpx")  # with which the hub is asked
LLAMA = TINY["llama"]
PLACES = {"rope_theta": 1e4, "original_max_position_embeddings": 64}
FACTORS = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
LONGROPE = {"rope_parameters": {**PLACES, **FACTORS, "rope_type": "longrope"}}


@pytest.fixture
def folder(tiny, tmp_path) -> Path:
    tiny("llama").network.save_pretrained(tmp_path / "model")
    tiny("llama").tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def made(settings: dict[str, Any], tokenizer: Any = None, dtype=torch.float32) -> LanguageModel:
    parts = random_model(settings, seed=0, dtype=dtype, device="cpu", tokenizer=tokenizer)
    return _ready(LanguageModel("odd", *parts))


def test_a_folder_is_loaded_as_it_was_saved(folder, tiny):
    again = models.load(folder)
    assert again.name == str(folder)
    assert again.fingerprint == tiny("llama").fingerprint
    ids = torch.arange(10)[None]
    torch.testing.assert_close(again.network(ids).logits, tiny("llama").network(ids).logits)


def test_a_masked_model_is_loaded_to_be_located_in(tiny_masked, folder, tmp_path):
    for part in (tiny_masked.network, tiny_masked.tokenizer):
        part.save_pretrained(tmp_path / "bert")
    again = models.load(str(tmp_path / "bert"), masked=True)
    assert again.masked
    assert again.fingerprint == tiny_masked.fingerprint
    for place, masked in ((tmp_path / "bert", False), (folder, True)):
        with pytest.raises(ModelError, match=f"load it with masked={not masked}"):
            models.load(str(place), masked=masked)


@pytest.mark.parametrize(
    ("file", "content", "cause"),
    [
        ("config.json", b"{", r"config\.json' is not a"),
        ("config.json", b'{"model_type": "nope"}', "model type `nope`"),
        ("tokenizer.json", b"", "JSONDecodeError"),
        ("model.safetensors", b"\xff" * 50, "SafetensorError"),
    ],
)
def test_a_damaged_file_is_one_line_with_folder_and_cause(folder, file, content, cause):
    (folder / file).write_bytes(content)
    match = rf"^{folder} cannot be loaded .*{cause}.*again"
    with pytest.raises(ModelError, match=match):
        models.load(str(folder))


def rewritten(folder: Path, change) -> None:
    """The folder's weights as ``change`` leaves them."""
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, {"format": "pt"})


NORM = "model.norm.weight"
BIAS = "model.layers.2.mlp.down_proj.bias"
LORA = "model.layers.0.self_attn.q_proj.lora_A.weight"
SCALE = "model.layers.0.self_attn.scale"
MATRIX = "model.layers.0.mlp.down_proj.weight"
BLOCK = "model.layers.4.input_layernorm.weight"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w: {**w, BIAS: torch.ones(32)}, rf"holds {BIAS}, for which its config"),
        (lambda w: {**w, LORA: torch.zeros(2, 32)}, rf"holds {LORA}, for which its config"),
        (lambda w: {**w, BLOCK: torch.ones(32)}, rf"holds {BLOCK}, for which its config"),
        (lambda w: {k: t for k, t in w.items() if k != NORM}, f"lacks {NORM}; fetch it again"),
        (lambda w: {**w, SCALE: torch.tensor(2.0)}, rf"holds {SCALE}, for which its config"),
        (lambda w: {**w, MATRIX: w[MATRIX].to(torch.int8)}, rf"stores {MATRIX} as I8, codes"),
        (lambda w: {**w, MATRIX: w[MATRIX].to(torch.float8_e4m3fn)}, rf"{MATRIX} as F8_E4M3"),
        (lambda w: {**w, NORM: torch.ones(16)}, rf"{NORM} has the shape \[16\], .* \[32\]"),
    ],
)
def test_weights_are_used_to_the_last_or_the_checkpoint_is_refused(folder, change, words):
    """transformers drops what has no place, and draws what is missing, without an error."""
    rewritten(folder, change)
    with pytest.raises(ModelError, match=words) as refused:
        models.load(str(folder))
    assert str(folder) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gptj", "gpt_neox", "falcon"])
def test_masks_and_tables_that_old_checkpoints_store_are_no_weights(tiny, tmp_path, architecture):
    for part in (tiny(architecture).network, tiny(architecture).tokenizer):
        part.save_pretrained(tmp_path)
    block = tiny(architecture).layout.block(1)
    inside = {"gpt_neox": "attention", "falcon": "self_attention", "llama": "self_attn"}
    attention = f"{block}.{inside.get(architecture, 'attn')}"
    constants = {f"{attention}.masked_bias": torch.tensor(-1e9)}
    constants[f"{attention}.bias"] = torch.ones(1, 1, 8, 8, dtype=torch.bool).tril()
    if architecture in ("llama", "falcon"):
        constants[f"{attention}.rotary_emb.inv_freq"] = torch.ones(4)
    rewritten(tmp_path, lambda weights: weights | constants)
    ids = torch.arange(10)[None]
    same = models.load(str(tmp_path)).network(ids).logits
    torch.testing.assert_close(same, tiny(architecture).network(ids).logits)


def test_the_heads_that_only_pre_training_has_are_left_out(tiny_masked, tmp_path):
    config, tokenizer = tiny_masked.network.config, tiny_masked.tokenizer
    for part in (BertForPreTraining(config), tokenizer):
        part.save_pretrained(tmp_path)
    assert models.load(str(tmp_path), masked=True).masked
    rewritten(tmp_path, lambda weights: {**weights, "bert.encoder.norm.weight": torch.ones(16)})
    with pytest.raises(ModelError, match=r"holds bert\.encoder\.norm\.weight, for which"):
        models.load(str(tmp_path), masked=True)


@pytest.mark.parametrize("file", ["adapter_config.json", "adapter_model.safetensors"])
def test_an_adapter_beside_the_model_is_neither_dropped_nor_applied(folder, file):
    (folder / file).write_text("{}")
    with pytest.raises(ModelError, match=f"an adapter next to the model .{file}.: merge"):
        models.load(str(folder))


def test_words_without_an_embedding_are_refused_but_those_of_pictures(folder, tiny):
    tokenizer = deepcopy(tiny("llama").tokenizer)
    tokenizer.add_tokens(["zebra", "yak"])
    tokenizer.save_pretrained(folder)
    with pytest.raises(ModelError, match=r"has 259 tokens, .* embeds 257, .* 'yak', 'zebra': "):
        models.load(str(folder))
    tiny("llama").tokenizer.save_pretrained(folder)
    AutoTokenizer.from_pretrained(folder, image_token="<image>").save_pretrained(folder)
    assert len(models.load(str(folder)).tokenizer) == 258  # as Gemma 3 comes


def test_bad_names(monkeypatch, tmp_path, tiny):
    config = OPTConfig(hidden_size=16, ffn_dim=16, num_hidden_layers=1, num_attention_heads=2)
    OPTForCausalLM(config).save_pretrained(tmp_path / "opt")
    (tmp_path / "lora").mkdir()
    (tmp_path / "lora" / "adapter_config.json").write_text("{}")
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path))
    for name, options, message in (
        ("no-such/model", {}, "is not in the hub's cache; unset HF_HUB_OFFLINE"),
        ("shape:no-such", {}, "known: "),
        ("smollm2-135m", {"dtype": "float33"}, "dtype"),
        ("gemma3-270m", {}, "accept_terms"),
        (str(tmp_path / "opt"), {}, r"ARCHITECTURES in helpers/models"),
        (str(tmp_path / "lora"), {}, "an adapter is merged into its base first"),
    ):
        with pytest.raises(ModelError, match=message):
            models.load(name, **options)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("smollm-135m", "'smollm-135m' (did you mean 'smollm2-135m'?)"),
        ("SmolLM2_135M", "(did you mean 'smollm2-135m'?)"),
        ("smollm2", "no model 'smollm2' (did you mean 'smollm2-135m'?)"),
        ("Gemma3", "(did you mean 'gemma3-270m'?)"),
        ("gpt2xl", "(did you mean 'gpt2-xl'?)"),
        ("gpt2", "no model 'gpt2' (did you mean 'openai-community/gpt2'?)"),
        ("gpt2-medium", "(did you mean 'openai-community/gpt2-medium'?)"),
        ("Llama-3.2-1B", "(did you mean 'meta-llama/Llama-3.2-1B'?)"),
        ("bert-base-uncased", "(did you mean 'google-bert/bert-base-uncased'?)"),
        ("https://huggingface.co/Qwen/Qwen3-0.6B/tree/main", "(did you mean 'Qwen/Qwen3-0.6B'?)"),
        ("xyzzy", "a name on the hub, ORG/NAME"),
        (" ", "a name on the hub, ORG/NAME"),
        ("./models/xyz", "no folder ./models/xyz: give the folder"),
        ("~/xyz/none", "no folder ~/xyz/none: give"),
        ("/abs/path", "no folder /abs/path: give"),
        ("models\\xyz", "no folder models"),
        ("{}/modle", "modle (did you mean 'model'?)"),
        ("{}/model/config.json", "config.json is a file: give the folder it is in"),
    ],
)
def test_a_name_that_is_none_says_what_may_have_been_meant(folder, name, words):
    root = str(folder.parent)
    with pytest.raises(ModelError) as refused:
        models.load(name.format(root))
    message = str(refused.value)
    assert words.format(root) in message
    assert "\n" not in message
    assert len(message.replace(root, "")) < 150


def answered(kind: type[Exception], status: int | None = None) -> Exception:
    """What the hub's client raises, with the words of its own."""
    request = httpx.Request("GET", "https://huggingface.co/x/y/resolve/main/config.json")
    words = "HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded " * 5
    if status is None:
        return kind(words)
    return kind(words, response=httpx.Response(status, request=request))


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("x/y", answered(hub.GatedRepoError, 401), "x/y is gated: .*, then run hf auth login$"),
        ("x/y", answered(hub.GatedRepoError, 403), "https://huggingface.co/x/y, then run hf auth"),
        ("x/y", answered(hub.RepositoryNotFoundError, 401), "no model x/y on the hub; a private"),
        (
            "Qwen/Qwen2.5-7B-Instrct",
            answered(hub.RepositoryNotFoundError, 404),
            r"on the hub \(did you mean 'Qwen/Qwen2\.5-7B-Instruct'\?\)$",
        ),
        ("x/y", answered(hub.HfHubHTTPError, 401), r"refuses x/y \(HTTP 401\): run hf auth login"),
        ("x/y", answered(hub.HfHubHTTPError, 503), r"be fetched \(HTTP 503 Service Unavailable\)"),
        ("x/y", answered(hub.LocalEntryNotFoundError), r"be fetched \(no connection\)"),
        ("x/y", answered(httpx.ConnectError), r"be fetched \(no connection\): give a folder$"),
        ("x/y", answered(httpx.ReadTimeout), r"be fetched \(no answer in time\)"),
        ("x/y", answered(requests.exceptions.SSLError), r"be fetched \(the connection is not sec"),
    ],
)
def test_what_the_hub_answers_is_one_line_with_the_remedy(monkeypatch, name, error, words):
    def refuse(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(hub, "hf_hub_download", refuse)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    with pytest.raises(ModelError, match=words) as refused:
        models.load(name)
    message = str(refused.value)
    assert "\n" not in message
    assert "Pool" not in message
    assert len(message) < 200


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_with_scores_of_its_own_is_refused(monkeypatch, dtype):
    monkeypatch.setitem(ARCHITECTURES, "cohere", ARCHITECTURES["llama"])  # as a user may add it
    with pytest.raises(ModelError, match="cannot be used in"):
        made({**LLAMA, "model_type": "cohere", "logit_scale": 0.5}, dtype=dtype)


@pytest.mark.parametrize(
    ("configuration", "words"),
    [
        (MixtralConfig(), "'mixtral' has mixture-of-experts layers"),
        (Qwen3MoeConfig(), "'qwen3_moe' has mixture-of-experts layers"),
        (Llama4TextConfig(), "'llama4_text' has mixture-of-experts layers"),
        (Llama4Config(), "'llama4' has mixture-of-experts layers"),
        (JambaConfig(), "'jamba' has mixture-of-experts layers"),
        (MambaConfig(), "'mamba' has recurrent .* layers"),
        (Mamba2Config(), "'mamba2' has recurrent .* layers"),
        (RwkvConfig(), "'rwkv' has recurrent .* layers"),
        (RecurrentGemmaConfig(), "'recurrent_gemma' has recurrent .* layers"),
        (Qwen3_5TextConfig(), "'qwen3_5_text' has recurrent .* layers"),
        (Mistral3Config(), "'mistral3' reads more than text"),
        (OPTConfig(), "'opt' is none of gpt2, gptj"),
    ],
)
def test_what_the_table_cannot_describe_is_refused_with_the_reason(configuration, words):
    with pytest.raises(ModelError, match=words) as refused:
        architecture_of(configuration)
    assert len(str(refused.value).splitlines()) == 1


def test_several_devices_are_refused_before_weights_are_read(folder, monkeypatch):
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", None)
    for device in ("auto", "cuda:0,cuda:1", {"model.layers.0": 0, "model.layers.1": 1}):
        with pytest.raises(ModelError, match="a model runs on one device: give cuda:0"):
            models.load(str(folder), device=device)


def test_a_tokenizer_that_appends_a_token_and_a_type_that_overflows_are_refused():
    tokenizer = byte_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <|end|>", special_tokens=[("<|end|>", tokenizer.eos_token_id)]
    )
    with pytest.raises(ModelError, match=r"reads a prompt and its answer as .*'<\|end\|>'\]"):
        made(LLAMA, tokenizer)
    model, tokenizer = random_model(LLAMA, seed=0, dtype=torch.float16, device="cpu")
    model.lm_head.weight.data *= 1e5
    with pytest.raises(ModelError, match=r"cannot be used in float16: .*overflows"):
        _ready(LanguageModel("odd", model, tokenizer))


def _without_special_tokens() -> Any:
    tokenizer = byte_tokenizer()
    for name in ("bos", "eos", "pad"):
        setattr(tokenizer, f"{name}_token", None)
    return tokenizer


def _with_segments() -> Any:
    tokenizer = byte_tokenizer()
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    return tokenizer


@pytest.mark.parametrize(
    ("settings", "tokenizer"),
    [
        (LLAMA, _without_special_tokens()),
        (TINY["gpt2"], _with_segments()),
        ({**TINY["gpt2"], "n_positions": 64}, None),
        ({**LLAMA, "rope_parameters": {"rope_type": "dynamic", "factor": 4.0, **PLACES}}, None),
        ({**TINY["phi3"], **LONGROPE}, None),
    ],
    ids=["no special tokens", "segments", "64", "dynamic", "longrope"],
)
def test_an_odd_model_is_used_as_it_is(settings, tokenizer, tmp_path, monkeypatch):
    """Scores in a batch are the model's own up to the end of the context, and texts can be sampled."""
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path))
    lm = made(settings, tokenizer)
    questions = [Question("x" * (lm.context_length - 1), ("a",)), Question("b", ("c",))]
    found = score_answers(lm, questions)["sum"]
    for question, total in zip(questions, found, strict=True):
        prompt = prompt_ids(lm, question.prompt)
        ids = answer_ids(lm, question.answers[0])
        with torch.no_grad():
            own = lm.network(torch.tensor([[*prompt, *ids][:-1]])).logits[0]
        scores = own.log_softmax(-1)[-len(ids) :]
        np.testing.assert_allclose(
            total, float(scores[range(len(ids)), list(ids)].sum()), atol=1e-4
        )
    sampling = Sampling(max_new_tokens=4)
    assert len(sample_responses(lm, ["a", "b c"], n=2, sampling=sampling)) == 2


def test_a_shape_is_random_but_has_a_real_models_sizes_words_and_contexts(monkeypatch):
    layout = models.load("shape:smollm2-135m", seed=3).layout
    assert (layout.blocks, layout.hidden_size, layout.intermediate_size) == (30, 576, 1536)
    tiny = shapes._llama(32, 48, 2, 4, 2, vocab_size=32000)
    monkeypatch.setitem(shapes.SHAPES, "tiny", tiny)
    lm = models.load("shape:tiny")
    assert len(answer_ids(lm, "Turkey")) <= 2  # words, not bytes
    found = context_templates(lm, [(5, 5), (10, 5)], grouped=False)
    assert len(set(found.templates)) == 11
    assert torch.isfinite(lm.network(torch.tensor([[1, 2, 3]])).logits).all()
