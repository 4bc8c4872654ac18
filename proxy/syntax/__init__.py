"""The syntax of models' answers: parsers that read reasoning and calls, guides that enforce them."""
