"""A model with a large context that does what the last script in its prompt says, and the proxy
over it. The script of a task stands in the user's own words: see `task`.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncGenerator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from proxy.domain.engine import EngineRequest
from proxy.domain.output import FinishReason, TokenDelta
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine
from tests.fixtures.application import application
from tests.fixtures.running_app import RunningApp

CONTEXT_LENGTH = 1_000_000
# Hermes' form, which most open models of agents have.
TEMPLATE = """\
{%- if tools %}<|im_start|>system
# Tools
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or "" }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
SCRIPT = re.compile(r"SCRIPT:([A-Za-z0-9_=-]+)")
TURN = "<|im_start|>assistant\n"
ASIDE = "A short title"  # the answer to what has no script, such as a request for a title


def task(*steps: Any) -> str:
    """The words of a user whose model answers with these steps, one a turn: a text, or a list of
    texts and of calls, each a name with arguments.
    """
    script = base64.urlsafe_b64encode(json.dumps(steps).encode()).decode()
    return f"Please do it. SCRIPT:{script}"


def answer_to(prompt: str) -> str:
    """The text of the model."""
    scripts = list(SCRIPT.finditer(prompt))
    if not scripts:
        return ASIDE
    steps = json.loads(base64.urlsafe_b64decode(scripts[-1][1]))
    turns = prompt.count(TURN, scripts[-1].end()) - 1
    if turns >= len(steps):
        return "It is done."
    step = steps[turns]
    return "\n".join(
        part if isinstance(part, str) else _call(*part)
        for part in (step if isinstance(step, list) else [step])
    )


def _call(name: str, arguments: dict[str, Any]) -> str:
    call = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{call}\n</tool_call>"


class PlayingEngine(ScriptedEngine):
    async def generate(self, request: EngineRequest) -> AsyncGenerator[TokenDelta, None]:
        self.requests.append(request)
        prompt = request.text or ""
        text = answer_to(prompt).encode()
        yield TokenDelta((text,), prompt_tokens=max(len(prompt) // 4, 1))
        yield TokenDelta((b"",), finish=FinishReason.STOP)


class Recorder:
    """An ASGI middleware: keeps each request's path and body, and the status of its answer."""

    def __init__(self, app: Any, sent: list[dict[str, Any]]) -> None:
        self.app, self.sent = app, sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self.app, name)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        taken = {"method": scope["method"], "path": scope["path"], "body": b"", "answer": b""}
        taken["query"] = scope["query_string"].decode()
        taken["headers"] = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.sent.append(taken)

        async def receiving() -> Any:
            message = await receive()
            taken["body"] += message.get("body", b"")
            return message

        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start":
                taken["status"] = message["status"]
                headers = message.get("headers", ())
                taken["told"] = {name.decode(): value.decode() for name, value in headers}
            taken["answer"] += message.get("body", b"")
            await send(message)

        await self.app(scope, receiving, sending)


@contextmanager
def playing() -> Any:
    """The address of the proxy, and what it was sent."""
    sent: list[dict[str, Any]] = []
    facts = replace(FACTS, context_length=CONTEXT_LENGTH, chat_template=TEMPLATE)
    app = application(PlayingEngine(), FixedCatalog(facts=facts))
    with RunningApp(Recorder(app, sent)) as running:
        yield running.url, sent
