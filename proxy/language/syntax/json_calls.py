"""The families that write calls as JSON objects: `{"name": …, "arguments": {…}}`.

Keys come in any order, arguments may be a string that holds JSON, and other keys are ignored,
unless there are no arguments and the tool has them. Small models imitate the tools' own
descriptions: `function` instead of `name`, or around the whole call.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from string import ascii_letters, digits
from typing import ClassVar

from proxy.language.structured.structural_tags import const_string, regex
from proxy.language.syntax.call_syntax import CallSyntax, written_as
from proxy.language.syntax.literal import Broken, CutOff, Literal, literal_in, string
from proxy.language.syntax.reader import Steps
from proxy.language.syntax.reasoning import COHERE_WRAPPERS
from proxy.language.syntax.tool_parser import NAME, BareCalls, TemplateMarks, ToolParser

ARGUMENTS = ("arguments", "parameters", "args")
_QUOTES = "\"'"
_ALPHANUMERIC = ascii_letters + digits


class CallObjects(ToolParser):
    """A start, then one object, several, or a list of them, then an end."""

    lead_in: ClassVar[str] = ""  # what may stand between the start and the calls
    name_key: ClassVar[str] = "name"
    _is_list = False
    _is_fenced = False

    def __init_subclass__(cls) -> None:
        cls.starts = tuple(start for start, _ in cls.sections)

    def _first(self, start: str) -> Steps[bool]:
        yield from self._reader.accept(start)
        yield from self._reader.space()
        if self.lead_in and (yield from self._reader.accept(self.lead_in)):
            yield from self._reader.space()
        self._is_fenced = bool(start) and (yield from self._reader.accept("```"))
        if self._is_fenced:
            yield from self._reader.accept("json")
            yield from self._reader.space()
        self._is_list = yield from self._reader.accept("[")
        yield from self._reader.space()
        yield from self._object()
        return True

    def _next(self, start: str) -> Steps[bool]:
        """Another call, or the end of the section."""
        gap = yield from self._reader.space()
        if (yield from self._reader.accept("," if self._is_list else ";")):
            yield from self._reader.space()
            yield from self._object()
            return True
        has_comma = not self._is_bare and (yield from self._reader.peek()) == ","
        if has_comma and (yield from self._reader.follows(1, ("{",))):
            self._reader.take(1)
            yield from self._reader.space()
        if not self._is_list and (yield from self._reader.peek()) == "{":
            yield from self._object()
            return True
        if self._is_list and (yield from self._reader.accept("]")):
            gap = yield from self._reader.space()
        if self._is_fenced and (yield from self._reader.accept("```")):
            gap = ""
        yield from self._end(dict(self.sections).get(start, ""), gap)
        return False

    def _object(self) -> Steps[None]:
        """One call."""
        if not (yield from self._reader.accept("{")):
            raise Broken
        yield from self._entries()
        if not self._has_started:
            self._close_arguments()
        self._end_call()

    def _reset_call(self) -> None:
        super()._reset_call()
        self._waiting = ""  # the arguments that came before the name
        self._others: dict[str, str] = {}  # the JSON of other keys

    def _close_arguments(self) -> None:
        others = self._others
        found = [f"{json.dumps(k)}: {v}" for k, v in others.items() if k in self._properties]
        objects = [value for value in others.values() if value.startswith("{")]
        one = objects[0] if len(objects) == 1 and not found else f"{{{', '.join(found)}}}"
        self._call_with(self._waiting or one)
        self._end_call()

    def _entries(self, *, is_inner: bool = False) -> Steps[None]:
        """Reads to the end of the object."""
        yield from self._reader.space()
        while not (yield from self._reader.accept("}")):
            key = yield from self._key()
            if key == "function" and not is_inner and (yield from self._reader.accept("{")):
                yield from self._entries(is_inner=True)
            elif key in (self.name_key, "name") or (key in self._other_names and not self._name):
                self._name = yield from self._word()
            elif key in ARGUMENTS:
                yield from self._arguments()
            elif self._is_bare and key not in ("type", "id", "function", "index"):
                raise Broken
            else:
                parts: list[str] = []
                yield from Literal(self._reader, parts.append).read()
                self._others[key] = "".join(parts)
            yield from self._comma("}")

    @property
    def _other_names(self) -> tuple[str, ...]:
        """Keys in place of `name`."""
        return ("function",) if self._is_bare else ("function", "tool", "tool_name")

    def _key(self) -> Steps[str]:
        key = yield from self._word()
        yield from self._reader.space()
        if not (yield from self._reader.accept(":")):
            raise Broken
        yield from self._reader.space()
        return key

    def _word(self) -> Steps[str]:
        """A key or a name. Only a quoted word, so that an object that is no call breaks at once."""
        quote = yield from self._reader.peek()
        if not quote:
            raise CutOff
        if quote not in _QUOTES:
            raise Broken
        self._reader.take(1)
        word = yield from self._reader.word(NAME)
        if not (yield from self._reader.peek()):
            raise CutOff
        if not (yield from self._reader.accept(quote)):
            raise Broken
        return word

    def _string(self) -> Steps[str]:
        char = yield from self._reader.peek()
        if char and char in _QUOTES:
            return (yield from string(self._reader))
        raise Broken

    def _arguments(self) -> Steps[None]:
        """Streams the arguments if the name is known, else keeps them."""
        char = yield from self._reader.peek()
        if char != "{":
            self._waiting += yield from self._boxed_arguments()
        elif self._name and not self._has_started:
            self._call_with("")
            yield from Literal(self._reader, self._emit_arguments).read()
            self._end_call()
        else:
            parts: list[str] = []
            yield from Literal(self._reader, parts.append).read()
            self._waiting += "".join(parts)

    def _boxed_arguments(self) -> Steps[str]:
        """Arguments as a string that holds JSON or is blank, or as null."""
        if (yield from self._reader.accept("null")):
            return "{}"
        text = yield from self._string()
        found = literal_in(text, is_strict=False) if text.strip() else "{}"
        if found is None or not found.startswith("{"):
            raise Broken
        return found

    def _call_with(self, arguments: str) -> None:
        self._start_call()
        self._emit_arguments(arguments)


def object_list(calls: str, key: str = "arguments") -> CallSyntax:
    """Calls as JSON objects in a list. The head includes the begin of the first object, so that
    a list without a mark of its own still has a head that is longer than a bracket.
    """
    begin = '{"name": "'
    return written_as(f'…", "{key}": …}}', calls.replace("…", f"{begin}…"), separator=f", {begin}")


class HermesParser(CallObjects):
    """Hermes, Qwen 2.5, Qwen 3, Granite 4. A list or several objects are accepted, too."""

    sections = (("<tool_call>", "</tool_call>"),)
    call_syntax = written_as(
        '<tool_call>\n{"name": "…", "arguments": …}\n</tool_call>', separator="\n"
    )


class GenericParser(HermesParser):
    """For templates without tools; the prompt explains it, see prompting.generic_tools."""

    sections = (("<function_call>", "</function_call>"),)
    call_syntax = written_as(
        '<function_call>\n{"name": "…", "arguments": …}\n</function_call>', separator="\n"
    )
    template_marks = ()


class Granite20bParser(CallObjects):
    """Granite 20B Functioncalling."""

    sections = (("<function_call>", ""),)
    call_syntax = written_as('<function_call> {"name": "…", "arguments": …}')
    template_marks = (("<function_call> ",),)


class ExaoneParser(HermesParser):
    """EXAONE 4: as Hermes, without line breaks around the object."""

    call_syntax = written_as('<tool_call>{"name": "…", "arguments": …}</tool_call>', separator="\n")
    template_marks = (("<tool_call>", "[|assistant|]"),)


class CohereParser(CallObjects):
    """Cohere Command R7B and A. Sources: the chat templates in cohere-ai/melody (333ae6a5)."""

    sections = (("<|START_ACTION|>", "<|END_ACTION|>"),)
    inner_marks = COHERE_WRAPPERS
    name_key = "tool_name"
    call_syntax = replace(
        written_as(
            '{"tool_call_id": "…", "parameters": …}',
            "<|START_ACTION|>[\n    …\n]<|END_ACTION|>",
            separator=",\n    ",
        ),
        before_name=(regex("[0-9]{1,4}"), const_string('", "tool_name": "')),
    )


class GraniteParser(CallObjects):
    """Granite 3; 3.1 has `<tool_call>`."""

    sections = (("<|tool_call|>", ""), ("<tool_call>", "</tool_call>"))
    call_syntax = object_list("<|tool_call|>[…]")


class JambaParser(CallObjects):
    """Jamba."""

    sections = (("<tool_calls>", "</tool_calls>"),)
    call_syntax = object_list("<tool_calls>[…]</tool_calls>")


class InternLMParser(CallObjects):
    """InternLM 2."""

    sections = (("<|action_start|>", "<|action_end|>"),)
    inner_marks = ("<|plugin|>",)
    lead_in = "<|plugin|>"
    call_syntax = written_as(
        '<|action_start|><|plugin|>\n{"name": "…", "parameters": …}<|action_end|>', separator="\n"
    )


class Phi4MiniParser(CallObjects):
    """Phi-4-mini: a list after a word, or between the tags that its template knows."""

    sections = (("functools", ""), ("<|tool_call|>", "<|/tool_call|>"))
    weak_starts = ("functools",)
    lead_in = "functools"
    call_syntax = object_list("functools[…]")
    template_marks = (("functools[",), ("<|tool|>", "<|/tool|>"))


class MistralParser(CallObjects):
    """Mistral: `[TOOL_CALLS] [{"name": …, "arguments": {…}}]`, from v11 `[TOOL_CALLS]f[ARGS]{…}`.

    Both forms; the newer repeats the tag before each call and may carry `[CALL_ID]id`.
    """

    sections = (("[TOOL_CALLS]", ""),)
    inner_marks = ("[CALL_ID]", "[ARGS]")
    call_syntax = written_as("[TOOL_CALLS]…[ARGS]…")

    @staticmethod
    def new_id(name: str, index: int) -> str:
        """Nine letters and digits: Mistral's templates refuse any other id."""
        return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(9))

    def _first(self, start: str) -> Steps[bool]:
        yield from self._reader.accept(start)
        yield from self._reader.space()
        self._name = yield from self._whole_name()
        if not self._name:
            return (yield from super()._first(""))
        if (yield from self._reader.accept("[CALL_ID]")):
            yield from self._reader.word(NAME)
        yield from self._reader.accept("[ARGS]")
        yield from self._reader.space()
        yield from self._json_arguments()
        yield from self._end("")
        return False


class Llama3JsonParser(BareCalls, CallObjects):
    """Llama 3, often without the tag."""

    sections: ClassVar[tuple[tuple[str, str], ...]] = (("<|python_tag|>", ""),)
    call_syntax = written_as('{"name": "…", "parameters": …}', separator="; ")
    template_marks: ClassVar[TemplateMarks | None] = (
        ("<|python_tag|>",),
        ("Environment: ipython", '"parameters"'),
    )


class Llama4JsonParser(Llama3JsonParser):
    """Llama 4 with a template that asks for JSON: as Llama 3, with other tags."""

    sections = (("<|python_start|>", "<|python_end|>"), ("<|python_tag|>", ""))
    template_marks = (("<|header_start|>", '"parameters"'),)


class XlamParser(BareCalls, CallObjects):
    """xLAM: a bare list, or one object, sometimes fenced or after a tag."""

    sections = (("```json", "```"), ("[TOOL_CALLS]", ""), ("<tool_call>", "</tool_call>"))
    weak_starts = ("", "```json")
    call_syntax = object_list("[…]")
    template_marks = (('[{"name": "tool_call_name", "arguments"',),)


class JsonListParser(BareCalls, CallObjects):
    """A bare list, or one object: for models whose own syntax a guide cannot enforce."""

    call_syntax = object_list("[…]", "parameters")
    template_marks = ()


class NemotronV2Parser(CallObjects):
    """Nemotron Nano 2."""

    sections = (("<TOOLCALL>", "</TOOLCALL>"),)
    call_syntax = object_list("<TOOLCALL>[…]</TOOLCALL>")


class GigaChat31Parser(CallObjects):
    """GigaChat 3.1: one call an answer."""

    sections = (("<|function_call|>", "<|message_sep|>"),)
    inner_marks = ("<|role_sep|>",)
    call_syntax = written_as('<|function_call|>{"name": "…", "arguments": …}', is_single=True)


class GigaChat3Parser(GigaChat31Parser):
    """GigaChat 3: a message of the role `function call` behind the assistant's."""

    sections = (("function call<|role_sep|>", "<|message_sep|>"),)
    call_syntax = written_as(
        '<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "…", "arguments": …}',
        is_single=True,
    )
    template_marks = (("function call", "<|role_sep|>"),)


class ApertusParser(CallObjects):
    """Apertus: the name is the key of its arguments."""

    sections = (("<|tools_prefix|>", "<|tools_suffix|>"),)
    call_syntax = written_as('…": …}', '<|tools_prefix|>[{"…]<|tools_suffix|>', separator=', {"')

    def _entries(self, *, is_inner: bool = False) -> Steps[None]:
        yield from self._reader.space()
        self._name = yield from self._key()
        if self._name == "name" and (yield from self._reader.peek()) == '"':
            self._name = yield from self._word()
            yield from self._comma("}")
            yield from super()._entries()
            return
        yield from self._arguments()
        yield from self._reader.space()
        if not (yield from self._reader.accept("}")):
            raise Broken if (yield from self._reader.peek()) else CutOff("")
