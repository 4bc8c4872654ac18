"""Many choices, big prompts, log-probabilities, stop strings, lists at their limits, queues."""

from __future__ import annotations

from typing import Any

from tests.long.hostile.attack import ANY, Attack, Target
from tests.long.hostile.caller import RENDER, TEXT, Body, Reply, burst, encoded, many, message, post
from tests.long.hostile.structured_attacks import HI, chat, on_engine, one

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
    one(
        "stops: 128 choices with four of 1 KB and an emoji",
        3,
        post(chat(n=128, stop=EMOJI_STOPS, max_tokens=100)),
    ),
    one(
        "stops: sixteen of 255 bytes for 128 choices",
        3,
        post(chat(n=128, stop=["ab" * 126 + f"{i:02}" for i in range(16)], max_tokens=100)),
    ),
    one("n: 128 choices of a prompt of 1.9 MB", 3, post(big_chat(1_900_000, n=128)), wall_s=20),
    one("n: 128 choices of a prompt of 9.9 MB", 3, post(big_chat(9_900_000, n=128)), wall_s=20),
    one(
        "n: 128 choices of 400 KB with a guide",
        3,
        post(big_chat(400_000, n=128, guided_regex="[a-z]{5}")),
        wall_s=20,
    ),
    one(
        "n: 128 choices with 20 log-probabilities, unstreamed",
        3,
        post(chat(n=128, logprobs=True, top_logprobs=20, max_tokens=400)),
        wall_s=25,
        cpu_s=6,
    ),
    one(
        "n: 128 choices of 1,000 tokens, unstreamed",
        3,
        post(chat(n=128, max_tokens=500)),
        wall_s=25,
        cpu_s=6,
    ),
    one(
        "best_of 20 with log-probabilities",
        3,
        post(text(best_of=20, n=1, logprobs=20, max_tokens=200), TEXT),
        wall_s=20,
        cpu_s=4,
    ),
    one(
        "echo with log-probabilities of a long prompt",
        3,
        post(text(model="demo", echo=True, logprobs=20, prompt=WORDS * 40, max_tokens=1), TEXT),
        wall_s=20,
        cpu_s=3,
    ),
    one("echo of 9.9 MB", 3, post(text(echo=True, prompt="a " * 4_950_000, n=64), TEXT), wall_s=20),
    one(
        "prompts: 128 texts of 70 KB",
        3,
        post(text(prompt=["word " * 14_000] * 128), TEXT),
        wall_s=20,
        cpu_s=2,
    ),
    one(
        "prompts: 30,000 combining marks in the wrong order",
        0,
        post(text(prompt="a" + "\u0300" * 15_000 + "\u0327" * 15_000), TEXT),
    ),
    one("prompts: 100,000 empty texts", 0, post(text(prompt=[""] * 100_000), TEXT)),
    one("prompts: 1,000,000 token ids", 0, post(text(prompt=[7] * 1_000_000), TEXT)),
    one(
        "prompts: 128 x 4,900 token ids",
        3,
        post(text(prompt=[[7] * 4_900] * 128), TEXT),
        cpu_s=3,
        wall_s=20,
    ),
]

LISTS = [
    one(
        "logit_bias: a token outside the vocabulary",
        0,
        burst(chat(logit_bias={"999999999": 1}, stream=True), count=100),
        answers=frozenset({400}),
    ),
    one(
        "logit_bias: 1,024 entries for 128 choices",
        0,
        post(chat(n=128, logit_bias={str(i): 1 for i in range(1_024)})),
    ),
    one(
        "logit_bias: 200,000 entries", 0, post(chat(logit_bias={str(i): 1 for i in range(200_000)}))
    ),
    one(
        "allowed_token_ids: 16,384 equal ones for 128 choices",
        0,
        post(chat(n=128, allowed_token_ids=[5] * 16_384)),
    ),
    one("allowed_token_ids: 1,000,000", 0, post(chat(allowed_token_ids=[5] * 1_000_000))),
    one(
        "bad_words: 1,024 of about 500 tokens",
        12,
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
    one("bad_words: 100,000 short ones", 12, post(chat(bad_words=["a"] * 100_000))),
    one("stop: 100,000 strings", 0, post(chat(stop=["a"] * 100_000))),
    one("stop_token_ids: 100,000", 0, post(chat(stop_token_ids=[5] * 100_000))),
    one(
        "truncate_prompt_tokens of 1.9 MB",
        0,
        post(text(prompt="a " * 950_000, truncate_prompt_tokens=1), TEXT),
    ),
]

QUEUES = [
    one(
        "priority: a storm that rises",
        5,
        storm,
        connections=100,
        answers=OVERLOADED,
        is_on_engine=True,
        wall_s=25,
        cpu_s=3,
    ),
    one(
        "queue: 1,500 equal prompts for one engine",
        4,
        burst(on_engine(max_tokens=8), count=1_500),
        answers=OVERLOADED,
        is_on_engine=True,
        gap_s=1.0,  # as below
        wall_s=28,
        cpu_s=8,
    ),
    one(
        "queue: 400 equal prompts for another model",
        4,
        burst(chat(), count=400),
        answers=OVERLOADED,
        gap_s=1.0,  # so long two cores take for them, a few a turn: no turn of the loop is long
        wall_s=28,
        cpu_s=8,
    ),
    one(
        "queue: 40 requests of 128 choices",
        4,
        burst(chat(n=128), count=40),
        answers=OVERLOADED,
        wall_s=28,
        cpu_s=8,
    ),
    one(
        "tokenize: 1,500 at once",
        4,
        burst(lambda _: {"prompt": "a"}, "/tokenize", count=1_500),
        answers=OVERLOADED,
        wall_s=28,
        cpu_s=6,
    ),
    one(
        "tokenize: 200 of 100 KB",
        4,
        burst(lambda _: {"prompt": "word " * 20_000}, "/tokenize", count=200),
        answers=OVERLOADED,
        wall_s=28,
        cpu_s=6,
    ),
    one(
        "detokenize: 1,500 at once",
        4,
        burst(lambda _: {"tokens": [5] * 50}, "/detokenize", count=1_500),
        answers=OVERLOADED,
        wall_s=28,
        cpu_s=6,
    ),
    one(
        "render: 1,000 at once",
        4,
        burst(chat(), RENDER, count=1_000),
        answers=OVERLOADED,
        wall_s=28,
        cpu_s=6,
    ),
    one(
        "annotations of nvext: 500 at once",
        4,
        burst(
            chat(stream=True, nvext={"annotations": ["formatted_prompt", "token_ids"]}), count=500
        ),
        answers=OVERLOADED,
        wall_s=28,
        cpu_s=6,
    ),
    one("tokenize: 2 MB", 4, post(lambda _: {"prompt": "word " * 380_000}, "/tokenize")),
    one(
        "tokenize: one word of 1.9 MB", 4, post(lambda _: {"prompt": "a" * 1_900_000}, "/tokenize")
    ),
    one("detokenize: 1,000,000 ids", 4, post(lambda _: {"tokens": [5] * 1_000_000}, "/detokenize")),
]

MESSAGES = [
    one(
        "chat: 2,049 messages",
        4,
        post(lambda t: {"model": t.steady, "messages": HI * 2_049}, "/chat/json"),
    ),
    one(
        "chat: 40,000 messages",
        4,
        post(lambda t: {"model": t.steady, "messages": HI * 40_000}, "/chat/sse"),
    ),
    one("tokenize: 40,000 messages", 4, post(lambda _: {"messages": HI * 40_000}, "/tokenize")),
    one("v1: 2,048 messages for 128 choices", 4, post(chat(messages=HI * 2_048, n=128))),
]

ATTACKS: list[Attack] = [*MEMORY, *LISTS, *QUEUES, *MESSAGES]
