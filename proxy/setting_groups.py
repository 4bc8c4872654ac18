"""The fields of the settings, by subject: name, type, default, and one sentence for the operator.

`settings.Settings` inherits all of them, and docs/configuration.md has a table of each group. A
name's ending is its unit: `_s`, `_ms`, `_mb`, `_bytes`, `_tokens`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FilePath, SecretStr, field_serializer
from pydantic_settings import NoDecode

from triton_openai.build_engines.section import ModelName

Port = Annotated[int, Field(ge=1, le=65535)]
AtMost = Annotated[int, Field(ge=1, le=1_000_000)]
Tokens = Annotated[int, Field(ge=1, le=2**31 - 1)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]

ControlTokens = Literal["plain", "special"]
CpuScheduling = Literal["auto", "batch", "normal"]
ReasoningField = Literal["reasoning", "reasoning_content"]
REASONING_FIELDS: tuple[ReasoningField, ...] = ("reasoning", "reasoning_content")


class Group(BaseModel):
    """A group's docstring is the heading of its table; the text below a field describes it."""

    model_config = ConfigDict(defer_build=True)


class Listening(Group):
    """Where the proxy listens"""

    server_host: str | None = None
    """Another name of `HOST`. If both are set, they must agree."""
    server_port: Port | None = None
    """Another name of `PORT`. If both are set, they must agree."""
    host: str = "127.0.0.1"
    """Address on which the proxy listens. Any but a loopback address needs keys (docs/access.md),
    or `AUTH=off`."""
    port: Port = 9000
    """TCP port of the proxy."""
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes of the proxy. They share one socket, one limit of requests and one `/metrics`."""
    cpu_scheduling: CpuScheduling = "auto"
    """Linux scheduling policy of all processes. `batch`: a process that wakes up does not take the
    core from one that runs. `auto` is `batch` on four cores or fewer, else `normal`."""
    cors_origins: Annotated[tuple[str, ...], NoDecode] = ()
    """Origins whose pages may call the API from a browser, separated by commas; `*` allows all."""
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """Public names of this server, separated by commas; `*` allows all. A request whose `Host` is
    not among them gets 421. IP addresses and names without public DNS (`localhost`, `proxy`,
    `x.svc`) are always allowed."""


class TritonServer(Group):
    """The tritonserver that is started here, or the remote one"""

    triton_url: str | None = None
    """Address of a remote Triton for `triton-openai proxy`: `grpc://host:port`, or `grpcs://` for
    TLS. Without it: `TRITON_GRPC_PORT` of this machine."""
    triton_ca_file: FilePath | None = None
    """PEM file with the certificate authorities to trust for `grpcs://`. Without it: the
    system's."""
    triton_secret: SecretStr | None = None
    """Value that opens Triton's administrative calls: 16 to 256 letters, digits, `-` and `_`. A
    proxy in another process needs the same value. Without it: a new one for each start."""
    triton_transport: Literal["lean", "grpc"] = "lean"
    """What reads token streams: `lean` is our own HTTP/2 reader, `grpc` is grpc.aio. All other
    calls use grpc.aio."""
    triton_connection_age_s: Seconds | None = None
    """After this time a new connection to Triton takes over, so that servers which were added
    behind one address get work. The old one ends with its last stream. Without it: never. Needs
    `TRITON_TRANSPORT=lean`."""
    triton_host: Literal["127.0.0.1", "0.0.0.0"] = "127.0.0.1"
    """Address on which the tritonserver that is started here listens. Triton has no access control:
    use `0.0.0.0` in a container only."""
    triton_grpc_port: Port = 8001
    """gRPC port of the tritonserver that is started here."""
    triton_http_port: Port | None = None
    """HTTP port of that tritonserver, on loopback only and behind `TRITON_SECRET`. Without it
    HTTP is off."""
    triton_metrics_port: Port = 8002
    """Port of that tritonserver's Prometheus metrics."""
    triton_start_timeout_s: Seconds = 120.0
    """How long a start waits until every model is loaded."""


class ModelSource(Group):
    """Models and files"""

    models_file: Path = Path("models.yaml")
    """The file that names the models."""
    model_path: Path | None = None
    """One model folder to serve instead of a models file; `MODELS_FILE` may not be set with it."""
    model_id: ModelName | None = None
    """Public name of the model of `MODEL_PATH`. Without it: architecture and size, as the path, the
    graph's file name or the config have them, such as `phi-3.5-mini`."""
    artifacts_dir: Path = Path("artifacts")
    """Where `build` writes. If the default folder belongs to another user, what you may not write
    goes to `~/.local/share/triton-openai` (`XDG_DATA_HOME`)."""


class Packages(Group):
    """Packages that are installed when first needed"""

    install_packages: Literal["on_demand", "never"] = "on_demand"
    """Whether a build of another model than the demo may install torch, transformers and the others
    that it needs, and a quantization its own environment; `never` makes such a build fail with what
    to do."""
    torch_index_url: str | None = None
    """Another package index for torch, such as PyTorch's own with its small CPU build."""


class Answers(Group):
    """What an answer is like"""

    default_max_tokens: Tokens | None = None
    """`max_tokens` of a request that gives none and whose model has no default in models.yaml.
    `build` writes it into the tokenizer model, so set it where Triton's models are built.
    Without it: what the context leaves for chats, 16 for completions."""
    default_temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """Temperature of a request that gives none and whose model has no default in models.yaml.
    Without it: the engine's own, 1."""
    reasoning_fields: Annotated[tuple[ReasoningField, ...], NoDecode] = REASONING_FIELDS
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
    with `top_logprobs` counts for up to six."""
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


class CallersLimits(Group):
    """Limits of tenants and keys"""

    ledger_url: SecretStr | None = None
    """Redis or Valkey that several hosts share for limits: `redis://`, `rediss://` or `unix://`.
    Without it: each host has limits of its own, which its workers share."""
    ledger_outage: Literal["share", "closed", "open"] = "share"
    """What happens while it cannot be reached. `share`: each proxy grants its part of every limit;
    `closed`: limited callers get 503; `open`: nothing is limited."""
    ledger_timeout_ms: Annotated[float, Field(ge=1, le=60_000)] = 250.0
    """How long it may take to answer before it counts as out of reach."""
    reserved_output_tokens: Tokens = 4096
    """The most output tokens of a choice without `max_tokens`, of a caller whose tokens or budget
    are limited; and at most a quarter of the lowest such limit."""
    cached_token_weight: Annotated[float, Field(ge=0, le=1)] = 1.0
    """What a cached prompt token counts in limits on tokens. Budgets in money use `price`."""


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
    """The highest priority that a caller may ask for."""
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


class Storage(Group):
    """Storage of tenants, keys, usage and the audit log"""

    store_url: SecretStr | None = None
    """Database, with `KEY_PEPPER`: `sqlite:///relative/path`, `sqlite:////absolute/path` or
    `postgresql://user:password@host/database`. Without it: `store.db` in `ARTIFACTS_DIR` if that
    is set, else in `~/.local/share/triton-openai` (`XDG_DATA_HOME`)."""
    old_key_peppers: SecretStr | None = None
    """Earlier values of `KEY_PEPPER`, separated by commas. They only verify older entries of the
    audit log; keys made with them are not accepted."""

    @field_serializer("store_url", "old_key_peppers", when_used="json")
    def _for_workers(self, secret: SecretStr | None) -> str | None:
        """Settings travel as JSON over the pipe between the launcher and its workers only."""
        return None if secret is None else secret.get_secret_value()


class Logs(Group):
    """Logs"""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lines below this level are not written."""
    log_format: Literal["auto", "json", "text"] = "auto"
    """`auto` is `text` on a terminal, else `json`."""
    loop_lag_warn_ms: Annotated[float, Field(ge=1, le=60_000)] = 50.0
    """If the event loop is late by more than this, a log line names the request that caused it."""
