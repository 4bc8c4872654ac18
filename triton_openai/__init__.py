"""The import name of this project. Its folders stand beside this one in a clone, and inside it when
installed: here are symbolic links to them.
"""
