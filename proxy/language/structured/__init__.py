"""Constraints on the form of answers: callers' requests for them, and checks of answers."""
