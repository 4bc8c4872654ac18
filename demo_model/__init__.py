"""The demonstration model: the folder that is shipped, and its training, which is not."""
