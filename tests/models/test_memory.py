"""Peak memory is bounded by the token budget, however many records there are."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# A wide model, so that activations of all records at once would show.
SCRIPT = """
import resource, sys, torch
from helpers.editing.contexts import ContextTemplates
from helpers.editing.rome import RomeHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.rome import Rome
from helpers.models.language_model import LanguageModel
from helpers.models.load import _ready
from helpers.models.shapes import random_model

torch.set_num_threads(1)
config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 4096,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4}
model, tokenizer = random_model(config, seed=0, dtype=torch.float32, device="cpu")
model = _ready(LanguageModel("wide", model, tokenizer))
count = int(sys.argv[1])
settings = RomeHyperparameters(
    layers=(0,), v_num_grad_steps=2, v_lr=0.5, v_weight_decay=1e-3, clamp_norm_factor=4,
    kl_factor=0.0625, mom2_adjustment=False, context_template_length_params=())
editor = Rome(model, settings, ContextTemplates((("{}", "And so {}"),)), {})
editor.edit([EditRequest(f"Place {i}", "In {} one speaks of", "Oslo") for i in range(count)])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def peak(count: int) -> int:
    """MiB of a fresh process that edits ``count`` records."""
    # Freed memory goes back at once, or what is measured is the allocator's fragmentation.
    at_once = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    command, environment = [sys.executable, "-c", SCRIPT, str(count)], {**os.environ, **at_once}
    return int(subprocess.run(command, check=True, capture_output=True, env=environment).stdout)


@pytest.mark.slow
def test_peak_memory_does_not_grow_with_records():
    assert peak(120) - peak(60) < 60  # in one pass, 60 records more take 100 MiB more
