"""What an edited model does beyond the scores of its lists: scorers, generated text, general ability."""
