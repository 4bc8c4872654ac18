"""The import name of this project: its folders stand beside this one, and inside it when installed."""
