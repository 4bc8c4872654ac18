"""Request bodies: read within limits, parsed, and validated."""
