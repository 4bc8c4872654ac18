"""`models.yaml`: which models are served, and how.

`build` reads weights and runtime; the proxy's registry reads names and default sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from build_engines.deployments import Deployments, ShadowEntry, Where, deployment_problems
from build_engines.gpu import refusals
from build_engines.gpu.legacy import refusals as legacy_refusals
from build_engines.gpu.options import GpuOptions, PlanOptions
from build_engines.gpu.refusals import Refusal
from build_engines.models_yaml import UNKNOWN, MarkedYaml, unknown_first, unknown_key
from build_engines.pool_entry import MAX_POOLS, PoolEntry, PoolName
from build_engines.section import HttpUrlText, LocalPath, ModelName, Section, base_of
from build_engines.server_tool_entry import ServerToolEntry, ToolName
from build_engines.vllm import arguments as vllm_arguments
from build_engines.vllm.options import VllmOptions
from build_engines.weights import WeightsField

Precision = Literal["fp32", "int8", "int4"]


class OnnxOptions(Section):
    """How the CPU runtime serves the model. Defaults depend on the machine.

    precision: of a Hugging Face folder's weights. None: int8 for models under a billion parameters,
    and for larger ones where the machine's memory allows it; else int4.
    max_rows: requests decoded at once. max_step_tokens: prompt tokens prefilled per step.
    prefill_stall_ms: the longest pause that one prefill step may cause in running streams.
    kv_cache_mb: memory for the keys and values of all rows and of cached prefixes.
    exact_resume_tokens: up to so many tokens of an answer that another engine began are computed
    again as decoding computes them, one a step, so that fp32 models continue it bit for bit.
    Longer ones are prefilled, which is faster, and differs in the last bits of the logits.
    """

    precision: Precision | None = None
    threads: Annotated[int, Field(ge=1, le=256)] | None = None
    max_rows: Annotated[int, Field(ge=1, le=1024)] | None = None
    max_step_tokens: Annotated[int, Field(ge=16, le=65_536)] = 512
    prefill_stall_ms: Annotated[float, Field(gt=0, le=60_000)] | None = None
    kv_cache_mb: Annotated[int, Field(ge=1)] | None = None
    exact_resume_tokens: Annotated[int, Field(ge=0, le=1_000_000)] = 512


Text = Annotated[str, Field(min_length=1)]


class ScriptedOptions(Section):
    """Scripted text instead of a model's, at a given pace; for tests and benchmarks.

    text: the answer to every prompt. after: other answers, by the words at the prompt's end.
    repeats: the text starts again until the token limit; otherwise the answer ends.
    step_tokens: tokens per stream and step. step_ms: time between steps of all streams; 0: a
    stream's next step follows once its last one has been sent.
    log_prob: of each token. fails_after: the engine fails after this many tokens. dies_after: the
    engine's process dies after this many tokens.
    """

    text: Text
    after: dict[Text, Text] = Field(default_factory=dict)
    repeats: bool = False
    step_tokens: Annotated[int, Field(ge=1, le=1024)] = 1
    step_ms: Annotated[float, Field(ge=0, le=60_000)] = 0.0
    log_prob: Annotated[float, Field(le=0)] = -0.5
    fails_after: Annotated[int, Field(ge=1)] | None = None
    dies_after: Annotated[int, Field(ge=0)] | None = None


PerMillion = Annotated[float, Field(ge=0, le=1_000_000)]


class PriceEntry(Section):
    """What a million tokens cost, in any currency: budgets of tenants and keys are in the same.

    cached_input: prompt tokens that the engine took from its cache; default: input.
    """

    input: PerMillion
    cached_input: PerMillion | None = None
    output: PerMillion


CHAT_MAX_TOKENS, CHAT_TEMPERATURE = 1024, 0.7
# Options that an entry with `profile: chat` need not set.
CHAT_PROFILE: dict[str, Any] = {
    "context_length": 8192,
    "sampling": {"max_tokens": CHAT_MAX_TOKENS, "temperature": CHAT_TEMPERATURE},
    "limits": {"timeout_s": 60},
}
# The default of sampling.max_tokens on GPUs. guaranteed_no_evict reserves the KV cache of all
# max_tokens of a request, so a default of all that the context leaves would admit few at once.
GPU_MAX_TOKENS = 4096
GuideKind = Literal["json", "json_schema", "regex", "ebnf_grammar", "structural_tag"]


class ModelsFileError(ValueError):
    """models.yaml is missing or invalid; the message names file, line and value."""


class SamplingDefaults(Section):
    """Sampling parameters for requests that do not set them."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None

    def or_else(self, temperature: float | None, max_tokens: int | None) -> SamplingDefaults:
        """These defaults, completed by the given values."""
        given = {"temperature": temperature, "max_tokens": max_tokens}
        missing = {name: value for name, value in given.items() if getattr(self, name) is None}
        return self.model_copy(update=missing)


class LimitsEntry(Section):
    """Limits of one request; a larger request is refused. The settings may be lower.

    max_tokens: per choice; cuts the default, too. prompt_tokens: per prompt. timeout_s: of a
    generation, in seconds.
    """

    max_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    best_of: Annotated[int, Field(ge=1)] | None = None
    prompt_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    timeout_s: Annotated[float, Field(gt=0, le=86_400)] | None = None


def _template(given: bool | str, info: ValidationInfo) -> bool | str:
    """The text of the file that is named."""
    if isinstance(given, bool):
        return given
    file = base_of(info) / Path(given).expanduser()
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"cannot read {file}: {reason}") from error


class ModelEntry(Section):
    """Fields of every model, which the proxy reads."""

    aliases: tuple[ModelName, ...] = ()
    owned_by: str = "system"
    chat_template_kwargs: bool = True  # callers may set the template's variables
    # the text of the file that replaces the model's own; true: callers may send one, a program
    chat_template: Annotated[bool | str, AfterValidator(_template)] = False
    # control tokens in callers' texts: plain text, or special; default: CALLERS_CONTROL_TOKENS
    callers_control_tokens: Literal["plain", "special"] | None = None
    tool_parser: str = "auto"  # a family's name; auto: derived from the chat template; none
    reasoning_parser: str = "auto"
    server_tools: dict[ToolName, ServerToolEntry] = Field(default_factory=dict)  # run by the proxy
    max_tool_rounds: Annotated[int, Field(ge=1, le=100)] = 5  # rounds of calls that the proxy runs
    max_tool_seconds: Annotated[float, Field(gt=0, le=3600)] = 60.0  # of running them
    # retries of an answer that fails a check which no grammar can enforce
    max_retries: Annotated[int, Field(ge=0, le=10)] = 2
    stream_mode: Literal["buffered", "optimistic"] = (
        "buffered"  # False: answers are checked before they are sent
    )
    sampling: SamplingDefaults = SamplingDefaults()
    limits: LimitsEntry = LimitsEntry()
    price: PriceEntry | None = None  # without it: free
    deployments: Deployments = ()  # without any: the pool `default`, the Triton model of this name
    sticky: Literal["none", "user", "conversation"] = "none"  # who keeps a deployment
    shadow: ShadowEntry | None = None
    deprecated: date | None = None  # from its midnight in UTC, as sunset
    sunset: date | None = None
    lifecycle_link: HttpUrlText | None = None  # a page about the deprecation
    fallback: ModelName | None = None  # the model that answers while no deployment is available


class BuiltEntry(ModelEntry):
    """Fields of every runtime that `build` builds. Relative folders are relative to models.yaml."""

    weights: WeightsField
    profile: Literal["chat"] | None = None  # defaults of options: see CHAT_PROFILE
    context_length: Annotated[int, Field(ge=16)] | None = None
    hold_ms: Annotated[float, Field(ge=0, le=1000)] = (
        25.0  # the longest that a token waits to be sent, unless Triton cannot carry more responses
    )
    # requests waiting for a row, more get 429; default: 16 per row, from 256 to 4,096
    max_queue: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    # kinds of guides that callers may not use; json is a schema for any JSON
    disabled_guides: tuple[GuideKind, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _of_profile(cls, given: Any) -> Any:
        if not isinstance(given, dict) or given.get("profile") != "chat":
            return given
        found = {**CHAT_PROFILE, **given}
        for name in ("sampling", "limits"):
            if isinstance(found[name], dict):
                found[name] = {**CHAT_PROFILE[name], **found[name]}
        return found

    @property
    def default_max_tokens(self) -> int | None:
        """New tokens of a request without max_tokens; None: all that the context leaves."""
        return self.sampling.max_tokens

    @property
    def adapter_names(self) -> tuple[str, ...]:
        """The LoRA adapters, in the order of models.yaml."""
        return ()


class OnnxEntry(BuiltEntry):
    """A model on the CPU. Weights: a Hugging Face folder, one of onnxruntime-genai's builder, or a
    GGUF file.
    """

    runtime: Literal["onnx"] = "onnx"
    onnx: OnnxOptions = OnnxOptions()


class ScriptedEntry(BuiltEntry):
    """Scripted answers for tests and benchmarks. Only the tokenizer of `weights` is used."""

    runtime: Literal["scripted"]
    scripted: ScriptedOptions


class EmbeddingOptions(Section):
    """How an embedding model or a cross-encoder is read and served. None: as its own files say.

    file: the ONNX graph, or a static model's table of vectors (safetensors). tokenizer: its
    tokenizer.json. pooling: of a text's token vectors. normalize: vectors have the length 1.
    dimensions: of the shorter vectors that the model was trained for (Matryoshka). threads: of the
    graph; default: one per core.
    """

    file: Text | None = None
    tokenizer: Text = "tokenizer.json"
    pooling: Literal["mean", "cls"] | None = None
    normalize: bool | None = None
    dimensions: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = ()
    threads: Annotated[int, Field(ge=1, le=256)] | None = None


OF_ANSWERS = frozenset(ModelEntry.model_fields) & {
    *("chat_template", "chat_template_kwargs", "callers_control_tokens", "tool_parser"),
    *("reasoning_parser", "server_tools", "max_tool_rounds", "max_tool_seconds"),
    *("max_retries", "stream_mode", "sampling"),
}


class EmbeddingEntry(ModelEntry):
    """A model that embeds texts or scores pairs of them, on the CPU. Weights: a folder with an ONNX
    graph of a BERT-like model, or with a static model's table.
    """

    runtime: Literal["embedding"]
    weights: WeightsField
    context_length: Annotated[int, Field(ge=1)] | None = None  # may only lower the model's own
    max_queue: Annotated[int, Field(ge=1, le=1_000_000)] = 1_024  # waiting calls, more get 429
    embedding: EmbeddingOptions = EmbeddingOptions()

    @model_validator(mode="after")
    def _answers_nothing(self) -> EmbeddingEntry:
        if given := sorted(self.model_fields_set & OF_ANSWERS):
            error = PydanticCustomError("embedding", "a model that embeds has no answers")
            where = InitErrorDetails(type=error, loc=(given[0],), input=None)
            raise ValidationError.from_exception_data("embedding", [where])
        return self


class GpuEntry(BuiltEntry):
    """A model on NVIDIA GPUs. Weights: a Hugging Face folder."""

    runtime: Literal["tensorrt_llm", "tensorrtllm"]
    gpu: GpuOptions = GpuOptions()

    @property
    def default_max_tokens(self) -> int:
        return self.sampling.max_tokens or GPU_MAX_TOKENS

    @property
    def adapter_names(self) -> tuple[str, ...]:
        return () if self.gpu.lora is None else tuple(self.gpu.lora.adapters)

    @model_validator(mode="after")
    def _goes_together(self) -> GpuEntry:
        options = self.gpu
        wrong = [*refusals.refusals(options), *legacy_refusals.refusals(options), *self._refusals()]
        if wrong:
            raise ValidationError.from_exception_data("gpu", [_details(each) for each in wrong])
        return self

    def _refusals(self) -> list[Refusal]:
        longest = self.gpu.max_seq_len
        if longest is not None and (self.context_length or 0) > longest:
            reason = f"context_length is {self.context_length}: the engine cannot be shorter"
            return [Refusal(where=("max_seq_len",), reason=reason)]
        return []


class TensorrtLlmEntry(GpuEntry):
    """TensorRT-LLM's LLM API in Triton's Python backend."""

    runtime: Literal["tensorrt_llm"]


class TensorrtllmEntry(GpuEntry):
    """NVIDIA's C++ `tensorrtllm` backend with an engine plan."""

    runtime: Literal["tensorrtllm"]
    gpu: PlanOptions = PlanOptions()


class VllmEntry(BuiltEntry):
    """A model on vLLM, on NVIDIA GPUs or a CPU. Weights: a Hugging Face folder."""

    runtime: Literal["vllm"]
    vllm: VllmOptions = VllmOptions()

    @property
    def adapter_names(self) -> tuple[str, ...]:
        return () if self.vllm.lora is None else tuple(self.vllm.lora.adapters)

    @model_validator(mode="after")
    def _arguments_are_allowed(self) -> VllmEntry:
        wrong = [
            _details(
                Refusal(where=("engine_args", *filter(None, place.split("."))), reason=why),
                section="vllm",
            )
            for place, why in vllm_arguments.refused(self.vllm.engine_args)
        ]
        if wrong:
            raise ValidationError.from_exception_data("vllm", wrong)
        return self


Parameter = Literal[
    "allowed_token_ids",
    "bad_words",
    "frequency_penalty",
    "ignore_eos",
    "max_tokens",
    "min_p",
    "min_tokens",
    "presence_penalty",
    "repetition_penalty",
    "seed",
    "stop_token_ids",
    "temperature",
    "top_k",
    "top_p",
]


class TensorsEntry(Section):
    """The tensors of a model that has a text in and a text out, and no other fingerprint.

    prompt, text: the input and the output. inputs: parameter -> the tensor that takes it; requests
    that use another one are refused. cumulative: each response repeats the text so far.
    repeats_prompt: the answer begins with the prompt.
    """

    prompt: Text
    text: Text
    inputs: dict[Parameter, Text] = Field(default_factory=dict)
    cumulative: bool = False
    repeats_prompt: bool = False


class RemoteEntry(ModelEntry):
    """A model that Triton servers of the pools have loaded.

    adopt: the Triton model, if others built it. The rest is what such a model does not carry.
    tokenizer: a Hugging Face folder with its tokenizer.json, for the chat template and for exact
    counts. context_length: by default what config.json there says. rows: requests that one engine
    decodes at once, such as vLLM's max_num_seqs; with it they wait in the fair queue. adapters:
    names of its LoRA adapters. tensors: of a model without a fingerprint. prefix_cache: for
    vLLM; with `apart`, requests read no cached prefix where ISOLATE_PREFIX_CACHES is on. continue:
    what another endpoint gets of an answer whose Triton was lost. `ids`: the model must report
    them, and a text must have exactly these tokens. `text`: the rest of the answer may differ.
    `none`: the answer ends with an error.
    """

    runtime: Literal["remote"] = "remote"
    adopt: Text | None = None
    tokenizer: LocalPath | None = None
    context_length: Annotated[int, Field(ge=16)] | None = None
    rows: Annotated[int, Field(ge=1, le=65_536)] | None = None
    adapters: tuple[ModelName, ...] = ()
    tensors: TensorsEntry | None = None
    prefix_cache: Literal["apart", "shared"] = "apart"
    continues: Annotated[Literal["ids", "text", "none"], Field(alias="continue")] = "ids"

    @model_validator(mode="after")
    def _needs_adopt(self) -> RemoteEntry:
        said = {"tokenizer", "context_length", "rows", "adapters", "tensors"}
        said |= {"prefix_cache", "continues"}
        given = self.model_fields_set & said
        if given and self.adopt is None:
            name = sorted(given)[0]
            error = PydanticCustomError("adopt", "says something of an adopted model: add `adopt`")
            where = InitErrorDetails(type=error, loc=(name,), input=None)
            raise ValidationError.from_exception_data("remote", [where])
        return self

    @model_validator(mode="after")
    def _max_tokens_is_built(self) -> RemoteEntry:
        if self.sampling.max_tokens is not None and self.adopt is None:
            error = PydanticCustomError("built", "`build` writes it where the model is built")
            where = InitErrorDetails(type=error, loc=("sampling", "max_tokens"), input=None)
            raise ValidationError.from_exception_data("remote", [where])
        return self


def _details(
    refusal: Refusal, model: tuple[str, ...] = (), section: str = "gpu"
) -> InitErrorDetails:
    """model: its name and runtime, for an error of the whole file."""
    error = PydanticCustomError("refused", "{reason}", {"reason": refusal.reason})
    place = ("models", *model) if model else ()
    return InitErrorDetails(type=error, loc=(*place, section, *refusal.where), input=None)


def _runtime(value: Any) -> str:
    """The runtime of a YAML mapping or of an entry; by default onnx.

    remote for an entry that only maps to pools: with deployments or `adopt`, and without weights.
    """
    if not isinstance(value, dict):
        return str(getattr(value, "runtime", "onnx"))
    is_remote = not value.keys().isdisjoint(("deployments", "adopt")) and "weights" not in value
    default = "remote" if is_remote else "onnx"
    return str(value.get("runtime") or default)


RUNTIMES = ("onnx", "scripted", "embedding", "tensorrt_llm", "tensorrtllm", "vllm", "remote")
BuildableEntry = (
    OnnxEntry | ScriptedEntry | EmbeddingEntry | TensorrtLlmEntry | TensorrtllmEntry | VllmEntry
)
Entry = Annotated[
    Annotated[OnnxEntry, Tag("onnx")]
    | Annotated[ScriptedEntry, Tag("scripted")]
    | Annotated[EmbeddingEntry, Tag("embedding")]
    | Annotated[TensorrtLlmEntry, Tag("tensorrt_llm")]
    | Annotated[TensorrtllmEntry, Tag("tensorrtllm")]
    | Annotated[VllmEntry, Tag("vllm")]
    | Annotated[RemoteEntry, Tag("remote")],
    Discriminator(
        _runtime,
        custom_error_type="runtime",
        custom_error_message=f"runtime must be {', '.join(RUNTIMES[:-1])} or {RUNTIMES[-1]}",
    ),
]


class ModelsFile(Section):
    """Public name -> model, and the pools of Triton servers that models may be served by."""

    models: dict[ModelName, Entry] = Field(min_length=1)
    pools: dict[PoolName, PoolEntry] = Field(default_factory=dict, max_length=MAX_POOLS)

    @property
    def built(self) -> dict[str, BuildableEntry]:
        """The models that `build` builds."""
        return {n: entry for n, entry in self.models.items() if not isinstance(entry, RemoteEntry)}

    @model_validator(mode="after")
    def _names_are_unique(self) -> ModelsFile:
        """Callers use a model's name, an alias, or an adapter's name: all must differ."""
        seen, taken = set(self.models), []
        for model, entry in self.models.items():
            for where, name in _further_names(entry):
                if name in seen:
                    taken.append(_taken((model, entry.runtime, *where), name))
                seen.add(name)
        if taken:
            raise ValidationError.from_exception_data("models", taken)
        return self

    @model_validator(mode="after")
    def _gpus_have_room(self) -> ModelsFile:
        options = {n: e.gpu for n, e in self.models.items() if isinstance(e, GpuEntry)}
        options |= {
            n: e.vllm.as_gpu()
            for n, e in self.models.items()
            if isinstance(e, VllmEntry) and e.vllm.kv_cache_gb is None
        }
        found = []
        for name, reason in refusals.sharing_conflicts(options):
            entry = self.models[name]
            section = "vllm" if isinstance(entry, VllmEntry) else "gpu"
            refusal = Refusal(where=("devices",), reason=reason)
            found.append(_details(refusal, (name, entry.runtime), section))
        if found:
            raise ValidationError.from_exception_data("models", found)
        return self

    @model_validator(mode="after")
    def _deployments_fit(self) -> ModelsFile:
        found = [
            one.details(self.models[one.model].runtime)
            for one in deployment_problems(self.models, self.pools)
        ]
        if found:
            raise ValidationError.from_exception_data("models", found)
        return self


def _further_names(entry: Entry) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Aliases and adapter names, each with the path of its field in the entry."""
    yield from ((("aliases", number), alias) for number, alias in enumerate(entry.aliases))
    if isinstance(entry, RemoteEntry):
        yield from ((("adapters", number), one) for number, one in enumerate(entry.adapters))
    if isinstance(entry, GpuEntry | VllmEntry):
        section = "gpu" if isinstance(entry, GpuEntry) else "vllm"
        yield from (((section, "lora", "adapters", name), name) for name in entry.adapter_names)


def _taken(where: tuple[str | int, ...], name: str) -> InitErrorDetails:
    error = PydanticCustomError("taken", "{name} names another model already", {"name": repr(name)})
    return InitErrorDetails(type=error, loc=("models", *where), input=name)


def unpriced(entries: Mapping[str, ModelEntry]) -> list[str]:
    """The models whose use no monthly_budget limits."""
    return [name for name, entry in entries.items() if entry.price is None]


Check = Callable[[ModelsFile], Iterator[tuple[Where, str]]]


def load(path: Path, check: Check | None = None) -> ModelsFile:
    """Reads and checks the file. check: further rules; it yields a path and what is wrong there.

    Raises:
        ModelsFileError: the file cannot be read, is not YAML, or has an invalid or unknown field.
    """
    try:
        document = MarkedYaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelsFileError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, AttributeError, RecursionError) as error:
        # PyYAML lets Python's own errors through, for example for the date 2024-99-99
        raise ModelsFileError(f"{path} is not valid YAML: {error}") from error
    try:
        found = ModelsFile.model_validate(document.data, context={"base": path.resolve().parent})
    except ValidationError as error:
        raise ModelsFileError(_explain(path, document, error)) from error
    for place, reason in check(found) if check is not None else ():
        where = ".".join(map(str, place))
        raise ModelsFileError(f"{path}:{document.line(place)}: {where}: {reason}")
    return found


def _explain(path: Path, document: MarkedYaml, error: ValidationError) -> str:
    """The first error with its line, and the number of others. Unknown keys come first."""
    errors = error.errors(include_url=False)
    first, *others = unknown_first(errors, ModelsFile)
    place = _without_tag(first["loc"])
    where = ".".join(map(str, place)) or "the file"
    more = f" (and {len(others)} more)" if others else ""
    message = _message(first, place)
    return f"{path}:{document.line(place)}: {where}: {message}{more}"


def _message(error: ErrorDetails, place: tuple[str | int, ...]) -> str:
    """Without pydantic's names of types, which stand in no document. place: in the file."""
    given = error["input"]
    match error["type"]:
        case kind if kind == UNKNOWN:
            return unknown_key(error["loc"], ModelsFile)
        case "missing":
            return "is missing"
        case "runtime":
            near = get_close_matches(str(given.get("runtime")).lower(), RUNTIMES, n=2)
            return f"{error['msg']}; did you mean {' or '.join(near)}?" if near else error["msg"]
        case "model_type" | "dict_type" | "model_attributes_type":
            is_entry = len(place) == 2 and place[0] == "models"
            if is_entry and isinstance(given, str):
                return f"write `weights: {given}` below it, since a model has several fields"
            hint = ", such as `weights:` below it" if is_entry else ""
            return f"must have fields{hint}"
        case "tuple_type" | "list_type":
            return "must be a list"
    return error["msg"].removeprefix("Value error, ")


def _without_tag(loc: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """pydantic puts the runtime after a model's name: `models.big.onnx.weights`."""
    return (*loc[:2], *loc[3:]) if loc[:1] == ("models",) else loc
