"""The tritonserver that the launcher starts: installation, run folder, command line, process."""
