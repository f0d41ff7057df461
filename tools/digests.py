"""The digests of packaged data, texts and weights: ``python -m tools.digests`` writes their list anew."""

from __future__ import annotations

from helpers.kept import file_digest
from helpers.paths import PACKAGED

FILES = tuple(f"**/*.{end}" for end in ("json", "jsonl", "safetensors", "csv", "tsv", "yaml"))


def digests() -> dict[str, str]:
    """SHA-256 of each file, by its place in ``packaged``."""
    paths = sorted(path for pattern in FILES for path in PACKAGED.glob(pattern))
    return {path.relative_to(PACKAGED).as_posix(): file_digest(path) for path in paths}


if __name__ == "__main__":
    lines = [f"{digest}  {name}\n" for name, digest in digests().items()]
    (PACKAGED / "digests.txt").write_text("".join(lines), encoding="utf-8")
