"""`triton-openai replay`: sends recorded requests to another proxy, and compares its answers."""
