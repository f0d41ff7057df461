"""Command line: ``python -m helpers`` with run, sweep, publish, fetch, figure and doctor."""

from helpers.cli import app

if __name__ == "__main__":
    app(prog_name="python -m helpers")
