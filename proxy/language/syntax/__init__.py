"""The syntax of answers: parsers read reasoning and tool calls, guides enforce them."""
