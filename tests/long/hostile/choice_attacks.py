"""Many choices, big prompts, log-probabilities, stop strings, lists at their limits, queues."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.long.hostile.attack import ANY, Attack, Target
from tests.long.hostile.caller import RENDER, TEXT, Body, Reply, burst, encoded, many, message, post
from tests.long.hostile.structured_attacks import HI, chat, on_engine

OVERLOADED = ANY | {503}
# the emoji comes first: each prefix of the text then takes four bytes a character
EMOJI_STOPS = [f"\U0001f600{i}{'x' * 1_019}" for i in range(4)]
WORDS = " ".join(f"word{i}" for i in range(16))


def text(**fields: Any) -> Body:
    def body(target: Target) -> dict[str, Any]:
        return {"model": target.steady, "prompt": "Hello!", "max_tokens": 4, **fields}

    return body


def big_chat(size: int, **fields: Any) -> Body:
    return chat(messages=[{"role": "user", "content": "word " * (size // 5)}], **fields)


def storm(target: Target) -> list[Reply]:
    """Priorities that rise: each request goes before all that came earlier."""
    bodies = [encoded(on_engine(priority=-i, max_tokens=40)(target)) for i in range(100)]
    return many(target, [message(target, body) for body in bodies], 100)


MEMORY = [
    Attack(
        "stops: 128 choices with four of 1 KB and an emoji",
        post(chat(n=128, stop=EMOJI_STOPS, max_tokens=100)),
    ),
    Attack(
        "stops: sixteen of 255 bytes for 128 choices",
        post(chat(n=128, stop=["ab" * 126 + f"{i:02}" for i in range(16)], max_tokens=100)),
    ),
    Attack("n: 128 choices of a prompt of 1.9 MB", post(big_chat(1_900_000, n=128)), wall_s=20),
    Attack("n: 128 choices of a prompt of 9.9 MB", post(big_chat(9_900_000, n=128)), wall_s=20),
    Attack(
        "n: 128 choices of 400 KB with a guide",
        post(big_chat(400_000, n=128, guided_regex="[a-z]{5}")),
        wall_s=20,
    ),
    Attack(
        "n: 128 choices with 20 log-probabilities, unstreamed",
        post(chat(n=128, logprobs=True, top_logprobs=20, max_tokens=400)),
        wall_s=25,
        cpu_s=6,
    ),
    Attack(
        "n: 128 choices of 1,000 tokens, unstreamed",
        post(chat(n=128, max_tokens=500)),
        wall_s=25,
        cpu_s=6,
    ),
    Attack(
        "best_of 20 with log-probabilities",
        post(text(best_of=20, n=1, logprobs=20, max_tokens=200), TEXT),
        wall_s=20,
        cpu_s=4,
    ),
    Attack(
        "echo with log-probabilities of a long prompt",
        post(text(model="demo", echo=True, logprobs=20, prompt=WORDS * 40, max_tokens=1), TEXT),
        wall_s=20,
        cpu_s=3,
    ),
    Attack("echo of 9.9 MB", post(text(echo=True, prompt="a " * 4_950_000, n=64), TEXT), wall_s=20),
    Attack(
        "prompts: 128 texts of 70 KB",
        post(text(prompt=["word " * 14_000] * 128), TEXT),
        wall_s=20,
        cpu_s=2,
    ),
    Attack(
        "prompts: 30,000 combining marks in the wrong order",
        post(text(prompt="a" + "\u0300" * 15_000 + "\u0327" * 15_000), TEXT),
    ),
    Attack("prompts: 100,000 empty texts", post(text(prompt=[""] * 100_000), TEXT)),
    Attack("prompts: 1,000,000 token ids", post(text(prompt=[7] * 1_000_000), TEXT)),
    Attack(
        "prompts: 128 x 4,900 token ids",
        post(text(prompt=[[7] * 4_900] * 128), TEXT),
        cpu_s=3,
        wall_s=20,
    ),
]

LISTS = [
    Attack(
        "logit_bias: a token outside the vocabulary",
        burst(chat(logit_bias={"999999999": 1}, stream=True), count=100),
        answers=frozenset({400}),
    ),
    Attack(
        "logit_bias: 1,024 entries for 128 choices",
        post(chat(n=128, logit_bias={str(i): 1 for i in range(1_024)})),
    ),
    Attack(
        "logit_bias: 200,000 entries", post(chat(logit_bias={str(i): 1 for i in range(200_000)}))
    ),
    Attack(
        "allowed_token_ids: 16,384 equal ones for 128 choices",
        post(chat(n=128, allowed_token_ids=[5] * 16_384)),
    ),
    Attack("allowed_token_ids: 1,000,000", post(chat(allowed_token_ids=[5] * 1_000_000))),
    Attack(
        "bad_words: 1,024 of about 500 tokens",
        post(
            on_engine(
                bad_words=[f"{i} " + "a b " * 240 for i in range(1_024)],
                max_tokens=200,
                ignore_eos=True,
            )
        ),
        is_on_engine=True,
        wall_s=25,
    ),
    Attack("bad_words: 100,000 short ones", post(chat(bad_words=["a"] * 100_000))),
    Attack("stop: 100,000 strings", post(chat(stop=["a"] * 100_000))),
    Attack("stop_token_ids: 100,000", post(chat(stop_token_ids=[5] * 100_000))),
    Attack(
        "truncate_prompt_tokens of 1.9 MB",
        post(text(prompt="a " * 950_000, truncate_prompt_tokens=1), TEXT),
    ),
]

_queue = partial(Attack, answers=OVERLOADED, wall_s=28, cpu_s=6)
QUEUES = [
    _queue(
        "priority: a storm that rises",
        storm,
        connections=100,
        is_on_engine=True,
        wall_s=25,
        cpu_s=3,
    ),
    _queue(
        "queue: 1,500 equal prompts for one engine",
        burst(on_engine(max_tokens=8), count=1_500),
        is_on_engine=True,
        gap_s=1.0,  # as below
        cpu_s=8,
    ),
    _queue(
        "queue: 400 equal prompts for another model",
        burst(chat(), count=400),
        gap_s=1.0,  # so long two cores take for them, a few a turn: no turn of the loop is long
        cpu_s=8,
    ),
    _queue("queue: 40 requests of 128 choices", burst(chat(n=128), count=40), cpu_s=8),
    _queue("tokenize: 1,500 at once", burst(lambda _: {"prompt": "a"}, "/tokenize", count=1_500)),
    _queue(
        "tokenize: 200 of 100 KB",
        burst(lambda _: {"prompt": "word " * 20_000}, "/tokenize", count=200),
    ),
    _queue(
        "detokenize: 1,500 at once",
        burst(lambda _: {"tokens": [5] * 50}, "/detokenize", count=1_500),
    ),
    _queue("render: 1,000 at once", burst(chat(), RENDER, count=1_000)),
    _queue(
        "annotations of nvext: 500 at once",
        burst(
            chat(stream=True, nvext={"annotations": ["formatted_prompt", "token_ids"]}), count=500
        ),
    ),
    Attack("tokenize: 2 MB", post(lambda _: {"prompt": "word " * 380_000}, "/tokenize")),
    Attack(
        "tokenize: one word of 1.9 MB", post(lambda _: {"prompt": "a" * 1_900_000}, "/tokenize")
    ),
    Attack("detokenize: 1,000,000 ids", post(lambda _: {"tokens": [5] * 1_000_000}, "/detokenize")),
]

MESSAGES = [
    Attack(
        "chat: 2,049 messages",
        post(lambda t: {"model": t.steady, "messages": HI * 2_049}, "/chat/json"),
    ),
    Attack(
        "chat: 40,000 messages",
        post(lambda t: {"model": t.steady, "messages": HI * 40_000}, "/chat/sse"),
    ),
    Attack("tokenize: 40,000 messages", post(lambda _: {"messages": HI * 40_000}, "/tokenize")),
    Attack("v1: 2,048 messages for 128 choices", post(chat(messages=HI * 2_048, n=128))),
]

ATTACKS: list[Attack] = [*MEMORY, *LISTS, *QUEUES, *MESSAGES]
