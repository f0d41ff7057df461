"""Helpers for the knowledge-editing notebooks: data, models, editors, scoring, metrics, reporting."""

__version__ = "0.1.0"


class UserError(ValueError):
    """What a user can repair, in one line: what, where, remedy. The command line catches it."""
