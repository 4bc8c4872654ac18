"""Runs one job through TensorRT-LLM, and writes its tokens to the job's sink."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from block_log import PROMPT_BLOCKS, BlockKeys, BlockLog
from job_loop import Incomplete, write_tokens
from port import BadParameter, GenerationInput, Job, Token, TokenLogProbs
from stats import Stats
from trtllm.library import is_alive
from trtllm.sampling_params import SamplingTranslator, check_echo, check_resume

# OpenAI's value for a token that is not among the most likely ones.
UNLIKELY = -9999.0


def _tokens(job: Job, output: Any) -> list[Token]:
    ids = list(output.token_ids_diff)
    wanted = job.input.sampling.log_probs
    if wanted is None or not ids:  # without ids, logprobs_diff may be that of the last response
        return [Token(token_id) for token_id in ids]
    found = list(output.logprobs_diff)
    if len(found) != len(ids):
        raise Incomplete(
            f"TensorRT-LLM returned {len(found)} log-probabilities for {len(ids)} tokens"
        )
    return [
        Token(token_id, _log_probs(token_id, by_id, wanted))
        for token_id, by_id in zip(ids, found, strict=True)
    ]


def _log_probs(token_id: int, by_id: dict[int, Any], wanted: int) -> TokenLogProbs:
    ranked = sorted(((id_, one.logprob) for id_, one in by_id.items()), key=lambda one: -one[1])
    if len(ranked) < wanted:
        raise Incomplete(f"TensorRT-LLM returned {len(ranked)} alternatives, not {wanted}")
    own = by_id[token_id].logprob if token_id in by_id else UNLIKELY
    return TokenLogProbs(own, tuple(ranked[:wanted]))


TOO_LONG = "should not exceed"  # part of the message of LLM._check_arguments


@dataclass(frozen=True, slots=True)
class Generator:
    """`llm`: a running tensorrt_llm.LLM. `progressed` is called for each of its responses.

    `begun`: the jobs that have had a response; whoever ends them takes them out.
    `blocks`: of its KV cache, if it reports them.
    """

    llm: Any
    translator: SamplingTranslator
    stats: Stats
    progressed: Callable[[], None]
    blocks: BlockLog | None = None
    begun: set[Job] = field(default_factory=set)

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
        self.begun.add(job)
        self.stats.looked_up(cached_tokens)
        job.sink.started(cached_tokens, is_late=True, blocks=self._blocks_of(job.input))
        if job.input.echoes_prompt:
            is_all = job.input.max_tokens == 0
            tokens = [Token(token) for token in job.input.prompt_ids]
            job.sink.echo(tokens, "length" if is_all else None)

    def _blocks_of(self, wanted: GenerationInput) -> list[int]:
        """Empty for a prompt with a salt or an adapter, whose blocks KvEvents does not know."""
        log = self.blocks
        if log is None or not log.is_watched or wanted.cache_salt or wanted.lora_name:
            return []
        compared = wanted.prompt_ids[: PROMPT_BLOCKS * log.size]
        return log.of_prompt(BlockKeys("", log.size).of(compared))

    async def _stream(self, job: Job, result: Any) -> None:
        is_started = False
        async for _ in result:
            self.progressed()
            if not is_started:
                self._start(job, getattr(result, "cached_tokens", 0))  # from 1.1 on
                is_started = True
            newest = result.outputs[0]
            if write_tokens(
                job,
                _tokens(job, newest),
                is_over=result.finished,
                reason=newest.finish_reason,
            ):
                return
        raise Incomplete("TensorRT-LLM's stream ended without a finish reason")
