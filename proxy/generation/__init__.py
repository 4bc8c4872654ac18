"""How a request is generated: one plan, streams of the engine, choices, events."""
