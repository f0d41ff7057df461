"""Log-probabilities of given answers, and sampled responses."""
