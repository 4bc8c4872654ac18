"""Tools that the proxy runs itself: offering them, running the model's calls, going on."""
