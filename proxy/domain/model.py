"""What the proxy knows of a model: policy from models.yaml, facts from Triton."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from enum import Enum

from proxy.domain.constraint import GuideKind
from proxy.domain.endpoints import DEFAULT_POOL
from proxy.domain.request import Sampling
from proxy.domain.request_limits import RequestLimits
from proxy.domain.server_tools import ServerTools


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """Both dates begin at midnight in UTC. None: no date is set.

    deprecated: callers should use another model from then on. sunset: the model may be gone then.
    link: the URL of a page about both.
    """

    deprecated: date | None = None
    sunset: date | None = None
    link: str | None = None

    @property
    def first_day(self) -> date | None:
        """From then on callers should use another model; None: no date is set."""
        return self.deprecated or self.sunset

    def is_deprecated(self, today: date) -> bool:
        """Whether callers should use another model already."""
        return self.first_day is not None and self.first_day <= today


NO_END = Lifecycle()


NANOS = 1_000_000_000  # in a unit of the currency


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """In any currency, for a million tokens. cached_input: of the prompt, where the engine had them
    computed already.
    """

    input: float = 0.0
    cached_input: float = 0.0
    output: float = 0.0

    def nanos(self, *, prompt_tokens: int, cached_tokens: int, output_tokens: int) -> int:
        """Billionths of the currency, rounded up. prompt_tokens includes cached_tokens."""
        millionths = (
            (prompt_tokens - cached_tokens) * self.input
            + cached_tokens * self.cached_input
            + output_tokens * self.output
        )
        return -int(-millionths * 1000 // 1)


FREE = Price()


USUAL_ROWS = 64  # of a model that does not say how many it has

# What a model may be able to take, by the names of our own fields. log_probs are the tokens' own,
# top_log_probs also those of alternatives. limits: the operator's, see RequestLimits. resume: it
# continues an answer that another engine began, token for token. special_text: answers have the
# text of special tokens where the request wants it. scores: of two texts. tokenizer_salt: its
# tokenizer knows cache_salt, too.
CAPABILITIES = frozenset(
    {
        *(one.name for one in fields(Sampling)),
        "max_tokens",
        "log_probs",
        "constraint",
        "prompt_limit",
        "prompt_token_ids",
        "special_text",
        "echo_prompt",
        "token_ids",
        "log_prob_ids",
        "priority",
        "cache_salt",
        "tokenizer_salt",
        "lora",
        "plain_spans",
        "images",
        "embeddings",
        "scores",
        "limits",
        "queue_time",
        "engine_times",
        "deadline",
        "resume",
        "receipt",
        "prompt_blocks",
    }
)


class Kind(str, Enum):
    """Whose tensors a Triton model has: see triton.dialects."""

    OWN = "own"
    VLLM = "vllm"
    LLMAPI = "llmapi"
    CPP = "tensorrtllm_ensemble"
    TEXT = "text"
    EMBEDDING = "embedding"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTensors:
    """What an operator says of the tensors of a model of kind TEXT. inputs: field -> tensor.

    is_cumulative: each response repeats the text so far. repeats_prompt: the text begins with the
    prompt.
    """

    prompt: str
    text: str
    inputs: Mapping[str, str] = field(default_factory=dict, hash=False)
    is_cumulative: bool = False
    repeats_prompt: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """A Triton model that others built, or our embedding model, which is no ensemble either.

    inputs, outputs: name -> datatype, as Triton reports them.
    has_batches: shapes begin with the batch's size. is_decoupled: it may respond more than once.
    is_cumulative: a BLS model whose responses repeat the text so far.
    stopped_by: the Triton model that takes a stop for its requests; None: their calls are
    cancelled. tokenizer (its folder), tensors, continues, shares_prefixes: what models.yaml says;
    continues: ids, text or none.
    """

    kind: Kind
    inputs: Mapping[str, str] = field(hash=False)
    outputs: Mapping[str, str] = field(hash=False)
    has_batches: bool
    is_decoupled: bool
    is_cumulative: bool = False
    stopped_by: str | None = None
    tokenizer: str | None = None
    tensors: TextTensors | None = None
    continues: str = "ids"
    shares_prefixes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooling:
    """What a model that makes one vector of a text, or one score of two texts, declares.

    width: numbers of a vector. dimensions: of the shorter vectors that it was trained for.
    """

    is_cross_encoder: bool
    width: int
    dimensions: tuple[int, ...] = ()


ASSUMED_CONTEXT = 32_768  # tokens, of a model that nobody has said the context of


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """From the Triton config parameters of the ensemble. Lengths in tokens.

    end_ids: the tokens that end an answer. default_max_tokens: new ones where nobody says how many;
    None for what the context leaves. runtime: what decodes, as Triton or we call it.
    guide_kinds: those that the tokenizer accepts; models.yaml may disable some.
    tool_template: for chats with tools, in place of chat_template, where a model has both.
    response_template: the JSON in which the checkpoint says how its answers are read.
    infilling: special tokens before a prefix, before a suffix, and before what comes between.
    special_tokens: text by id of the tokens that the detokenizer has no bytes for.
    added_marks: further tokens that its tokenizer finds before all others, and look like marks.
    adapters: names of its LoRA adapters. rows: requests that its engine decodes at once; says_rows:
    whether the engine said so, since `rows` has a usual value otherwise.
    has_leases: its engine ends the streams of a proxy that died, see triton.streams.leases.
    says_context: whether context_length is known. adopted: None for an ensemble of ours.
    pooling: None for a model that generates.
    """

    context_length: int
    chat_template: str | None
    bos_token: str
    eos_token: str
    strips_leading_space: bool
    created: int
    vocab_size: int
    engine_model: str
    tokenizer_model: str
    detokenizer_model: str
    end_ids: tuple[int, ...] = ()
    default_max_tokens: int | None = None
    runtime: str = "onnx"
    guide_kinds: tuple[GuideKind, ...] = tuple(GuideKind)
    tool_template: str | None = None
    response_template: str | None = None
    infilling: tuple[str, str, str] | None = None
    special_tokens: Mapping[int, bytes] = field(default_factory=dict, hash=False)
    adapters: tuple[str, ...] = ()
    rows: int = USUAL_ROWS
    says_rows: bool = False
    added_marks: tuple[str, ...] = ()
    has_leases: bool = False
    says_context: bool = True
    adopted: Adopted | None = None
    pooling: Pooling | None = None

    @property
    def has_our_grammars(self) -> bool:
        """Whether its engine gets grammars of ours, and does not compile JSON schemas itself."""
        return self.adopted is None and self.runtime in ("onnx", "vllm", "scripted")

    @property
    def kind(self) -> Kind:
        return Kind.OWN if self.adopted is None else self.adopted.kind

    @property
    def has_structural_tags(self) -> bool:
        return GuideKind.STRUCTURAL_TAG in self.guide_kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """An ensemble that Triton has loaded, under Triton's name for it. pool: of that Triton.

    versions: of the Triton model, that are ready.
    """

    name: str
    facts: ModelFacts
    capabilities: frozenset[str] = CAPABILITIES
    pool: str = DEFAULT_POOL
    versions: frozenset[int] = frozenset({1})

    @property
    def triton_models(self) -> frozenset[str]:
        """The Triton models that it consists of."""
        facts = self.facts
        parts = (facts.engine_model, facts.tokenizer_model, facts.detokenizer_model)
        return frozenset((self.name, *parts))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelCard:
    """One served model. `triton_model` is the ensemble's name, in `pool`. Cards are compared by
    identity, because they are looked up for every request.

    deployment: the one of the public model that this is. version: of the Triton model; None for the
    one that Triton's version policy serves.

    parent: the model that this one is a LoRA adapter of, whose ensemble serves it by its own name.

    takes_template_values: callers may set variables that its chat template reads.
    takes_templates: and a chat template of their own, in its place. tool_parser,
    reasoning_parser: a family's name, "auto" to find it from the chat template, "none".
    max_retries: so often an answer that does not conform is generated anew. streams_unchecked: a
    stream goes out before its answer is known to conform. protects_control_tokens: those that
    callers' texts spell stay plain text. limits: what one request may ask for. loaded: the facts
    without what models.yaml adds, if they differ; the pools know the build by them.
    """

    name: str
    triton_model: str
    facts: ModelFacts
    parent: str | None = None
    capabilities: frozenset[str] = CAPABILITIES
    takes_template_values: bool = True
    takes_templates: bool = False
    tool_parser: str = "auto"
    reasoning_parser: str = "auto"
    max_retries: int = 2
    streams_unchecked: bool = False
    protects_control_tokens: bool = True
    owned_by: str = "system"
    sampling: Sampling = field(default_factory=Sampling)
    server_tools: ServerTools = field(default_factory=ServerTools)
    limits: RequestLimits = field(default_factory=RequestLimits)
    price: Price = FREE
    pool: str = DEFAULT_POOL
    deployment: str = "default"
    version: int | None = None
    lifecycle: Lifecycle = NO_END
    loaded: ModelFacts | None = None

    @property
    def missing_capabilities(self) -> frozenset[str]:
        return CAPABILITIES - self.capabilities

    def is_same_build(self, other: ModelCard) -> bool:
        """Whether both have the same facts, whatever models.yaml says of them."""
        return (self.pool, self.triton_model, self.parent, self.facts, self.capabilities) == (
            other.pool,
            other.triton_model,
            other.parent,
            other.facts,
            other.capabilities,
        )
