"""How far long work in a notebook is, told on stderr to the command that runs the notebook."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, field

TOLD = "progress: "  # how such a line begins
_EVERY = 10.0  # seconds
_UNITS = (("h", 3600), ("min", 60), ("s", 1))


@dataclass
class Progress:
    """Work of ``total`` pieces; told where ``helpers run`` listens, no more than every ten seconds."""

    total: int
    unit: str = "records"
    began: float = field(default_factory=time.monotonic)
    told: float = field(default_factory=time.monotonic)

    def at(self, done: int) -> None:
        """So many are done."""
        now = time.monotonic()
        if "HELPERS_TELL" in os.environ and now - self.told >= _EVERY and 0 < done < self.total:
            self.told = now
            each = (now - self.began) / done
            left = in_words(each * (self.total - done))
            line = f"{done} of {self.total} {self.unit}, {60 / each:.1f} a minute, {left} left"
            print(TOLD + line, file=sys.stderr, flush=True)


def in_words(seconds: float) -> str:
    """A span of time in its largest unit, such as ``2.5 h``."""
    unit, size = next((pair for pair in _UNITS if seconds >= 2 * pair[1]), _UNITS[-1])
    return f"{seconds / size:.{0 if unit == 's' else 1}f} {unit}"
