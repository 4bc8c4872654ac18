"""One engine stream that survives: its row, its endpoints, its time."""
