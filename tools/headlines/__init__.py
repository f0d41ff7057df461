"""What each notebook finds, in words and numbers made from the published tables."""
