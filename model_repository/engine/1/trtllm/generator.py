"""Runs one job through TensorRT-LLM, and writes its tokens to the job's sink."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from port import BadParameter, Job, Token
from stats import Stats
from trtllm import results
from trtllm.library import is_alive
from trtllm.sampling_params import SamplingTranslator, check_echo, check_resume

TOO_LONG = "should not exceed"  # part of the message of LLM._check_arguments


@dataclass(frozen=True, slots=True)
class Generator:
    """`llm`: a running tensorrt_llm.LLM. `progressed` is called for each of its responses."""

    llm: Any
    translator: SamplingTranslator
    stats: Stats
    progressed: Callable[[], None]

    async def generate(self, job: Job) -> None:
        """Returns when the job has ended. A cancel of this task also aborts TensorRT-LLM's request.

        Raises:
            BadParameter: TensorRT-LLM does not support a value of the request.
            Exception: generation failed; TensorRT-LLM's errors have no common type.
        """
        check_resume(job.input)
        check_echo(job.input)
        extras = self.translator.extras(job.input)
        if job.input.max_tokens == 0:  # an echo of the prompt alone does not need the GPU
            self._start(job, 0)
            return
        result = self._submit(job, extras)
        try:
            await self._stream(job, result)
        except asyncio.CancelledError:
            if is_alive(self.llm):
                result.abort()
            raise

    def _submit(self, job: Job, extras: dict[str, Any]) -> Any:
        sampling = self.translator.translate(job.input)
        try:
            return self.llm.generate_async(
                job.input.prompt_ids, sampling_params=sampling, streaming=True, **extras
            )
        except (ValueError, RuntimeError) as error:  # from 1.3 on its RequestError
            if TOO_LONG in str(error):  # a prompt over max_num_tokens, without chunked prefill
                raise BadParameter("prompt", str(error)) from error
            raise

    def _start(self, job: Job, cached_tokens: int) -> None:
        self.stats.looked_up(cached_tokens)
        job.sink.started(cached_tokens, is_late=True)
        if job.input.echoes_prompt:
            is_all = job.input.max_tokens == 0
            tokens = [Token(token) for token in job.input.prompt_ids]
            job.sink.echo(tokens, "length" if is_all else None)

    async def _stream(self, job: Job, result: Any) -> None:
        is_started = False
        async for _ in result:
            self.progressed()
            if not is_started:
                self._start(job, getattr(result, "cached_tokens", 0))  # from 1.1 on
                is_started = True
            if results.write(job, result):
                return
        raise results.Incomplete("TensorRT-LLM's stream ended without a finish reason")
