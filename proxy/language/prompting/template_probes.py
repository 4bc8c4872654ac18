"""Asks a chat template what it wants: renders small chats, and looks for their words in the prompt.

Called by `chat_template`, once for each template. A template that fails a probe in every form keeps
the form that it had; one that cannot even show a user's text, as where it wants variables that only
callers know, is asked nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from proxy.domain.request import Message
from proxy.domain.tools import Tool, ToolCall
from proxy.language.prompting.template_forms import Forms, shaped, tool_body

# (messages, tools or what stands for none) -> prompt; raises what the template raises
Render = Callable[[list[dict[str, Any]], Any], str]
Chat = tuple[Message, ...]
Change = Mapping[str, Any]

USER, AGAIN = (Message(role="user", content=f"{word}quest") for word in ("zqA", "zqB"))
SYSTEM, LATER = (Message(role="system", content=f"{word}rule") for word in ("zqC", "zqD"))
DEVELOPER = Message(role="developer", content="zqErule")
ANSWER = Message(role="assistant", content="zqFtext")
NESTED = '{"zqPath": "zqGvalue", "zqDeep": {"zqKey": ["zqHvalue", 7]}}'
CALL = ToolCall(id="call_zqI", name="zqCall", arguments=NESTED)
SECOND = ToolCall(id="call_zqJ", name="zqCall", arguments='{"zqPath": "zqKvalue"}')
CALLING = Message(role="assistant", content=None, tool_calls=(CALL,))
SAYING = replace(CALLING, content="zqLtext")
THINKING = replace(SAYING, reasoning="zqMthought")
EMPTY = replace(CALL, arguments='{"zqPath": "zqGvalue", "zqNull": null}')
CALLING_EMPTY = replace(CALLING, tool_calls=(EMPTY,))
CALLING_TWICE = replace(CALLING, tool_calls=(CALL, SECOND))
RESULT = Message(role="tool", content="zqNresult", tool_call_id="call_zqI")
RESULT_2 = Message(role="tool", content="zqOresult", tool_call_id="call_zqJ")
SCHEMA = {"type": "object", "properties": {"zqPath": {"type": "string", "description": "zqP"}}}
TOOL = Tool(name="zqTool", description="zqQdoes", parameters=SCHEMA)
BARE = (Tool(name="zqTool", parameters={"properties": {"zqPath": {}}}), Tool(name="zqOther"))

# Values as Python writes them, JSON inside a JSON string, and null in quotes.
SPOILT = re.compile(
    r"""'zq\w+'\s*:|\\"zq|zqNull(?:(?!zq).){0,60}?(?:\bNone\b|["']null["'])""", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A question: the first of `forms` is kept with which the template shows all words of all
    chats. otherwise: what is kept if there is none. retries: asks only templates that show no calls
    in any form so far, and is content with calls in Python's words. links: a call's id must not be
    shown with its result alone.
    """

    chats: tuple[Chat, ...]
    forms: tuple[Change, ...]
    tools: tuple[Tool, ...] = ()
    otherwise: Change = field(default_factory=dict)
    retries: bool = False
    links: bool = False


def _any(**forms: Sequence[Any]) -> tuple[Change, ...]:
    """All combinations, in which the first form varies slowest."""
    return tuple(dict(zip(forms, one, strict=True)) for one in product(*forms.values()))


CALLS = _any(
    ids=("given", "short", "named"),
    arguments=("object", "text", "texts"),
    no_content=("null", "omitted", "empty"),
)
SHOWN = Probe(chats=((USER,),), forms=_any(content=("text", "parts"), no_tools=("null", "empty")))
DEVELOPS = Probe(chats=((DEVELOPER, USER),), forms=_any(knows_developer=(True, False)))
PROBES = (
    Probe(
        chats=((SYSTEM, USER, ANSWER, AGAIN),),
        forms=({}, {"system": "user"}, {"system": "user", "neighbors": "joined"}),
    ),
    Probe(
        chats=((USER, AGAIN), (USER, ANSWER, ANSWER, AGAIN)),
        forms=_any(neighbors=("kept", "joined")),
    ),
    Probe(chats=((SYSTEM, LATER, USER),), forms=_any(systems=("kept", "joined"))),
    Probe(
        chats=((SYSTEM, USER, ANSWER, LATER, AGAIN), (SYSTEM, USER, LATER)),
        forms=_any(late_system=("kept", "user"), neighbors=("kept", "joined")),
    ),
    Probe(
        chats=((USER,),),
        tools=(TOOL,),
        forms=_any(prompts_tools=(False, True)),
    ),
    Probe(chats=((USER,),), tools=BARE, forms=_any(tools=("bare", "described", "typed"))),
    Probe(
        chats=((USER, CALLING, RESULT),),
        tools=(TOOL,),
        forms=CALLS,
        otherwise={"takes_calls": False},
    ),
    Probe(
        chats=((USER, CALLING, RESULT),),
        tools=(TOOL,),
        forms=tuple({**change, "takes_calls": True} for change in CALLS),
        retries=True,
    ),
    Probe(
        chats=((USER, CALLING, RESULT),),
        tools=(TOOL,),
        forms=({}, {"ids": "named"}),
        links=True,
    ),
    Probe(
        chats=((USER, CALLING_EMPTY, RESULT),),
        tools=(TOOL,),
        forms=_any(nulls=("null", "text")),
    ),
    Probe(
        chats=((USER, SAYING, RESULT),),
        tools=(TOOL,),
        forms=_any(said=("beside", "before")),
        otherwise={"said": "dropped"},
    ),
    Probe(
        chats=((USER, THINKING, RESULT),),
        tools=(TOOL,),
        forms=_any(thought=("beside", "joined", "dropped")),
    ),
    Probe(
        chats=((USER, CALLING_TWICE, RESULT, RESULT_2),),
        tools=(TOOL,),
        forms=_any(parallel=("together", "apart")),
    ),
    Probe(
        chats=((USER, CALLING, RESULT, AGAIN),),
        tools=(TOOL,),
        forms=_any(after_result=("kept", "joined")),
    ),
)


def found_forms(render: Render, *, knows_developer: bool) -> Forms:
    """What the template wants.

    knows_developer: the template mentions this role; many show any role that they are given.
    """
    if (forms := _answered(SHOWN, Forms(), render)) is None:
        return Forms()
    if knows_developer:
        forms = _answered(DEVELOPS, forms, render) or forms
    for probe in PROBES:
        is_about_calls = any(message.tool_calls for message in probe.chats[0])
        if not is_about_calls or forms.takes_calls != probe.retries:
            forms = _answered(probe, forms, render) or replace(forms, **probe.otherwise)
    return forms


def _answered(probe: Probe, forms: Forms, render: Render) -> Forms | None:
    for change in probe.forms:
        tried = replace(forms, **change)
        if all(_is_right(chat, probe, tried, render) for chat in probe.chats):
            return tried
    return None


def _is_right(chat: Chat, probe: Probe, forms: Forms, render: Render) -> bool:
    spelled = [replace(one, content=one.content or "zq") for one in chat]
    try:
        prompt = _prompt(chat, probe.tools, forms, render)
        nones = prompt.count("None") and _prompt(spelled, probe.tools, forms, render).count("None")
    except MemoryError:
        raise  # the sandbox's limit, which it reports
    except Exception:  # a template is a program: it may raise anything
        return False
    return (
        all(word in prompt for word in _words(chat, probe.tools, forms))
        and all(prompt.count(one.reasoning) < 2 for one in chat if one.reasoning)
        and prompt.count("None") <= nones
        and (probe.retries or SPOILT.search(prompt) is None)
        and not (probe.links and prompt.count(CALL.id if forms.ids == "given" else "zqCall:0") == 1)
    )


def _prompt(chat: Sequence[Message], tools: Sequence[Tool], forms: Forms, render: Render) -> str:
    bodies = [tool_body(tool, forms) for tool in tools]
    messages = shaped(chat, forms, has_tools=bool(tools))
    return render(messages, bodies or forms.without_tools)


def _words(chat: Chat, tools: Sequence[Tool], forms: Forms) -> Iterator[str]:
    """What the prompt must have of a chat. Reasoning may be missing: most templates omit it."""
    for message in chat:
        if message.content and not (message.tool_calls and forms.said == "dropped"):
            yield message.content
        for call in message.tool_calls:
            yield call.name
            yield from re.findall(r"zq\w+value", call.arguments)
    for tool in tools:
        yield from filter(None, (tool.name, tool.description))
