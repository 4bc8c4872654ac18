"""`[{"name": …, "parameters": {…}}]`: what models write that are held to no syntax of their own."""

from __future__ import annotations

from proxy.tools.call_objects import CallObjects
from proxy.tools.line_start import LineStart


class JsonListParser(LineStart, CallObjects):
    """A bare list, or one object."""
