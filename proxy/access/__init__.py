"""What a caller may do, and when."""
