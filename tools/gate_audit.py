"""The published audit of gates: which keys tell a fact's paraphrases from other prompts, without any edit.

    python -m tools.gate_audit smollm2-135m counterfact-val
    python -m tools.gate_audit qwen2.5-coder-1.5b peak-cf --dtype bfloat16 --facts 60

Prompts are compared a few facts at a time and kept in the store: the same command resumes.
"""

from __future__ import annotations

from helpers.cli import run_command
from helpers.gates.audit import publication
from helpers.results.archive import archive
from helpers.results.figure import write_list
from helpers.results.publish import publish_parts


def main(
    model: str,
    dataset: str,
    facts: int = 120,
    dtype: str = "float32",
    device: str = "cpu",
    seed: int = 0,
    results: str = "runs/results",
) -> None:
    """Store the audit of one model on facts of an official data set, or of a file of your own."""
    params = {
        "model": model,
        "dataset": dataset,
        "facts": facts,
        "dtype": dtype,
        "device": device,
        "seed": seed,
        "results": results,
    }
    print(publish_parts(publication(params), archive("gates")))
    write_list()


if __name__ == "__main__":
    run_command(main)
