"""Evaluations whose result tables are kept under ``figures/data``: one command per benchmark."""
