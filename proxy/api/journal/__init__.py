"""Layers that keep what was asked and answered: for the journal, and for the log at `debug`."""
