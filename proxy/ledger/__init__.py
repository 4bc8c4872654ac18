"""The live state of limits: who has used how much, now. Called by `access.limits`."""
