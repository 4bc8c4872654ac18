"""`[{"name": …, "parameters": {…}}]`: for models whose own syntax a guide cannot enforce."""

from __future__ import annotations

from triton_openai.proxy.syntax.tools.bare_calls import BareCalls
from triton_openai.proxy.syntax.tools.call_objects import CallObjects
from triton_openai.proxy.syntax.tools.call_syntax import object_list
from triton_openai.proxy.syntax.tools.family import ToolFamily


class JsonListParser(BareCalls, CallObjects):
    """A bare list, or one object."""


OBJECT_LIST = object_list("[", "]", key="parameters")
JSON_LIST = ToolFamily(parser_type=JsonListParser, call_syntax=OBJECT_LIST)
