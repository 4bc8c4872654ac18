"""The Responses API: items, references, growing conversations, responses in the background."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable
from typing import Any

from tests.long.hostile.attack import ANY, CLOSED, SILENT, Attack, Reply, Target
from tests.long.hostile.body_attacks import nested, schema_tower
from tests.long.hostile.caller import Body, burst, encoded, exchange, many, message, post
from tests.long.hostile.choice_attacks import OVERLOADED
from tests.long.hostile.connection_attacks import opened, sent
from tests.long.hostile.socket_attacks import TEXT, flood, frame
from tests.long.hostile.structured_attacks import fresh

RESPONSES = "/v1/responses"
ONE = f"{RESPONSES}/{{response_id}}"
OPEN = OVERLOADED | {CLOSED, SILENT, 101}
STRANGER = f"resp_{'0' * 32}"
Json = dict[str, Any]


def asked(*items: Any, **fields: Any) -> Body:
    """items: of the input; a text where there are none."""

    def body(target: Target) -> Json:
        given = list(items) or "Hello!"
        return {"model": target.steady, "max_output_tokens": 4, "input": given, **fields}

    return body


def said(text: Any, role: str = "user") -> Json:
    return {"role": role, "content": text}


def calls(count: int, arguments: str = "{}") -> list[Json]:
    call = {"type": "function_call", "name": "f", "arguments": arguments}
    return [{**call, "call_id": f"c{at}"} for at in range(count)]


def outputs(numbers: Iterable[int]) -> list[Json]:
    found = {"type": "function_call_output", "output": ""}
    return [{**found, "call_id": f"c{at}"} for at in numbers]


def reference(id: str) -> Json:
    return {"type": "item_reference", "id": id}


def tools(count: int, schema: Any) -> list[Json]:
    given = [{**schema, "title": fresh()}, *[schema] * (count - 1)]
    return [
        {"type": "function", "name": f"f{at}", "parameters": one} for at, one in enumerate(given)
    ]


def created(target: Target, **fields: Any) -> Json:
    body = encoded(asked(**fields)(target))
    reply = exchange(target, message(target, body, RESPONSES))
    found = json.loads(reply.body.partition(b"\r\n\r\n")[2]) if reply.status == 200 else {}
    return found if isinstance(found, dict) else {}


def get(target: Target, path: str, method: str = "GET") -> bytes:
    return message(target, b"", f"{RESPONSES}/{path}", method)


def many_references(target: Target) -> list[Reply]:
    """2,048 references to an item of 600 tokens: 6 MB of text."""
    found = created(target, max_output_tokens=600)
    items = [reference(item["id"]) for item in found.get("output", ())] * 2_048
    return post(asked(*items), RESPONSES)(target)


def references_in_turn(target: Target) -> list[Reply]:
    """One item of each of 100 responses, more than one input may name."""
    replies, items = [], []
    for _ in range(100):
        items += [reference(item["id"]) for item in created(target).get("output", ())]
    replies += post(asked(*items), RESPONSES)(target)
    return replies


def chain(size: int, turns: int) -> Any:
    """Each turn continues the one before with so many more bytes, until it is refused."""

    def send(target: Target) -> list[Reply]:
        previous: str | None = None
        replies = []
        for _ in range(turns):
            text = "word " * (size // 5)
            body = asked(said(text), previous_response_id=previous)(target)
            reply = exchange(target, message(target, encoded(body), RESPONSES))
            replies.append(reply)
            if reply.status != 200:
                break
            previous = json.loads(reply.body.partition(b"\r\n\r\n")[2])["id"]
        return replies

    return send


def polls(target: Target) -> list[Reply]:
    """3,000 looks at a response in the background."""
    id = created(target, background=True, max_output_tokens=200).get("id", STRANGER)
    return many(target, [get(target, id)] * 3_000, 100)


def listeners(target: Target) -> list[Reply]:
    """200 streams of one response in the background, from its beginning."""
    id = created(target, background=True, max_output_tokens=100).get("id", STRANGER)
    return many(target, [get(target, f"{id}?stream=true")] * 200, 200)


def deaf_listeners(target: Target) -> list[Reply]:
    """100 streams of one long response, of which nobody reads anything."""
    id = created(target, background=True, max_output_tokens=1_000).get("id", STRANGER)
    with opened(target, 100) as socks:
        for sock in socks:
            sent(sock, get(target, f"{id}?stream=true"))
        time.sleep(3)
    return [exchange(target, get(target, f"{id}/cancel", "POST"))]


def races(target: Target) -> list[Reply]:
    """Each of 20 responses is cancelled, deleted, read and continued at once."""
    requests = []
    for _ in range(20):
        id = created(target, background=True, max_output_tokens=400).get("id", STRANGER)
        follow = encoded(asked(previous_response_id=id)(target))
        requests += [
            get(target, f"{id}?stream=true"),
            get(target, f"{id}/cancel", "POST"),
            get(target, id, "DELETE"),
            get(target, f"{id}/cancel", "POST"),
            get(target, id, "DELETE"),
            get(target, f"{id}/input_items"),
            message(target, follow, RESPONSES),
        ]
    return many(target, requests, 70)


def in_background(target: Target) -> list[Reply]:
    """200 at once. All of them are cancelled in the end."""
    body = encoded(asked(background=True, max_output_tokens=2_000)(target))
    replies = many(target, [message(target, body, RESPONSES)] * 200, 200)
    ids = []
    for reply in replies:
        with contextlib.suppress(ValueError, KeyError):
            ids.append(json.loads(reply.body.partition(b"\r\n\r\n")[2])["id"])
    time.sleep(2)
    return replies + many(target, [get(target, f"{id}/cancel", "POST") for id in ids], 50)


def socket_message(**fields: Any) -> bytes:
    return frame(TEXT, json.dumps({"type": "response.create", **fields}).encode())


WRONG = socket_message(model=1)
PREPARED = [
    socket_message(model="steady", generate=False, stream_id=f"s{at}", input="x" * 200_000)
    for at in range(100)
]
CONTINUED = socket_message(model="steady", input="x", previous_response_id=STRANGER)

ATTACKS = [
    Attack("responses: 2,000 items, each a message", post(asked(*[said("a")] * 2_000), RESPONSES)),
    Attack("responses: 24,000 parts of one message",
        post(asked(said([{"type": "input_text", "text": "a"}] * 24_000)), RESPONSES)),
    Attack("responses: 630,000 empty items",
        post(lambda t: b'{"model":"%s","input":[' % t.steady.encode() + b"{}," * 630_000 + b"{}]}",
             RESPONSES)),
    Attack("responses: 2,000 instructions in turn",
        post(asked(*[said("x" * 900, "developer"), said("a")] * 1_000), RESPONSES)),
    Attack("responses: 2,000 reasoning items",
        post(asked(*[{"type": "reasoning", "encrypted_content": "dG9haTE6aGk="}] * 2_000),
             RESPONSES)),
    Attack("responses: a compaction of 1.9 MB",
        post(asked({"type": "compaction", "encrypted_content": "dG9haTE6" + "aGlo" * 460_000}),
             RESPONSES)),
    Attack("responses: arguments 90 deep",
        post(asked(said("a"), *calls(1, json.dumps(nested(45))), *outputs([0])), RESPONSES)),
    Attack("responses: arguments 50,000 deep",
        post(asked(said("a"), *calls(1, '{"a":' * 50_000 + "1" + "}" * 50_000), *outputs([0])),
             RESPONSES)),
    Attack("responses: 1,000 calls with their outputs",
        post(asked(*calls(1_000), *outputs(range(1_000))), RESPONSES)),
    Attack("responses: 1,000 calls with outputs of others",
        post(asked(*calls(1_000), *outputs(range(1_000, 0, -1))), RESPONSES)),
    Attack("responses: 2,000 calls without outputs",
        post(asked(*calls(2_000), said("a")), RESPONSES)),
    Attack("responses: 128 tools with schemas 25 deep",
        post(asked(tools=tools(128, schema_tower(25)), tool_choice="required"), RESPONSES)),
    Attack("responses: 12,000 tools", post(asked(tools=tools(12_000, {})), RESPONSES)),
    Attack("responses: client_metadata of 20,000 fields",
        post(asked(client_metadata={f"k{at}": "v" for at in range(20_000)}), RESPONSES)),
    Attack("responses: an input that is cut at 1,000 places",
        post(asked(*[said("word " * 330)] * 1_000, truncation="auto"), RESPONSES), wall_s=30),
    Attack("responses: 2,000 references to others' items",
        post(asked(*[reference(f"msg_{at:032x}0") for at in range(2_000)]), RESPONSES)),
    Attack("responses: 2,000 references to no item's id",
        post(asked(*[reference("é" * 128)] * 2_000), RESPONSES)),
    Attack("responses: 2,048 references to one large item", many_references, wall_s=90, cpu_s=2,
        answers=OVERLOADED),
    Attack("responses: items of 100 responses", references_in_turn, wall_s=30),
    Attack("responses: an id of 1.9 MB",
        post(asked(previous_response_id="x" * 1_900_000), RESPONSES)),
    Attack("responses: a conversation that grows by 100 KB a turn", chain(100_000, 40),
        wall_s=20, cpu_s=4),
    Attack("responses: a conversation that grows by 1,000 bytes a turn", chain(1_000, 150),
        wall_s=20, cpu_s=6),
    Attack("responses: 3,000 looks at one in the background", polls, connections=3_000,
        wall_s=30, cpu_s=10, attacks=(ONE,)),
    Attack("responses: 200 streams of one in the background", listeners, connections=200,
        wall_s=30, cpu_s=6),
    Attack("responses: 100 streams of one that nobody reads", deaf_listeners, connections=100,
        answers=OPEN, wall_s=20, cpu_s=6),
    Attack("responses: cancelled, deleted, read and continued at once", races, connections=140,
        answers=OVERLOADED, wall_s=30, cpu_s=4,
        attacks=(f"{ONE}/cancel", f"{ONE}/input_items")),
    Attack("responses: 200 in the background at once", in_background, connections=200,
        answers=OVERLOADED, wall_s=30, cpu_s=6),
    Attack("responses: 60 of 1.9 MB in the background at once",
        burst(asked(said("word " * 380_000), background=True), RESPONSES, count=60),
        answers=OVERLOADED, wall_s=60, cpu_s=6, growth_mb=500),
    Attack("input_tokens: 100 prompts of 60 KB at once",
        burst(lambda t: {"model": t.steady, "input": "word " * 12_000},
              f"{RESPONSES}/input_tokens", count=100),
        answers=ANY, wall_s=20, cpu_s=3),
    Attack("compact: a conversation that fills the context",
        post(lambda t: {"model": t.demo, "input": [said("a")] * 400}, f"{RESPONSES}/compact"),
        wall_s=30, cpu_s=3),  # the summary is as long as the context leaves
    Attack("responses' websocket: 5,000 wrong messages",
        flood(WRONG * 5_000, path=RESPONSES), answers=OPEN, wall_s=20, cpu_s=4),
    Attack("responses' websocket: 5,000 messages that continue another's",
        flood(CONTINUED * 5_000, path=RESPONSES), answers=OPEN, wall_s=20, cpu_s=6),
    Attack("responses' websocket: 100 prepared responses of 200 KB",
        flood(b"".join(PREPARED), path=RESPONSES), answers=OPEN, wall_s=20, cpu_s=4),
]  # fmt: skip
