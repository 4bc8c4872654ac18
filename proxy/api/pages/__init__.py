"""HTML pages: the front page and the API reference."""
