"""Tool-call parsers, one family a file: text in any cut -> text and tool-call events."""
