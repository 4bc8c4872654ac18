"""The CPU runtime's section of models.yaml."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from build_engines.section import Section


class OnnxOptions(Section):
    """How the CPU runtime serves the model. Defaults depend on the machine.

    max_rows: requests decoded at once. max_step_tokens: prompt tokens prefilled per step.
    prefill_stall_ms: the longest pause that one prefill step may cause in running streams.
    kv_cache_mb: memory for the keys and values of all rows and of cached prefixes.
    exact_resume_tokens: up to so many tokens of an answer that another engine began are computed
    again as decoding computes them, one a step, so that fp32 models continue it bit for bit.
    Longer ones are prefilled, which is faster, and differs in the last bits of the logits.
    """

    precision: Literal["fp32", "int4"] = "fp32"
    threads: Annotated[int, Field(ge=1, le=256)] | None = None
    max_rows: Annotated[int, Field(ge=1, le=1024)] | None = None
    max_step_tokens: Annotated[int, Field(ge=16, le=65_536)] = 512
    prefill_stall_ms: Annotated[float, Field(gt=0, le=60_000)] | None = None
    kv_cache_mb: Annotated[int, Field(ge=1)] | None = None
    exact_resume_tokens: Annotated[int, Field(ge=0, le=1_000_000)] = 512
