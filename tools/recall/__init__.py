"""Graphs of the facts that a model recalls, ``python -m tools.recall``."""
