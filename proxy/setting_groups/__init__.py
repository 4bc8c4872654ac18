"""The fields of the settings, by subject: name, type, default, and one sentence for the operator.

`settings.Settings` inherits all of them, and docs/configuration.md has a table of each group. A
name's ending is its unit: `_s`, `_ms`, `_mb`, `_bytes`, `_tokens`. A group also has the rules that
need its own fields only.
"""
