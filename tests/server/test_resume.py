"""`resume_from` through the ensemble of a real tritonserver: what is cut continues as it was."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest

from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.engine import EngineRequest
from proxy.domain.errors import InvalidRequest
from proxy.domain.model import ModelCard
from proxy.domain.output import FinishReason, TokenDelta
from proxy.domain.request import PromptLimit, Sampling
from proxy.triton.catalog import TritonCatalog
from proxy.triton.client import TritonClient
from proxy.triton.target import Target
from tests.fixtures.stack import SECRET

pytestmark = pytest.mark.anyio

NUMBERS = itertools.count()
CHAT = "<|im_start|>user\nTell me about the sea, please.<|im_end|>\n<|im_start|>assistant\n"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
REQUESTS: dict[str, dict] = {
    "a text, greedily": {"text": "Once"},
    "a chat with a seed": {"text": CHAT, "add_special_tokens": False, "sampling": Sampling(seed=7)},
    "ids": {
        "text": None,
        "token_ids": tuple(range(40, 60)),
        "sampling": Sampling(seed=1, ignore_eos=True),
    },
    "penalties": {
        "text": CHAT,
        "sampling": Sampling(
            seed=2, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.4, top_p=0.9
        ),
    },
    "ends and words": {
        "text": CHAT,
        "sampling": Sampling(
            seed=3, min_tokens=25, bad_words=("sea", "the"), logit_bias=((60, 3.0),)
        ),
    },
    "a guide": {
        "text": CHAT,
        "max_tokens": 60,
        "constraint": Constraint(GuideKind.JSON_SCHEMA, json.dumps(SCHEMA)),
        "sampling": Sampling(seed=4),
    },
    "an echo with log-probabilities": {
        "text": "Once upon",
        "echoes_prompt": True,
        "sampling": Sampling(seed=5, top_log_probs=2),
    },
    "a truncated prompt": {
        "text": "Tell me about the sea. " * 30,
        "prompt_limit": PromptLimit(tokens=20),
        "sampling": Sampling(seed=6),
    },
}


@dataclass
class Answer:
    """A stream's deltas, put together; without an echoed prompt."""

    ids: list[int]
    text: bytes
    log_probs: list
    finish: FinishReason | None
    prompt_tokens: int | None

    @classmethod
    def of(cls, deltas: list[TokenDelta], echoed: int = 0) -> Answer:
        tokens = [data for delta in deltas for data in delta.token_bytes]
        return cls(
            ids=[token for delta in deltas for token in delta.token_ids][echoed:],
            text=b"".join(tokens[echoed:]),
            log_probs=[one for delta in deltas for one in delta.log_probs][echoed:],
            finish=deltas[-1].finish,
            prompt_tokens=deltas[0].prompt_tokens,
        )


@pytest.fixture(scope="module", autouse=True)
async def one_loop(anyio_backend) -> AsyncIterator[None]:
    """For all tests, see test_streams."""
    yield  # noqa: PT022 - what only returns would keep no loop


@pytest.fixture
async def client(stack) -> AsyncIterator[TritonClient]:
    target = Target(f"127.0.0.1:{stack.triton_grpc_port}", secret=SECRET)
    async with TritonClient(target) as made:
        yield made


async def card(client: TritonClient, model: str) -> ModelCard:
    (loaded,) = [one for one in await TritonCatalog(client).load() if one.name == model]
    return ModelCard(
        name=model, triton_model=model, facts=loaded.facts, capabilities=loaded.capabilities
    )


async def answer(client: TritonClient, request: EngineRequest) -> Answer:
    request = replace(request, id=f"resume-{next(NUMBERS)}")
    deltas = [delta async for delta in client.generate(request)]
    return Answer.of(deltas, deltas[0].prompt_tokens or 0 if request.echoes_prompt else 0)


@pytest.mark.parametrize("model", ["demo", "endless"])
@pytest.mark.parametrize("fields", REQUESTS.values(), ids=REQUESTS)
async def test_an_answer_that_is_cut_continues_as_it_was(client, model, fields):
    usual = {"max_tokens": 40, "timeout_s": 60, "sampling": Sampling(temperature=0.0)}
    request = EngineRequest(
        id="", model=await card(client, model), keeps_ids=True, **{**usual, **fields}
    )
    whole = await answer(client, request)
    count = len(whole.ids)
    assert count > 4
    for cut in sorted({1, 2, count // 3, count // 2, count - 1, count}):
        generated = tuple(whole.ids[:cut])
        rest = await answer(client, replace(request, generated=generated, echoes_prompt=False))
        assert rest.ids == whole.ids[cut:], f"cut at {cut} of {count}"
        assert whole.text.endswith(rest.text)
        assert (rest.finish, rest.prompt_tokens) == (whole.finish, whole.prompt_tokens)
        assert rest.log_probs == [
            replace(one, log_prob=pytest.approx(one.log_prob, abs=1e-4), top=rest_one.top)
            for one, rest_one in zip(whole.log_probs[cut:], rest.log_probs, strict=True)
        ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"generated": (5,) * 9000}, "resume_from is 9000, but after a prompt of"),
        ({"generated": (5, 999_999)}, "token id 999999 at position 1"),
        (
            {"generated": (60,), "constraint": Constraint(GuideKind.REGEX, "[xyz]{5}")},
            "the generated token 60 at position 0 does not follow the guide",
        ),
    ],
)
async def test_what_no_engine_can_have_generated_is_refused(client, fields, message):
    request = EngineRequest(
        id=f"resume-{next(NUMBERS)}",
        model=await card(client, "demo"),
        text="Once",
        timeout_s=60,
        sampling=Sampling(),
        **fields,
    )
    with pytest.raises(InvalidRequest, match=message) as caught:
        _ = [delta async for delta in client.generate(request)]
    assert caught.value.param == "resume_from"
