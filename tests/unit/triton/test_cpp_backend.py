"""The finish reason that NVIDIA's C++ backend leaves out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.domain.engine import EngineRequest
from proxy.domain.output import FinishReason, TokenDelta
from proxy.domain.request import Sampling
from proxy.triton.codec import StreamMessage
from proxy.triton.cpp_backend import MissingFinishReason
from tests.doubles.engine import CARD, FACTS

END, OTHER_END = 2, 3
STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH


def reasons(chunks, *, separate_end=False, default=None, **fields) -> list[FinishReason | None]:
    """Of each message of a stream of so many chunks of ids, the last one final."""
    facts = replace(FACTS, end_ids=(END, OTHER_END), default_max_tokens=default)
    sampling = fields.pop("sampling", Sampling())
    request = EngineRequest(
        id="r", model=replace(CARD, facts=facts), timeout_s=1, sampling=sampling, **fields
    )
    missing, found = MissingFinishReason(request), []
    messages = [
        StreamMessage(TokenDelta((b"x",) * len(ids), prompt_tokens=100, token_ids=ids), False)
        for ids in chunks
    ]
    if separate_end:
        messages.append(StreamMessage(None, True))
    else:
        messages[-1] = replace(messages[-1], is_final=True)
    for message in messages:
        pushed = missing.push(message)
        found.append(pushed.delta and pushed.delta.finish)
    return found


@pytest.mark.parametrize(
    ("chunks", "fields", "reason"),
    [
        ([(7, 8), (9,)], {"max_tokens": 3}, LENGTH),
        ([(7, 8), (END,)], {"max_tokens": 3}, STOP),
        ([(7,), (OTHER_END,)], {"max_tokens": 3}, STOP),
        ([(7,), (8,)], {"max_tokens": 3}, STOP),  # the end token is not among the output
        ([(7,), (8,), ()], {"max_tokens": 3}, STOP),
        ([(7, 8, 9), ()], {"max_tokens": 3}, LENGTH),
        ([(7, 8, END), ()], {"max_tokens": 3}, STOP),
        ([()], {"max_tokens": 3}, STOP),
        ([(7, END)], {"max_tokens": 2, "sampling": Sampling(ignore_eos=True)}, LENGTH),
        ([(7, 40)], {"max_tokens": 2, "sampling": Sampling(stop_token_ids=(40,))}, STOP),
        ([(7,) * 28], {}, LENGTH),  # the context has 128, the prompt 100
        ([(7,) * 27], {}, STOP),
        ([(7,) * 5], {"default": 5}, LENGTH),
        ([(7,) * 28], {"default": 50}, LENGTH),
        ([(7,) * 5], {"token_cap": 5}, LENGTH),
        ([(7,) * 5], {"token_cap": 5, "default": 9}, LENGTH),
        ([(7,) * 5], {"token_cap": 9}, STOP),
    ],
)
@pytest.mark.parametrize("separate_end", [False, True])
def test_the_last_message_alone_has_the_reason(chunks, fields, reason, separate_end):
    *others, last = reasons(chunks, separate_end=separate_end, **fields)
    assert last is reason
    assert not any(others)
