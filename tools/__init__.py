"""What is run once and never imported: collecting facts, training MEND."""
