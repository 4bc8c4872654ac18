"""Messages -> prompt text: the model's chat template, and the control tokens in callers' texts."""
