"""Prompts, extraction, knowledge graphs, chains and reviewers."""
