"""`[{"name": …, "parameters": {…}}]`: for models whose own syntax a guide cannot enforce."""

from __future__ import annotations

from proxy.language.syntax.tools.bare_calls import BareCalls
from proxy.language.syntax.tools.call_objects import CallObjects
from proxy.language.syntax.tools.call_syntax import object_list
from proxy.language.syntax.tools.family import ToolFamily


class JsonListParser(BareCalls, CallObjects):
    """A bare list, or one object."""


OBJECT_LIST = object_list("[", "]", key="parameters")
JSON_LIST = ToolFamily(parser_type=JsonListParser, call_syntax=OBJECT_LIST)
