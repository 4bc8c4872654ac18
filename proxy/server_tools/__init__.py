"""Tools that the proxy runs itself: it offers them, runs the model's calls, and sends results."""
