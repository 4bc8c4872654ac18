"""Checks of this machine, which `doctor` prints and a start requires."""
