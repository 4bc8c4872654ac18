"""Text that arrives in pieces, read as if it were whole: the ground under tools and reasoning."""
