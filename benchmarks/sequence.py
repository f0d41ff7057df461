"""The rate of a sequence: what a further edit costs upon one edit, and upon many.

python -m benchmarks.sequence --methods ultraedit,memory-bm25 --edits 1000
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Annotated

import torch
import typer

from benchmarks.editing import preset_of
from benchmarks.machine import measured
from helpers import models
from helpers.cli import run_command
from helpers.editing.build import build_editors
from helpers.editing.editor import Editor
from helpers.editing.sequence import SequenceState
from helpers.lifelong.streams import StreamRequest, stream_named
from helpers.lifelong.track import asked_requests
from helpers.models import LanguageModel

GROWN_BY = 100  # requests of a turn, of those that are made before the measured ones


def grown(
    editor: Editor, state: SequenceState, requests: Sequence[StreamRequest], turn_size: int
) -> SequenceState:
    """The state after further requests, edited in turns."""
    turns = [requests[i : i + turn_size] for i in range(0, len(requests), turn_size)]
    return reduce(
        lambda earlier, turn: editor.after_turn(earlier, [each.request for each in turn]),
        turns,
        state,
    )


def seconds_an_edit(
    lm: LanguageModel, editor: Editor, state: SequenceState, requests: Sequence[StreamRequest]
) -> tuple[float, float]:
    """Busy seconds of an edit made upon a state one by one, and of asking it right after its turn."""
    grown(editor, state, requests[:1], turn_size=1)  # loads kernels, and what is measured once
    making, last_state = measured(lambda: grown(editor, state, requests, turn_size=1), lm.device)
    edit = editor.edit_of(last_state)
    asking, _ = measured(
        lambda: [asked_requests(lm, [request], edit) for request in requests], lm.device
    )
    return making.busy / len(requests), asking.busy / len(requests)


def main(
    model: str = "smollm2-135m",
    stream: str = "triples",
    methods: str = "ultraedit,memory-bm25",
    edits: Annotated[int, typer.Option(help="edits before the measured ones")] = 1000,
    further: Annotated[int, typer.Option(help="edits that are measured, one by one")] = 10,
    dtype: str = "float32",
    device: str = "cpu",
) -> None:
    """Print busy seconds of an edit upon one edit and upon many, and the ratio of the rates."""
    lm = models.load(model, dtype=dtype, device=device)
    requests = stream_named(stream).first(edits + further).requests
    print(
        f"sequence: {model}, {dtype} on {device}, stream {stream}, {torch.get_num_threads()} threads;"
        f" busy seconds, {further} edits one by one"
    )
    for method, editor in build_editors(methods.split(","), lm, preset=preset_of(model)).items():
        first_state = grown(editor, SequenceState(), requests[:1], turn_size=1)
        last_state = grown(editor, first_state, requests[1:edits], turn_size=GROWN_BY)
        measured_requests = requests[edits:]
        rates = []
        for count, state in ((1, first_state), (edits, last_state)):
            made, asked = seconds_an_edit(lm, editor, state, measured_requests)
            rates.append((1 / made, 1 / (made + asked)))
            print(
                f"{method} upon {count}: {made:.3f} s an edit, {asked:.3f} s to ask it", flush=True
            )
        (rate, rate_with_asking), (last_rate, last_rate_with_asking) = rates
        print(
            f"{method}: the rate upon {edits} is {last_rate / rate:.2f} of that upon 1, with asking"
            f" {last_rate_with_asking / rate_with_asking:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    run_command(main)
