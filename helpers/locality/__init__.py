"""Locality that is sensitive: the whole next-token distribution at prompts an edit should not move."""
