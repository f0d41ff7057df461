"""Collects the packaged facts from openly licensed Python packages (build time only)."""
