"""prepare: what can be refused is refused before anything is sent, and parts share the plan."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.access.start_gate import StartGate
from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.errors import ErrorCode, InvalidRequest, RequestError
from proxy.domain.model import CAPABILITIES, Adopted, Kind, ModelCard
from proxy.domain.request import (
    ChatPrompt,
    Delivery,
    GenerationRequest,
    Message,
    PromptBatch,
    PromptLimit,
    Sampling,
    TextPrompt,
    TokenPrompt,
)
from proxy.domain.request_limits import RequestLimits
from proxy.domain.tools import Tool, ToolChoice, ToolMode
from proxy.generation.prepare import Preparation
from tests.doubles.engine import CARD, ScriptedEngine, deltas
from tests.doubles.sandbox import InProcess
from tests.fixtures.limits import unlimited
from tests.fixtures.lost_triton import Stand

TOOLS = (Tool(name="f", parameters={"type": "object"}), Tool(name="g", is_strict=True))
LONG = "a" * 40_000  # rendered in the sandbox
TEXTS = st.sampled_from(["hi", "", LONG])
CHATS = st.builds(
    ChatPrompt,
    messages=st.lists(
        st.builds(Message, role=st.sampled_from(["user", "tool"]), content=TEXTS), min_size=1
    ).map(tuple),
    template_values=st.sampled_from([{}, {"verbosity": "low"}]),
    callers_values=st.sampled_from([{}, {"unknown": 1}]),
    template=st.sampled_from([None, "{{ messages[0].content }}", "{% broken"]),
)
SINGLE = st.one_of(
    st.builds(TextPrompt, text=TEXTS, suffix=st.sampled_from([None, "z"])),
    st.just(TokenPrompt(ids=(4, 5))),
)
PROMPTS = st.one_of(
    CHATS,
    SINGLE,
    st.builds(PromptBatch, prompts=st.lists(SINGLE, min_size=1, max_size=3).map(tuple)),
)
SAMPLINGS = st.builds(
    Sampling,
    seed=st.none() | st.just(1),
    min_p=st.none() | st.just(0.5),
    min_tokens=st.none() | st.just(9),
    top_log_probs=st.none() | st.integers(0, 20),
)
GUIDES = {
    GuideKind.JSON: "{}",
    GuideKind.JSON_SCHEMA: '{"type": "object"}',
    GuideKind.REGEX: "a*",
    GuideKind.GRAMMAR: 'root ::= "a"',
    GuideKind.STRUCTURAL_TAG: '{"type": "structural_tag", "format": {"type": "any_text"}}',
}
CONSTRAINTS = st.builds(
    lambda kind, **fields: Constraint(kind, GUIDES[kind], "guided", **fields),
    st.sampled_from(GuideKind),
    is_strict=st.booleans(),
    check_error=st.none() | st.just("no"),
)
REQUESTS = st.builds(
    GenerationRequest,
    id=st.just("r"),
    model=st.just("demo"),
    prompt=PROMPTS,
    sampling=SAMPLINGS,
    max_tokens=st.none() | st.sampled_from([1, 8, 100]),
    choices=st.integers(1, 3),
    best_of=st.none() | st.integers(1, 4),
    prompt_limit=st.none() | st.just(PromptLimit(tokens=3)),
    echoes_prompt=st.booleans(),
    returns_token_ids=st.booleans(),
    skips_special_tokens=st.booleans(),
    tools=st.sampled_from([(), TOOLS]),
    tool_choice=st.sampled_from(
        [ToolChoice(), ToolChoice(mode=ToolMode.REQUIRED), ToolChoice(mode=ToolMode.NONE)]
    ),
    constraint=st.none() | CONSTRAINTS,
    thinking_budget=st.none() | st.just(2),
    offers_server_tools=st.none() | st.booleans(),
    priority=st.none() | st.just(1),
    cache_salt=st.none() | st.just("s"),
)
CARDS = st.builds(
    lambda missing, kinds, limit, **fields: replace(
        CARD,
        capabilities=CAPABILITIES - missing,
        facts=replace(CARD.facts, guide_kinds=tuple(kinds)),
        limits=RequestLimits(max_tokens=limit, n=limit),
        **fields,
    ),
    st.sets(st.sampled_from(sorted(CAPABILITIES)), max_size=3),
    st.sets(st.sampled_from(GuideKind)),
    st.none() | st.just(2),
    tool_parser=st.sampled_from(["none", "hermes"]),
    reasoning_parser=st.sampled_from(["none", "qwen3"]),
    takes_templates=st.booleans(),
    takes_template_values=st.booleans(),
)


async def answered(
    engine: ScriptedEngine, request: GenerationRequest, card: ModelCard, delivery: Delivery
) -> None:
    stand = Stand(engine)
    await stand.look()
    async for _ in stand.service.generate(request, card, delivery).events:
        pass


@given(REQUESTS, CARDS, st.sampled_from(Delivery))
def test_a_refused_request_has_sent_nothing_to_the_engine(request, card, delivery):
    engine = ScriptedEngine(deltas("{}"))
    try:
        asyncio.run(answered(engine, request, card, delivery))
    except RequestError as error:  # a violation is no refusal: answers did not conform
        is_violation = error.code is ErrorCode.SCHEMA_VIOLATION
        assert bool(engine.requests) is is_violation
    else:
        sent = [one.id for one in engine.requests]
        assert len(sent) == len(set(sent)) >= request.generations


class OnlyBuild:
    """Stands for the deployment chooser of a model with one build: the card that is given."""

    def cards(self, request: GenerationRequest, card: ModelCard) -> list[ModelCard]:
        return [card]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("queues", "says_rows", "takes", "assigned", "sent"),
    [
        (False, True, True, False, -2),
        (True, True, True, False, -2),
        (True, True, False, False, None),
        (False, True, False, True, None),
        (False, True, True, True, -2),
        (False, True, False, False, InvalidRequest),
        # without its rows it has no queue that could honor a priority
        (True, False, False, False, InvalidRequest),
    ],
)
async def test_a_priority_goes_to_engines_that_take_one_and_the_queue_has_it_in_any_case(
    queues, says_rows, takes, assigned, sent
):
    card = CARD if takes else replace(CARD, capabilities=CAPABILITIES - {"priority"})
    card = replace(card, facts=replace(card.facts, says_rows=says_rows))
    preparation = Preparation(
        InProcess(),
        StartGate(),
        unlimited(),
        OnlyBuild(),
        timeout_s=9,
        isolates_caches=False,
        queues_by_priority=queues,
    )
    prompt = ChatPrompt(messages=(Message(role="user", content=LONG),))
    request = GenerationRequest(
        id="r", model="demo", prompt=prompt, priority=-2, has_assigned_priority=assigned
    )
    if sent is InvalidRequest:
        with pytest.raises(InvalidRequest) as refused:
            await preparation.prepare(request, card)
        assert refused.value.param == "priority"
        return
    plan = await preparation.prepare(request, card)
    assert (plan.request.priority, plan.engine_requests[0].priority) == (-2, sent)


OTHERS = Adopted(kind=Kind.VLLM, inputs={}, outputs={}, has_batches=False, is_decoupled=True)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("adopted", "isolates", "reads"),
    [
        (OTHERS, False, True),
        (OTHERS, True, False),
        (replace(OTHERS, shares_prefixes=True), True, True),
        (None, True, True),  # it has a salt
    ],
)
async def test_an_engine_without_salts_reads_no_prefix_where_tenants_are_kept_apart(
    adopted, isolates, reads
):
    prompt = ChatPrompt(messages=(Message(role="user", content=LONG),))
    lacks = {"cache_salt", "plain_spans"} if adopted else set()
    card = replace(
        CARD, facts=replace(CARD.facts, adopted=adopted), capabilities=CAPABILITIES - lacks
    )
    preparation = Preparation(
        InProcess(), StartGate(), unlimited(), OnlyBuild(), timeout_s=9, isolates_caches=isolates
    )
    request = GenerationRequest(id="r", model="demo", prompt=prompt)
    (asked,) = (await preparation.prepare(request, card)).engine_requests
    assert asked.reads_cache is reads
    assert (asked.cache_salt is not None) is (isolates and adopted is None)
