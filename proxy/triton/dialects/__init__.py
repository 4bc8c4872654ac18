"""What each kind of Triton model takes and answers: one file a kind."""
