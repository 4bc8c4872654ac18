"""When a stream begins: the fair queue of each model's rows."""
