"""One module for each version of the schema. A published one never changes."""
