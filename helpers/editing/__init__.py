"""Requests, updates, overlays and one module per editor."""
