"""Reading text that arrives in pieces; shared by the parsers of tool calls and of reasoning."""
