"""The tritonserver that is started here: installation, run folder, command line, process."""
