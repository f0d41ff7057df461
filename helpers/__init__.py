"""Helpers for the knowledge-editing notebooks: data, models, editors, scoring, metrics, reporting."""

__version__ = "0.1.0"
