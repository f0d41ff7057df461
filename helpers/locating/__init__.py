"""One module per locating method."""
