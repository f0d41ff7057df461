"""Edits in other packages: PEFT adapters, and the evaluation harness. Nothing below imports them."""
