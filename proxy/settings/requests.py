"""What requests and answers are like, how many may run, and how long they may take."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode

from proxy.settings.group import AtMost, Group, Seconds, Tokens, Words, words

ControlTokens = Literal["plain", "special"]
ReasoningField = Literal["reasoning", "reasoning_content"]
REASONING_FIELDS: tuple[ReasoningField, ...] = ("reasoning", "reasoning_content")
Priority = Annotated[int, Field(ge=-(2**31) + 1, le=2**31 - 1)]
WORDS: dict[str, int] = {"low": -10, "normal": 0, "high": 10}
PAIR = re.compile(r"([A-Za-z][A-Za-z0-9_-]{0,63})\s*=\s*([+-]?[0-9]{1,10})")


def _pairs(given: Any) -> Any:
    """Pairs such as `high=10`, separated by commas."""
    if not isinstance(given, str):
        return given
    found: dict[str, int] = {}
    for pair in words(given):
        matched = PAIR.fullmatch(pair)
        if matched is None or matched[1] in found:
            raise ValueError(f"{pair!r} must be a new word and an integer, such as high=10")
        found[matched[1]] = int(matched[2])
    return found


class Answers(Group):
    """What an answer is like"""

    default_max_tokens: Tokens | None = None
    """`max_tokens` of a request that gives none and whose model has no default in models.yaml.
    `build` writes it into the tokenizer model, so set it where Triton's models are built. Without
    it: 1024 with `MODEL_PATH`, else what the context leaves for chats, 16 for completions. Lower it
    where callers forget the limit."""
    default_temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """Temperature of a request that gives none and whose model has no default in models.yaml.
    Without it: 0.7 with `MODEL_PATH`, else the engine's own, 1. Change it where one value suits all
    models."""
    reasoning_fields: Annotated[tuple[ReasoningField, ...], NoDecode, Words] = REASONING_FIELDS
    """Names under which a chat answer's reasoning is sent, separated by commas. Name one of them to
    send fewer bytes."""
    callers_control_tokens: ControlTokens = "plain"
    """What a control token such as `<|im_start|>` is in a caller's text: `plain` text, or a
    `special` token, with which a caller can forge any turn. Change it where callers write whole
    prompts, and are trusted."""
    report_cached_tokens: bool = True
    """Whether `usage` has `cached_tokens`, which show a caller what others have sent. Turn it off
    where tenants share caches and do not trust each other."""
    isolate_prefix_caches: bool | None = None
    """Whether each tenant gets cached prefixes of its own; without keys, or with one `API_KEY` for
    all, each address. Without it: where keys or tokens name tenants, of which a second one may come
    at any time. One tenant alone loses nothing by it. Turn it off where all tenants trust each
    other, and on where addresses do not."""


class Concurrency(Group):
    """How much may run at once"""

    max_concurrent_requests: Annotated[int, Field(ge=1)] | None = None
    """Generations at once, over all models; each choice of each prompt is one. One more gets 429 at
    once. Without it: no limit, but 10 with `MODEL_PATH`. Set it to keep a small machine
    responsive."""
    generations_per_row: AtMost = 16
    """Generations at once of one model, for each row that its engine decodes at a time. A choice
    with `top_logprobs` counts for up to six. Where streams wait in the fair queue, its bounds hold
    instead, and this is the most that one request may ask for. Change it with `SCHEDULING=none`."""
    max_websockets: AtMost = 1024
    """WebSockets at once, a quarter of them of one tenant (without keys, of one address); one more
    gets 429. Raise it where many users have one each."""
    sandbox_processes: Annotated[int, Field(ge=1, le=64)] = 2
    """Child processes that examine schemas and grammars, check answers and render long chats. Each
    caller has one call at a time. Raise it where many requests have schemas or tools."""


class Times(Group):
    """Time limits"""

    request_timeout_s: Seconds = 600.0
    """How long a generation may take as a whole; then 504 `deadline_exceeded`. Raise it for long
    answers."""
    stall_timeout_s: Seconds = 120.0
    """How long an engine may send nothing for a request, its wait in the queue included; then 504
    `engine_stalled`. Raise it for engines with long prefills."""
    max_resends: Annotated[int, Field(ge=0, le=10)] = 2
    """How often a request that has no token yet is sent again if Triton dies; 0: it fails at once.
    Lower it to fail early."""
    keep_alive_s: Seconds = 15.0
    """A silent stream of server-sent events gets a comment this often. Lower it below the idle
    timeout of the fronts."""
    slow_reader_timeout_s: Seconds = 30.0
    """A client that does not read for so long is disconnected, and its row in the engine freed.
    Raise it for clients that pause."""
    idle_connection_timeout_s: Seconds = 120.0
    """How long a connection may be idle between two requests. It must be longer than that of the
    load balancer in front, which otherwise sends requests into closing connections."""
    drain_timeout_s: Seconds = 30.0
    """How long running streams may take to end after SIGTERM or Ctrl-C. Raise it, with the
    orchestrator's own limit, to let long answers end."""


class RequestSize(Group):
    """What one request may ask for"""

    max_request_size_mb: Annotated[float, Field(gt=0, le=1024)] | None = None
    """Body of one request; a larger one gets 413. Without it: 2, and 10 with `MODEL_PATH`. Raise it
    for long prompts and many tools."""
    max_output_tokens: Tokens | None = None
    """`max_tokens` of one choice; the default is cut to it. Set it to bound what a request may
    cost."""
    max_output_tokens_exceeded: Literal["refuse", "clamp"] | None = None
    """What becomes of a request whose `max_tokens` is over this limit, over the model's in
    models.yaml, or over what the prompt leaves of the context: 400, or with `clamp` an answer
    within the limit, and the header `x-max-tokens-clamped`. Without it: `clamp` for `/v1/messages`
    and `/v1/responses`, whose clients ask for much without looking, `refuse` elsewhere. Choose
    `clamp` where callers of other routes do so, too."""
    unreadable_result_images: Literal["describe", "refuse"] = "describe"
    """What becomes of an image in a tool's result, for a model that reads no images: a sentence in
    its place, or 400. Agents keep results in every later request, so `refuse` ends their session.
    Choose it where an answer that has not seen the image is worse."""
    max_prompt_tokens: Tokens | None = None
    """Tokens of each prompt, as the tokenizer counts them. Set it to bound what a request may
    cost."""
    max_choices: AtMost = 128
    """Prompts times candidates of one request. Raise it for batches of prompts."""
    max_priority: Priority | None = None
    """The highest priority that a request gets, of a caller without a ceiling of its own. Higher
    numbers go first. Without it: 0; where there are no keys, the highest of `PRIORITY_WORDS`. Raise
    it where callers with keys may rank their own requests."""
    priority_words: Annotated[dict[str, Priority], NoDecode, BeforeValidator(_pairs)] = WORDS
    """What words in `metadata.priority` stand for: pairs such as `high=10`, separated by commas.
    Higher numbers go first. A pair for one of OpenAI's `flex`, `priority` or `scale` makes it a
    `service_tier` that callers may ask for. Set it for words and tiers of your own."""
