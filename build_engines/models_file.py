"""`models.yaml`, the policy side of the registry: which models there are, and how each is served.

Read by `build` (weights, runtime) and by the proxy's registry (names, default sampling).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from build_engines.scripted_options import ScriptedOptions
from build_engines.section import ModelName, Section
from build_engines.server_tool_entry import ServerToolEntry, ToolName


class ModelsFileError(ValueError):
    """models.yaml is missing or wrong; the message names the file, the place and the value."""


class OnnxOptions(Section):
    """How the CPU runtime serves the model. What is not given is worked out from the machine.

    max_rows: requests at work at once. max_step_tokens: prompt tokens that one step prefills.
    prefill_stall_ms: for how long a prefill may hold up running streams at a time.
    kv_cache_mb: keys and values of all rows, and of the prefixes kept for later prompts.
    """

    precision: Literal["fp32", "int4"] = "fp32"
    threads: Annotated[int, Field(ge=1, le=256)] | None = None
    max_rows: Annotated[int, Field(ge=1, le=1024)] | None = None
    max_step_tokens: Annotated[int, Field(ge=16, le=65_536)] = 512
    prefill_stall_ms: Annotated[float, Field(gt=0, le=60_000)] | None = None
    kv_cache_mb: Annotated[int, Field(ge=1)] | None = None


class SamplingDefaults(Section):
    """What a request gets that does not say otherwise."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None

    def or_else(self, temperature: float | None, max_tokens: int | None) -> SamplingDefaults:
        """These, and the given ones where these say nothing."""
        given = {"temperature": temperature, "max_tokens": max_tokens}
        missing = {name: value for name, value in given.items() if getattr(self, name) is None}
        return self.model_copy(update=missing)


class ModelEntry(Section):
    """One model. `weights` is a Hugging Face folder, or one that onnxruntime-genai's builder made.

    A relative path is relative to models.yaml.
    """

    weights: Path
    runtime: Literal["onnx", "scripted"] = "onnx"
    aliases: tuple[ModelName, ...] = ()
    owned_by: str = "triton-openai"
    context_length: Annotated[int, Field(ge=16)] | None = None
    chat_template_kwargs: bool = False  # callers may hand values of their own to the template
    chat_template: bool = False  # callers may send a template of their own, which is a program
    tool_parser: str = "auto"  # a family's name; auto: found from the chat template; none
    reasoning_parser: str = "auto"
    server_tools: dict[ToolName, ServerToolEntry] = Field(default_factory=dict)  # run by the proxy
    max_tool_rounds: Annotated[int, Field(ge=1, le=100)] = 5  # answers whose calls are run
    max_tool_seconds: Annotated[float, Field(gt=0, le=3600)] = 60.0  # of running them
    hold_ms: Annotated[float, Field(ge=0, le=1000)] = 25.0  # no token waits longer to be sent
    # what no grammar holds an answer to is checked, and tried again so often
    max_retries: Annotated[int, Field(ge=0, le=10)] = 2
    stream_mode: Literal["buffered", "optimistic"] = "buffered"  # checked before it goes out?
    onnx: OnnxOptions = OnnxOptions()
    scripted: ScriptedOptions | None = None
    sampling: SamplingDefaults = SamplingDefaults()

    @model_validator(mode="after")
    def _a_script_has_its_runtime(self) -> ModelEntry:
        if (self.scripted is None) is (self.runtime == "scripted"):
            raise ValueError("runtime: scripted and a section `scripted` go together")
        return self


class ModelsFile(Section):
    """Public name -> model."""

    models: dict[ModelName, ModelEntry] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_are_unique(self) -> ModelsFile:
        seen = set(self.models)
        for name, entry in self.models.items():
            for alias in entry.aliases:
                if alias in seen:
                    raise ValueError(f"alias {alias!r} of model {name!r} is already a name")
                seen.add(alias)
        return self


def load(path: Path) -> ModelsFile:
    """Reads and checks the file.

    Raises:
        ModelsFileError: the file cannot be read, is no YAML, or has a wrong or unknown field.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        parsed = ModelsFile.model_validate(data)
    except OSError as error:
        raise ModelsFileError(f"cannot read {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ModelsFileError(f"{path} is not valid YAML: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ModelsFileError(f"{path}: {where}: {first['msg']}") from error
    base = path.resolve().parent
    models = {
        name: entry.model_copy(update={"weights": base / entry.weights})
        for name, entry in parsed.models.items()
    }
    return parsed.model_copy(update={"models": models})
