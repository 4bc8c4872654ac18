"""Child processes of the launcher: signals, supervision, and their end with ours."""
