"""The same edits under every scorer, from probabilities to generated text, and where scorers disagree."""
