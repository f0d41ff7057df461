"""A name becomes a language model with its tokenizer and the places of its MLPs."""
