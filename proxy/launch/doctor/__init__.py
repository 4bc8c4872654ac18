"""What must be true of this machine: the checks that `doctor` shows and a start runs."""
