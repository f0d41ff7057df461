"""Command line: ``python -m helpers run PARAMS``, ``fetch NAME``, ``figure NAME``, ``doctor``."""

from helpers.cli import app

if __name__ == "__main__":
    app(prog_name="python -m helpers")
