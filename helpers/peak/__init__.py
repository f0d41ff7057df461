"""PEAK and APP: what appending an answer does to the answers around it."""
