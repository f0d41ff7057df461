"""KLoB's sentences made from triples."""
