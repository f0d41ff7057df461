"""Requests, edits of every kind, how a model runs under them, and one module per editor."""
