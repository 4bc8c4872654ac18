"""The text that models write: reasoning and tool calls, read by parsers, enforced by guides."""
