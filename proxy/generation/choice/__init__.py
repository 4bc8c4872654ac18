"""One choice: token bytes -> text -> stop strings -> parsers -> output events."""
