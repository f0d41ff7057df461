"""What edits do to a model's general ability."""
