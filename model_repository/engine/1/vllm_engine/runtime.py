"""The `vllm` runtime: a JobLoop over vLLM's AsyncLLM.

AsyncLLM runs its engine in a process of its own, in every version and on every device; with tensor
or pipeline parallelism that one has worker processes.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Any

from hang_watch import HangWatch
from job_loop import Incomplete, JobLoop, write_tokens
from lora_adapters import lora_requests, named
from port import BadParameter, GenerationInput, Job, SamplingParams, Token, TokenLogProbs
from stats import Stats
from vllm_engine import images
from vllm_engine.library import Library, prepare_process
from vllm_engine.sampling_params import SamplingTranslator, check_resume, guide_text, refusal
from vllm_engine.statistics import StatRecorder

IMAGES_AT_ONCE = 4  # prompts with images before their first token: each takes up to 1 GB


class VllmRuntime(JobLoop):
    """llm: a running AsyncLLM. adapters: its LoRARequests by name."""

    engine = "vLLM"
    hang_option = "vllm.hang_seconds"

    def __init__(
        self,
        llm: Any,
        translator: SamplingTranslator,
        adapters: Mapping[str, Any],
        stats: Stats,
        hang_watch: HangWatch,
        die: Callable[[str], None],
    ) -> None:
        self._llm = llm
        self._translator = translator
        self._library = translator.library
        self._adapters = adapters
        self._numbers = itertools.count()
        self._image_room = asyncio.Semaphore(IMAGES_AT_ONCE)
        super().__init__(stats, hang_watch, die)

    async def generate(self, job: Job) -> None:
        wanted = job.input
        check_resume(wanted)
        if wanted.images and wanted.echoes_prompt:
            raise BadParameter("echo_prompt", "a prompt with images cannot be echoed")
        if wanted.max_tokens == 0 and wanted.sampling.log_probs is None:
            self._start(job, 0, None)  # an echo of the prompt alone does not need the engine
            job.sink.echo(_echoed(wanted, []), "length")
            return
        ebnf = None
        if wanted.guide is not None:
            ebnf = await asyncio.to_thread(guide_text, wanted.guide)
        sampling = self._translator.translate(wanted, ebnf)
        submit = self._submit_images if wanted.images else self._submit
        try:
            async with aclosing(submit(job, sampling)) as outputs:
                await self._stream(job, outputs)
        except BadParameter:  # ours; a ValueError, too
            raise
        except self._library.refused as error:
            raise refusal(error) from error
        except self._library.failed as error:  # EngineGenerateError has no message of its own
            raise RuntimeError(f"vLLM failed: {error.__cause__ or error!r}") from error

    async def _submit_images(self, job: Job, sampling: Any) -> AsyncGenerator[Any, None]:
        await self._image_room.acquire()
        with ExitStack() as held:
            held.callback(self._image_room.release)
            decoded = await asyncio.to_thread(images.decoded, job.input.images)
            async with aclosing(self._submit(job, sampling, decoded)) as outputs:
                async for output in outputs:
                    held.close()
                    yield output

    def _submit(self, job: Job, sampling: Any, decoded: Sequence[Any] = ()) -> Any:
        wanted = job.input
        prompt: dict[str, Any] = {"prompt_token_ids": wanted.prompt_ids}
        if decoded:
            prompt["multi_modal_data"] = {"image": decoded}
        if wanted.cache_salt:
            prompt["cache_salt"] = wanted.cache_salt
        lora = named(self._adapters, wanted.lora_name) if wanted.lora_name else None
        return self._llm.generate(
            prompt,
            sampling,
            f"{job.request_id}-{next(self._numbers)}",  # vLLM wants each id once
            lora_request=lora,
            priority=-wanted.priority,  # its lowest goes first
        )

    async def _stream(self, job: Job, outputs: Any) -> None:
        prompt: list[Any] | None = [] if job.input.echoes_prompt else None
        is_started = False
        async for output in outputs:
            self._hang_watch.progressed()
            if not is_started:
                tokens = len(output.prompt_token_ids) if job.input.images else None
                self._start(job, output.num_cached_tokens or 0, output.metrics, tokens)
                is_started = True
            if prompt is not None:
                prompt += output.prompt_logprobs or ()
                if not output.outputs[0].token_ids and not output.finished:
                    continue
                job.sink.echo(_echoed(job.input, prompt), "length" if _is_echo(job) else None)
                prompt = None
                if _is_echo(job):
                    return
            newest = output.outputs[0]
            if write_tokens(
                job,
                _tokens(job, newest),
                is_over=output.finished,
                reason=newest.finish_reason,
            ):
                return
        raise Incomplete("vLLM's stream ended without a finish reason")

    def _start(
        self, job: Job, cached_tokens: int, metrics: Any, prompt_tokens: int | None = None
    ) -> None:
        """metrics: times of vLLM's processes, on the clock of time.monotonic."""
        self.stats.looked_up(cached_tokens)
        began_at = getattr(metrics, "scheduled_ts", 0.0) or None
        job.sink.started(cached_tokens, began_at=began_at, prompt_tokens=prompt_tokens)

    async def warm_up(self) -> None:
        """Runs each part of the sampler once: on first use vLLM compiles some for ten seconds, in
        which no stream gets a token.
        """
        wanted = GenerationInput(
            prompt_ids=[0],
            max_tokens=1,
            sampling=SamplingParams(top_k=2, top_p=0.9, seed=1, presence_penalty=0.1, log_probs=1),
        )
        sampling = self._translator.translate(wanted, None)
        async for _ in self._llm.generate({"prompt_token_ids": [0]}, sampling, "warm-up"):
            pass

    def run(self, coroutine: Any) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def forget(self, job: Job) -> None:
        pass

    def why_ended(self, error: Exception | None) -> str | None:
        if not self._llm.errored:
            return None
        return f"vLLM's engine process has ended: {error or 'see its output above'}"

    def watch(self) -> None:
        """An aborted request is in no further iteration, so idle gauges are set here."""
        if not self.in_flight:
            stats = self.stats
            stats.rows_decoding = stats.waiting = stats.kv_blocks_used = 0

    def shut_down(self) -> None:
        self._llm.shutdown()


def _is_echo(job: Job) -> bool:
    """Whether nothing but the prompt is wanted; vLLM generates at least one token."""
    return job.input.max_tokens == 0


def _tokens(job: Job, newest: Any) -> list[Token]:
    ids, wanted = list(newest.token_ids), job.input.sampling.log_probs
    if wanted is None:
        return [Token(token_id) for token_id in ids]
    found = list(newest.logprobs or ())
    if len(found) != len(ids):
        raise Incomplete(f"vLLM returned {len(found)} log-probabilities for {len(ids)} tokens")
    return [
        Token(token_id, _log_probs(token_id, by_id, wanted))
        for token_id, by_id in zip(ids, found, strict=True)
    ]


def _echoed(wanted: GenerationInput, prompt: list[Any]) -> list[Token]:
    """prompt: vLLM's log-probabilities of the prompt's tokens; the first has None."""
    top, ids = wanted.sampling.log_probs, wanted.prompt_ids
    if top is None:
        return [Token(token_id) for token_id in ids]
    if len(prompt) != len(ids):
        raise Incomplete(f"vLLM returned {len(prompt)} log-probabilities for {len(ids)} tokens")
    first = Token(ids[0], TokenLogProbs(math.nan, ((-1, -math.inf),) * top))
    scored = zip(ids[1:], prompt[1:], strict=True)
    return [first, *(Token(id_, _log_probs(id_, by_id, top)) for id_, by_id in scored)]


def _log_probs(token_id: int, by_id: Mapping[int, Any], wanted: int) -> TokenLogProbs:
    """by_id: the likeliest tokens, and the token itself wherever it ranks."""
    ranked = sorted(((id_, one.logprob) for id_, one in by_id.items()), key=lambda one: -one[1])
    return TokenLogProbs(by_id[token_id].logprob, tuple(ranked[:wanted]))


def load(artifacts: Path, parameters: dict[str, str], die: Callable[[str], None]) -> VllmRuntime:
    """Starts vLLM. `parameters` are the engine's Triton config parameters.

    Raises:
        StartFailed: vLLM is not installed, or cannot load the model.
    """
    prepare_process(os.environ, parameters)
    library = Library.load()
    stats, hang_watch = Stats(has_kv_blocks=True), HangWatch(float(parameters["hang_seconds"]))
    recorder = StatRecorder(stats, hang_watch.progressed)
    engine = (artifacts / "engine").resolve()
    llm = library.start(engine, parameters["vllm_args"], recorder.connected)
    translator = SamplingTranslator(
        library=library,
        end_ids=tuple(int(token) for token in parameters["end_ids"].split(",") if token),
        logits_size=int(parameters["logits_size"]),
    )
    adapters = lora_requests(library.lora_request, parameters["lora_adapters"])
    runtime = VllmRuntime(llm, translator, adapters, stats, hang_watch, die)
    runtime.run(runtime.warm_up())
    return runtime
