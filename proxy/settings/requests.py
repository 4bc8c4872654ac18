"""What requests and answers are like, how many may run, and how long they may take."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import NoDecode

from proxy.settings.group import AtMost, Group, Seconds, Tokens, Words

ControlTokens = Literal["plain", "special"]
ReasoningField = Literal["reasoning", "reasoning_content"]
REASONING_FIELDS: tuple[ReasoningField, ...] = ("reasoning", "reasoning_content")


class Answers(Group):
    """What an answer is like"""

    default_max_tokens: Tokens | None = None
    """`max_tokens` of a request that gives none and whose model has no default in models.yaml.
    `build` writes it into the tokenizer model, so set it where Triton's models are built.
    Without it: what the context leaves for chats, 16 for completions."""
    default_temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """Temperature of a request that gives none and whose model has no default in models.yaml.
    Without it: the engine's own, 1."""
    reasoning_fields: Annotated[tuple[ReasoningField, ...], NoDecode, Words] = REASONING_FIELDS
    """Names under which a chat answer's reasoning is sent, separated by commas."""
    callers_control_tokens: ControlTokens = "plain"
    """What a control token such as `<|im_start|>` is in a caller's text: `plain` text, or a
    `special` token, with which a caller can forge any turn. See docs/security.md."""
    report_cached_tokens: bool = True
    """Whether `usage` has `cached_tokens`, which show a caller what others have sent."""
    isolate_prefix_caches: bool = False
    """Whether each tenant gets cached prefixes of its own; without keys, or with one `API_KEY` for
    all, each address."""


class Concurrency(Group):
    """How much may run at once"""

    max_concurrent_requests: Annotated[int, Field(ge=1)] | None = None
    """Generations at once, over all models; each choice of each prompt is one. One more gets 429 at
    once. Without it: no limit, but 10 with `MODEL_PATH`."""
    generations_per_row: AtMost = 16
    """Generations at once of one model, for each row that its engine decodes at a time. A choice
    with `top_logprobs` counts for up to six. Where streams wait in the fair queue, its bounds hold
    instead, and this is the most that one request may ask for."""
    max_tokenizer_requests: AtMost = 32
    """Calls of `/tokenize`, `/detokenize`, `/render` and of nvext's annotations at once."""
    max_socket_requests: Annotated[int, Field(ge=1)] = 8
    """Requests at once on one WebSocket."""
    max_bodies_mb: Annotated[float, Field(gt=0, le=65_536)] = 48.0
    """Request bodies that one process receives at the same time. Beyond it the oldest unfinished
    one gets 429."""
    max_held_log_probs: Annotated[int, Field(ge=1)] = 1_000_000
    """Log-probabilities that one process holds for all answers that are not streamed."""
    sandbox_processes: Annotated[int, Field(ge=1, le=64)] = 2
    """Child processes that examine schemas and grammars, check answers and render long chats. Each
    caller has one call at a time."""
    sandbox_cpu_s: Annotated[float, Field(gt=0, le=600)] = 2.0
    """CPU time of one such call."""
    sandbox_memory_mb: Annotated[int, Field(ge=64, le=65_536)] = 512
    """Memory of one such call."""


class Times(Group):
    """Time limits"""

    request_timeout_s: Seconds = 600.0
    """How long a generation may take as a whole; then 504 `deadline_exceeded`."""
    stall_timeout_s: Seconds = 120.0
    """How long an engine may send nothing for a request, its wait in the queue included; then 504
    `engine_stalled`."""
    max_resends: Annotated[int, Field(ge=0, le=10)] = 2
    """How often a request that has no token yet is sent again if Triton dies; 0: it fails at
    once."""
    keep_alive_s: Seconds = 15.0
    """A silent stream of server-sent events gets a comment this often."""
    request_body_timeout_s: Seconds = 60.0
    """From a request's head to the end of its body; then 408."""
    slow_sender_timeout_s: Seconds = 60.0
    """For a request's head, and between two pieces of its body; then 408."""
    slow_reader_timeout_s: Seconds = 30.0
    """A client that does not read for so long is disconnected, and its row in the engine freed."""
    idle_connection_timeout_s: Seconds = 120.0
    """How long a connection may be idle between two requests. It must be longer than that of the
    load balancer in front, which otherwise sends requests into closing connections."""
    drain_timeout_s: Seconds = 30.0
    """How long running streams may take to end after SIGTERM or Ctrl-C."""


class RequestSize(Group):
    """What one request may ask for"""

    max_request_size_mb: Annotated[float, Field(gt=0, le=1024)] = 2.0
    """Body of one request; a larger one gets 413."""
    max_json_values: AtMost = 200_000
    """List items and object members in one body."""
    max_json_depth: Annotated[int, Field(ge=4, le=150)] = 100
    """How deep arrays and objects of a body may be nested."""
    max_output_tokens: Tokens | None = None
    """`max_tokens` of one choice; the default is cut to it."""
    max_prompt_tokens: Tokens | None = None
    """Tokens of each prompt, as the tokenizer counts them."""
    max_n: AtMost | None = None
    """`n` of one request. `MAX_CHOICES` holds as well."""
    max_best_of: AtMost | None = None
    """`best_of` of one request. `MAX_CHOICES` holds as well."""
    max_choices: AtMost = 128
    """Prompts times candidates of one request."""
    max_messages: AtMost = 2048
    """Messages of one chat."""
    max_stops: AtMost = 16
    """Stop strings, and stop token ids."""
    max_stop_bytes: AtMost = 4096
    """All stop strings together, in UTF-8."""
    max_logit_bias: AtMost = 1024
    """Entries of `logit_bias`, and bad words."""
    max_allowed_token_ids: AtMost = 16_384
    """Entries of `allowed_token_ids`."""
    max_priority: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] = 0
    """The highest priority that a request gets, of a caller without a ceiling of its own. Higher
    numbers go first."""
    max_copied_mb: Annotated[float, Field(gt=0, le=4096)] = 16.0
    """Prompt and guide, times the number of choices."""
    max_log_probs: AtMost = 250_000
    """Choices times tokens times (1 + `top_logprobs`) of an answer that is not streamed. Without
    `max_tokens` the answer ends there."""


class SchemaSize(Group):
    """Tools, schemas and grammars of one request"""

    max_tools: AtMost = 128
    """Tools of one request."""
    max_tools_bytes: AtMost = 256_000
    """All tools together, as JSON."""
    max_schema_bytes: AtMost = 256_000
    """One JSON Schema, or one structural tag."""
    max_schema_depth: Annotated[int, Field(ge=1, le=128)] = 64
    """Levels of JSON in one schema; twice as many in a structural tag."""
    max_schema_properties: AtMost = 5_000
    """Properties in one schema."""
    max_grammar_bytes: AtMost = 256_000
    """One grammar, in EBNF or Lark's syntax."""
    max_regex_bytes: AtMost = 16_384
    """One regular expression."""
    max_guided_choices: AtMost = 1_024
    """Texts in one list of choices."""
    max_guided_choices_bytes: AtMost = 65_536
    """All texts of such a list together."""
