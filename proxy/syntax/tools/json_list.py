"""`[{"name": …, "parameters": {…}}]`: what models write that are held to no syntax of their own."""

from __future__ import annotations

from triton_openai.proxy.syntax.tools.bare_calls import BareCalls
from triton_openai.proxy.syntax.tools.call_objects import CallObjects


class JsonListParser(BareCalls, CallObjects):
    """A bare list, or one object."""
