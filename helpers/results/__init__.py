"""How results are kept, measured and shown, whatever the paper."""
