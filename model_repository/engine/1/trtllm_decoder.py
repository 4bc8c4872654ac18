"""One job through TensorRT-LLM: what is asked, and what it says handed on to the job's sink."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import trtllm_counts
import trtllm_results
from port import BadParameter, Job, Token
from stats import Stats
from trtllm_library import is_alive
from trtllm_sampling import Translator, check_echo

TOO_LONG = "should not exceed"  # LLM._check_arguments


@dataclass(frozen=True, slots=True)
class TrtllmDecoder:
    """`llm`: a running tensorrt_llm.LLM. `stats`: counts what is begun."""

    llm: Any
    translator: Translator
    stats: Stats

    async def decode(self, job: Job) -> None:
        """Returns when the job has ended. A cancel ends it in TensorRT-LLM, too.

        Raises:
            BadParameter: it cannot do what is asked for.
            Exception: it failed; its own errors have no common type.
        """
        check_echo(job.input)
        extras = self.translator.extras(job.input)
        if job.input.max_tokens == 0:  # its prompt alone, with which no GPU has to do
            self._start(job, 0)
            return
        result = self._ask(job, extras)
        try:
            await self._hand_on(job, result)
        except asyncio.CancelledError:
            if is_alive(self.llm):
                result.abort()
            raise

    def _ask(self, job: Job, extras: dict[str, Any]) -> Any:
        sampling = self.translator.translate(job.input)
        try:
            return self.llm.generate_async(
                job.input.prompt_ids, sampling_params=sampling, streaming=True, **extras
            )
        except (ValueError, RuntimeError) as error:  # from 1.3 on its RequestError
            if TOO_LONG in str(error):  # a prompt beyond max_num_tokens, without chunked prefill
                raise BadParameter("prompt", str(error)) from error
            raise

    def _start(self, job: Job, cached_tokens: int) -> None:
        trtllm_counts.started(self.stats, cached_tokens)
        job.sink.started(cached_tokens, is_late=True)
        if job.input.echoes_prompt:
            is_all = job.input.max_tokens == 0
            tokens = [Token(token) for token in job.input.prompt_ids]
            job.sink.echo(tokens, "length" if is_all else None)

    async def _hand_on(self, job: Job, result: Any) -> None:
        is_started = False
        async for _ in result:
            if not is_started:
                self._start(job, getattr(result, "cached_tokens", 0))  # from 1.1 on
                is_started = True
            if trtllm_results.deliver(job, result):
                return
        raise trtllm_results.Incomplete("TensorRT-LLM's stream ended without a reason")
