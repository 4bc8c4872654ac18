"""What models write and read: syntax of tools and reasoning, structured output, chat templates."""
