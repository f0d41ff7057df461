"""Trains the hypernetwork that MEND edits with."""
