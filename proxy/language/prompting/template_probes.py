"""Asks a chat template what it wants: renders small chats, and looks for their words in the prompt.

Called by `chat_template`, once for each template. A template that fails a probe in every form keeps
the form that it had; one that cannot even show a user's text, as where it wants variables that only
callers know, is asked nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
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


# (prompt, chat, its tools, the forms that it was written in) -> whether they are right
Judge = Callable[[str, Chat, Sequence[Tool], Forms], bool]


def _renders(prompt: str, chat: Chat, tools: Sequence[Tool], forms: Forms) -> bool:
    return True


def _shows(prompt: str, chat: Chat, tools: Sequence[Tool], forms: Forms) -> bool:
    """Whether the prompt has all words of the chat. Reasoning may be missing, since most templates
    omit it, and so may tools next to calls.
    """
    calls = [call for message in chat for call in message.tool_calls]
    words = [call.name for call in calls]
    for call in calls:
        words += re.findall(r"zq\w+value", call.arguments)
    for message in chat:
        if message.content and not (message.tool_calls and forms.said == "dropped"):
            words.append(message.content)
    for tool in tools if not calls else ():
        words += filter(None, (tool.name, tool.description))
    thoughts = [message.reasoning for message in chat if message.reasoning]
    return all(word in prompt for word in words) and all(prompt.count(one) < 2 for one in thoughts)


def _is_clean(prompt: str, chat: Chat, tools: Sequence[Tool], forms: Forms) -> bool:
    return _shows(prompt, chat, tools, forms) and SPOILT.search(prompt) is None


def _links(prompt: str, chat: Chat, tools: Sequence[Tool], forms: Forms) -> bool:
    """Whether a call's id is not shown with its result alone."""
    shown = CALL.id if forms.ids == "given" else f"{CALL.name}:0"
    return _is_clean(prompt, chat, tools, forms) and prompt.count(shown) != 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A question: kept are the first of `forms` that the first possible judge finds right for all
    chats. otherwise: what is kept if there is none.
    """

    chats: tuple[Chat, ...]
    forms: tuple[Change, ...]
    tools: tuple[Tool, ...] = ()
    judges: tuple[Judge, ...] = (_is_clean,)
    otherwise: Change = field(default_factory=dict)


def _any(**forms: Sequence[Any]) -> tuple[Change, ...]:
    """All combinations, in which the first form varies slowest."""
    return tuple(dict(zip(forms, one, strict=True)) for one in product(*forms.values()))


SHOWN = Probe(chats=((USER,),), forms=_any(content=("text", "parts"), no_tools=("null", "empty")))
DEVELOPS = Probe(chats=((DEVELOPER, USER),), forms=_any(knows_developer=(True, False)))
OF_TURNS = (
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
    Probe(chats=((USER,),), tools=(TOOL,), forms=_any(prompts_tools=(False, True))),
    Probe(chats=((USER,),), tools=BARE, forms=_any(tools=("bare", "described", "typed"))),
)
CALLED = Probe(
    chats=((USER, CALLING, RESULT),),
    tools=(TOOL,),
    forms=_any(
        ids=("given", "short", "named"),
        arguments=("object", "text", "texts"),
        no_content=("null", "omitted", "empty"),
    ),
    judges=(_is_clean, _shows, _renders),
)
OF_CALLS = (
    Probe(
        chats=((USER, CALLING, RESULT),),
        tools=(TOOL,),
        forms=({}, {"ids": "named"}),
        judges=(_links,),
    ),
    Probe(
        chats=((USER, CALLING_EMPTY, RESULT),), tools=(TOOL,), forms=_any(nulls=("null", "text"))
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


def found_forms(render: Render, *, knows_developer: bool, shows_calls: bool) -> Forms:
    """What the template wants.

    knows_developer, shows_calls: the template mentions this role, or `tool_calls`; many show any
    role that they are given.
    """
    if (forms := _answered(SHOWN, Forms(), render)) is None:
        return Forms()
    if knows_developer:
        forms = _answered(DEVELOPS, forms, render) or forms
    for probe in OF_TURNS:
        forms = _answered(probe, forms, render) or forms
    if not shows_calls or (called := _answered(CALLED, forms, render)) is None:
        return forms
    for probe in OF_CALLS:
        called = _answered(probe, called, render) or replace(called, **probe.otherwise)
    return called


def _answered(probe: Probe, forms: Forms, render: Render) -> Forms | None:
    for judge in probe.judges:
        for change in probe.forms:
            tried = replace(forms, **change)
            if all(_is_right(judge, chat, probe.tools, tried, render) for chat in probe.chats):
                return tried
    return None


def _is_right(
    judge: Judge, chat: Chat, tools: Sequence[Tool], forms: Forms, render: Render
) -> bool:
    try:
        prompt = _prompt(chat, tools, forms, render)
        if nones := prompt.count("None"):  # more than the template's own come of a missing content
            said = tuple(replace(one, content=one.content or "zq") for one in chat)
            nones -= _prompt(said, tools, forms, render).count("None")
    except MemoryError:
        raise  # the sandbox's limit, which it reports
    except Exception:  # a template is a program: it may raise anything
        return False
    return nones <= 0 and judge(prompt, chat, tools, forms)


def _prompt(chat: Chat, tools: Sequence[Tool], forms: Forms, render: Render) -> str:
    bodies = [tool_body(tool, forms) for tool in tools]
    messages = shaped(chat, forms, has_tools=bool(tools))
    return render(messages, bodies or forms.without_tools)
