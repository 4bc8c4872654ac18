"""What one plain streamed chat does once: look its model up, plan, render its prompt."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from types import FrameType

from proxy.generation.answer_format import AnswerFormats
from proxy.generation.prepare import Plan, Preparation
from proxy.language.prompting import chat_template
from proxy.models.registry import Registry
from tests.doubles.engine import ScriptedEngine, deltas
from tests.fixtures.application import application
from tests.fixtures.asgi_calls import Call, started

BODY = {"model": "demo", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
COUNTED = {
    Registry.serving: "look-up",
    AnswerFormats.answer_format: "format",
    Preparation.prepare: "plan",
    Plan.new_parser: "parser",
    chat_template.rendered: "rendering",
    chat_template._written: "run of the template",
}
BY_CODE = {function.__code__: name for function, name in COUNTED.items()}


async def counted(engine: ScriptedEngine) -> tuple[Counter[str], bytes]:
    """The calls of COUNTED in one request, and its answer."""
    calls: Counter[str] = Counter()

    def seen(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in BY_CODE:
            calls[BY_CODE[frame.f_code]] += 1

    app = application(engine)
    async with started(app):
        sys.setprofile(seen)
        try:
            call = await Call(app, "/v1/chat/completions", BODY, {}).done()
        finally:
            sys.setprofile(None)
    return calls, call.body


def test_a_plain_chat_is_looked_up_planned_and_rendered_once():
    engine = ScriptedEngine(deltas("hello"))
    calls, answer = asyncio.run(counted(engine))
    assert answer.endswith(b"data: [DONE]\n\n")
    assert len(engine.requests) == 1
    assert calls == dict.fromkeys(COUNTED.values(), 1)
