"""Tools for maintainers: the hashes in the lock files, and the bill of materials."""
