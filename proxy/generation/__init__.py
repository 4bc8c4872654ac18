"""How a request is generated: one plan, the engine's streams, choices, events."""
