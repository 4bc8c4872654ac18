"""How each family writes calls, in the words of structural tags: what a guide holds a model to.

The parsers in proxy/tools read more than this: it is the form that the models' templates have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from triton_openai.proxy.structured.structural_tags import Format, json_format
from triton_openai.proxy.syntax.tools.deepseek_v32 import DeepSeekV32Parser
from triton_openai.proxy.syntax.tools.glm45 import Glm45Parser
from triton_openai.proxy.syntax.tools.minimax_m2 import MiniMaxM2Parser
from triton_openai.proxy.syntax.tools.qwen3_coder import Qwen3CoderParser
from triton_openai.proxy.syntax.tools.written_arguments import (
    has_elements,
    has_keywords,
    keyword_arguments,
    markup_arguments,
)

Arguments = Callable[[Any], Format]


def _numbered(schema: Any) -> Format:
    """Kimi's: the number of the call, counted over the conversation, then the arguments."""
    mark = {"type": "const_string", "value": "<|tool_call_argument_begin|>"}
    number = {"type": "regex", "pattern": "[0-9]{1,4}"}
    return {"type": "sequence", "elements": [number, mark, json_format(schema)]}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSyntax:
    """`head` call (`separator` call)* `foot`; a call is `begin` name `middle` arguments `end`.

    can_hold: whether the arguments of a schema can be written so. trigger: where text ends and
    calls begin, of `head` or `begin`, all of it if it does not say. is_clear: text has no such
    beginnings of its own. is_single: there is never a second call.
    """

    head: str = ""
    begin: str
    middle: str
    arguments: Arguments = json_format
    can_hold: Callable[[Any], bool] = lambda schema: True
    end: str
    separator: str = ""
    foot: str = ""
    trigger: str = ""
    is_clear: bool = True
    is_single: bool = False

    def one_of(self, schemas: dict[str, Any], *, in_parallel: bool) -> Format:
        """Nothing but calls, at least one. `schemas`: of the arguments, by name."""
        calls = {
            "type": "tags_with_separator",
            "tags": self._tags(schemas),
            "separator": self.separator,
            "at_least_one": True,
            "stop_after_first": self.is_single or not in_parallel,
        }
        if not self.head:
            return calls
        return {"type": "tag", "begin": self.head, "content": calls, "end": self.foot}

    def among_text(self, schemas: dict[str, Any], *, in_parallel: bool) -> Format:
        """Free text; where calls begin, calls."""
        tags = self._tags(schemas)
        if self.head:
            tags = [self.one_of(schemas, in_parallel=in_parallel)]
        return {
            "type": "triggered_tags",
            "triggers": [self.trigger or self.head or self.begin],
            "tags": tags,
            "stop_after_first": self.is_single or not in_parallel,
        }

    def _tags(self, schemas: dict[str, Any]) -> list[Format]:
        return [
            {
                "type": "tag",
                "begin": f"{self.begin}{name}{self.middle}",
                "content": self.arguments(schema),
                "end": self.end,
            }
            for name, schema in schemas.items()
        ]


def _listed(head: str, foot: str, *, trigger: str = "", key: str = "arguments") -> ToolSyntax:
    """JSON objects in a list; the head goes on to the first name, so that a bare list has one."""
    return ToolSyntax(
        head=f'{head}{{"name": "',
        begin="",
        middle=f'", "{key}": ',
        end="}",
        separator=', {"name": "',
        foot=foot,
        trigger=trigger,
    )


_PYTHONIC = ToolSyntax(
    head="[",
    begin="",
    middle="(",
    arguments=keyword_arguments,
    can_hold=has_keywords,
    end=")",
    separator=", ",
    foot="]",
    is_clear=False,
)
_QWEN_XML = ToolSyntax(
    begin="<tool_call>\n<function=",
    middle=">\n",
    arguments=markup_arguments(Qwen3CoderParser.markup),
    can_hold=has_elements,
    end="\n</function>\n</tool_call>",
    separator="\n",
    trigger="<tool_call>",
)

SYNTAXES: dict[str, ToolSyntax] = {
    "hermes": ToolSyntax(
        begin='<tool_call>\n{"name": "',
        middle='", "arguments": ',
        end="}\n</tool_call>",
        separator="\n",
        trigger="<tool_call>",
    ),
    "granite": _listed("<|tool_call|>[", "]", trigger="<|tool_call|>"),
    "jamba": _listed("<tool_calls>[", "]</tool_calls>", trigger="<tool_calls>"),
    "phi4_mini_json": _listed("functools[", "]"),
    "mistral": ToolSyntax(begin="[TOOL_CALLS]", middle="[ARGS]", end=""),
    "llama3_json": ToolSyntax(
        begin='{"name": "', middle='", "parameters": ', end="}", separator="; "
    ),
    "xlam": _listed("[", "]"),
    "json_list": _listed("[", "]", key="parameters"),
    "pythonic": _PYTHONIC,
    "llama4_pythonic": _PYTHONIC,
    "qwen3_coder": _QWEN_XML,
    "qwen3_xml": _QWEN_XML,
    "minimax_m2": ToolSyntax(
        head="<minimax:tool_call>\n",
        begin='<invoke name="',
        middle='">\n',
        arguments=markup_arguments(MiniMaxM2Parser.markup),
        can_hold=has_elements,
        end="\n</invoke>\n",
        foot="</minimax:tool_call>",
        trigger="<minimax:tool_call>",
    ),
    "glm45": ToolSyntax(
        begin="<tool_call>",
        middle="\n",
        arguments=markup_arguments(Glm45Parser.markup),
        can_hold=has_elements,
        end="\n</tool_call>",
        separator="\n",
    ),
    "deepseek_v3": ToolSyntax(
        head="<｜tool▁calls▁begin｜>",
        begin="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        middle="\n```json\n",
        end="\n```<｜tool▁call▁end｜>",
        separator="\n",
        foot="<｜tool▁calls▁end｜>",
    ),
    "deepseek_v31": ToolSyntax(
        head="<｜tool▁calls▁begin｜>",
        begin="<｜tool▁call▁begin｜>",
        middle="<｜tool▁sep｜>",
        end="<｜tool▁call▁end｜>",
        foot="<｜tool▁calls▁end｜>",
    ),
    "deepseek_v32": ToolSyntax(
        head="<｜DSML｜function_calls>\n",
        begin='<｜DSML｜invoke name="',
        middle='">\n',
        arguments=markup_arguments(DeepSeekV32Parser.markup, says_type=True),
        can_hold=has_elements,
        end="\n</｜DSML｜invoke>\n",
        foot="</｜DSML｜function_calls>",
        trigger="<｜DSML｜function_calls>",
    ),
    "kimi_k2": ToolSyntax(
        head="<|tool_calls_section_begin|>",
        begin="<|tool_call_begin|>functions.",
        middle=":",
        arguments=_numbered,
        end="<|tool_call_end|>",
        foot="<|tool_calls_section_end|>",
    ),
    # its end token ends the call, and the answer with it
    "harmony": ToolSyntax(
        begin="<|channel|>commentary to=functions.",
        middle=" <|constrain|>json<|message|>",
        end="",
        is_single=True,
    ),
    # xgrammar has no words for its bare keys and its quotes; its parser reads JSON, too
    "gemma4": ToolSyntax(
        begin="<|tool_call>call:", middle="", end="<tool_call|>", trigger="<|tool_call>"
    ),
    "internlm": ToolSyntax(
        begin='<|action_start|><|plugin|>\n{"name": "',
        middle='", "parameters": ',
        end="}<|action_end|>",
        separator="\n",
        trigger="<|action_start|>",
    ),
}
