"""What an answer must look like: asked for, checked, given to the engine, and checked again."""
