"""The families whose calls are JSON objects, with marks around them or none."""

from __future__ import annotations

import secrets
import string

from proxy.language.syntax.parsing.reader import Steps
from proxy.language.syntax.tools.bare_calls import BareCalls
from proxy.language.syntax.tools.call_objects import CallObjects
from proxy.language.syntax.tools.call_syntax import CallSyntax, object_list
from proxy.language.syntax.tools.family import ToolFamily
from proxy.language.syntax.tools.parser import NAME

_ALPHANUMERIC = string.ascii_letters + string.digits


class HermesParser(CallObjects):
    """Hermes, Qwen 2.5, Qwen 3, Granite 4: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`.

    One object between the tags; a list or several objects are accepted, too.
    """

    sections = (("<tool_call>", "</tool_call>"),)


HERMES = ToolFamily(
    parser_type=HermesParser,
    call_syntax=CallSyntax(
        begin='<tool_call>\n{"name": "',
        middle='", "arguments": ',
        end="}\n</tool_call>",
        separator="\n",
        trigger="<tool_call>",
    ),
    template_marks=(("<tool_call>",),),
)


class GraniteParser(CallObjects):
    """Granite 3: `<|tool_call|>[{"name": …, "arguments": {…}}]`; 3.1 has `<tool_call>`.

    A list after either tag.
    """

    sections = (("<|tool_call|>", ""), ("<tool_call>", "</tool_call>"))


GRANITE = ToolFamily(
    parser_type=GraniteParser,
    call_syntax=object_list("<|tool_call|>[", "]", trigger="<|tool_call|>"),
    template_marks=(("<|tool_call|>",),),
)


class JambaParser(CallObjects):
    """Jamba: `<tool_calls>[{"name": …, "arguments": {…}}]</tool_calls>`.

    A list between the tags.
    """

    sections = (("<tool_calls>", "</tool_calls>"),)


JAMBA = ToolFamily(
    parser_type=JambaParser,
    call_syntax=object_list("<tool_calls>[", "]</tool_calls>", trigger="<tool_calls>"),
    template_marks=(("<tool_calls>",),),
)


class InternLMParser(CallObjects):
    """InternLM 2: `<|action_start|><|plugin|>{"name": …, "parameters": {…}}<|action_end|>`.

    One object an action.
    """

    sections = (("<|action_start|>", "<|action_end|>"),)
    inner_marks = ("<|plugin|>",)
    lead_in = "<|plugin|>"


INTERNLM = ToolFamily(
    parser_type=InternLMParser,
    call_syntax=CallSyntax(
        begin='<|action_start|><|plugin|>\n{"name": "',
        middle='", "parameters": ',
        end="}<|action_end|>",
        separator="\n",
        trigger="<|action_start|>",
    ),
    template_marks=(("<|action_start|>",),),
)


class Phi4MiniParser(CallObjects):
    """Phi-4-mini: `functools[{"name": …, "arguments": {…}}]`.

    A list after the word, or between the tags that its template knows.
    """

    sections = (("functools", ""), ("<|tool_call|>", "<|/tool_call|>"))
    weak_starts = ("functools",)
    lead_in = "functools"


PHI4_MINI_JSON = ToolFamily(
    parser_type=Phi4MiniParser,
    call_syntax=object_list("functools[", "]"),
    template_marks=(("functools[",), ("<|tool|>", "<|/tool|>")),
)


class MistralParser(CallObjects):
    """Mistral: `[TOOL_CALLS] [{"name": …, "arguments": {…}}]`, from v11 `[TOOL_CALLS]f[ARGS]{…}`.

    Both forms; the newer repeats the tag before each call and may carry `[CALL_ID]id`.
    """

    sections = (("[TOOL_CALLS]", ""),)
    inner_marks = ("[CALL_ID]", "[ARGS]")

    def _first(self, start: str) -> Steps[bool]:
        yield from self._reader.accept(start)
        yield from self._reader.space()
        self._name = yield from self._whole_name()
        if not self._name:
            return (yield from super()._first(""))
        yield from self._head()
        yield from self._json_arguments()
        return False

    def _head(self) -> Steps[None]:
        """What stands between the name and the arguments."""
        if (yield from self._reader.accept("[CALL_ID]")):
            yield from self._reader.word(NAME)
        yield from self._reader.accept("[ARGS]")
        yield from self._reader.space()


def mistral_id(name: str, index: int) -> str:
    """Nine letters and digits: Mistral's templates refuse any other id."""
    return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(9))


MISTRAL = ToolFamily(
    parser_type=MistralParser,
    call_syntax=CallSyntax(begin="[TOOL_CALLS]", middle="[ARGS]", end=""),
    new_id=mistral_id,
    template_marks=(("[TOOL_CALLS]",),),
)


class Llama3JsonParser(BareCalls, CallObjects):
    """Llama 3: `<|python_tag|>{"name": …, "parameters": {…}}`, often without the tag.

    Reads calls that are JSON objects, separated by `; `.
    """

    sections = (("<|python_tag|>", ""),)


LLAMA3_JSON = ToolFamily(
    parser_type=Llama3JsonParser,
    call_syntax=CallSyntax(begin='{"name": "', middle='", "parameters": ', end="}", separator="; "),
    template_marks=(("<|python_tag|>",), ("Environment: ipython", '"parameters"')),
)


class XlamParser(BareCalls, CallObjects):
    """xLAM: a bare list `[{"name": …, "arguments": {…}}]`, sometimes fenced or after a tag.

    A list, or one object.
    """

    sections = (
        ("```json", "```"),
        ("[TOOL_CALLS]", ""),
        ("<tool_call>", "</tool_call>"),
    )
    weak_starts = ("", "```json")


XLAM = ToolFamily(
    parser_type=XlamParser,
    call_syntax=object_list("[", "]"),
)


class JsonListParser(BareCalls, CallObjects):
    """`[{"name": …, "parameters": {…}}]`: for models whose own syntax a guide cannot enforce.

    A bare list, or one object.
    """


OBJECT_LIST = object_list("[", "]", key="parameters")
JSON_LIST = ToolFamily(parser_type=JsonListParser, call_syntax=OBJECT_LIST)
