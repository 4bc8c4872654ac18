"""CPU of a token in the event loop of the `vllm` runtime, which AsyncLLM and our part share.

usage: PYTHONPATH=model_repository/engine/1:tests/doubles/backend python -m tests.bench.vllm_client

256 rows, each with a token a step. vLLM is a stand-in with the work that AsyncLLM (read: 0.32) has
with a token, to find its row and keep its id and time, and with every `stream_interval` tokens: an
output, for which the row's task wakes. The socket to the engine's process is left out. `direct`: a
loop writes all tokens to the streams, as if we read that socket ourselves. The ways alternate, and
figures are medians.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from hang_watch import HangWatch
from port import GenerationInput, Job, SamplingParams, Token
from stats import Stats
from stream import Stream
from tests.doubles.response_sender import Sender
from vllm_engine.library import Library
from vllm_engine.runtime import VllmRuntime
from vllm_engine.sampling_params import SamplingTranslator

ROWS, STEPS, ROUNDS = 256, 400, 5
SENT_EVERY = 8  # steps; about what the response writer makes of 20,000 tokens a second
INTERVALS = (1, 4, 8)
PROMPT = [1, 2, 3, 4, 5]


class Slot:
    """One output of a row; those after it join it until the row's task has taken it."""

    def __init__(self) -> None:
        self._output: Any = None
        self._is_full = asyncio.Event()

    def put(self, output: Any) -> None:
        if self._output is None:
            self._output = output
            self._is_full.set()
            return
        self._output.outputs[0].token_ids += output.outputs[0].token_ids
        self._output.outputs[0].finish_reason = output.outputs[0].finish_reason
        self._output.finished = output.finished

    async def take(self) -> Any:
        while self._output is None:
            await self._is_full.wait()
        output, self._output = self._output, None
        self._is_full.clear()
        return output


@dataclass(slots=True)
class Row:
    slot: Slot = field(default_factory=Slot)
    ids: list[int] = field(default_factory=list)
    sent: int = 0
    seen_at: float = 0.0

    def output(self, interval: int, is_last: bool) -> Any:
        """The first and the last token come at once."""
        if not is_last and self.sent and len(self.ids) - self.sent < interval:
            return None
        new, self.sent = self.ids[self.sent :], len(self.ids)
        newest = SimpleNamespace(
            index=0, text="", token_ids=new, logprobs=None, cumulative_logprob=None,
            finish_reason="length" if is_last else None, stop_reason=None,
        )  # fmt: skip
        return SimpleNamespace(
            request_id="", prompt=None, prompt_token_ids=PROMPT, prompt_logprobs=None,
            outputs=[newest], finished=is_last, metrics=None, num_cached_tokens=0,
        )  # fmt: skip


@dataclass
class StandIn:
    """An AsyncLLM whose steps `play` makes."""

    interval: int
    steps: int
    rows: dict[str, Row] = field(default_factory=dict)
    errored: bool = False

    async def generate(self, prompt, sampling_params, request_id, **more) -> AsyncIterator[Any]:
        slot = self.rows.setdefault(request_id, Row()).slot
        while True:
            output = await slot.take()
            yield output
            if output.finished:
                return

    def shutdown(self) -> None:
        pass

    def step(self, number: int) -> None:
        is_last, now, gaps = number == self.steps - 1, time.monotonic(), []
        for request_id in list(self.rows):
            row = self.rows[request_id]
            gaps.append(now - row.seen_at)
            row.seen_at = now
            row.ids.extend([number])
            if (output := row.output(self.interval, is_last)) is not None:
                row.slot.put(output)


async def played(step: Callable[[int], None], posted: list[Stream], steps: int) -> float:
    """Microseconds of this thread a step; sending is the response writer's, and not counted."""
    spent_s = 0.0
    for number in range(steps):
        began = time.thread_time()
        step(number)
        for _ in range(4):  # all tasks that woke run
            await asyncio.sleep(0)
        spent_s += time.thread_time() - began
        if number % SENT_EVERY == 0 or number == steps - 1:
            for stream in posted:
                stream.send()
            posted.clear()
    return spent_s / steps * 1e6


def jobs(posted: list[Stream], rows: int, steps: int) -> tuple[list[Job], list[Sender]]:
    wanted = GenerationInput(prompt_ids=PROMPT, max_tokens=steps, sampling=SamplingParams())
    senders = [Sender() for _ in range(rows)]
    streams = [Stream(sender, len(PROMPT), posted.append) for sender in senders]
    return [Job(str(number), wanted, stream) for number, stream in enumerate(streams)], senders


def over_async_llm(interval: int, rows: int = ROWS, steps: int = STEPS) -> float:
    """Microseconds a token."""
    llm, posted = StandIn(interval, steps), list[Stream]()
    anything = SimpleNamespace
    library = Library(
        llm=None, engine_args=None, sampling_params=anything, structured_outputs=anything,
        lora_request=anything, delta="DELTA", ended=OSError, failed=(OSError,), refused=(OSError,),
        is_on_cpu=True, version="0",
    )  # fmt: skip
    translator = SamplingTranslator(library=library, end_ids=(2,), logits_size=100)
    runtime = VllmRuntime(llm, translator, {}, Stats(), HangWatch(0.0), lambda reason: None)
    made, senders = jobs(posted, rows, steps)
    for job in made:
        runtime.submit(job)
    while len(llm.rows) < rows:
        time.sleep(0.01)
    found: list[float] = []

    async def play() -> None:
        found.append(await played(llm.step, posted, steps))

    runtime.run(play())
    runtime.close()
    check(senders, steps)
    return found[0] / rows


def direct() -> float:
    """Microseconds a token."""
    posted = list[Stream]()
    made, senders = jobs(posted, ROWS, STEPS)
    sinks = {job.request_id: job.sink for job in made}

    def step(number: int) -> None:
        if not number:
            for sink in sinks.values():
                sink.started(0)
        finish = "length" if number == STEPS - 1 else None
        for request_id in list(sinks):
            sinks[request_id].token(Token(number), finish)

    found = asyncio.run(played(step, posted, STEPS))
    check(senders, STEPS)
    return found / ROWS


def check(senders: list[Sender], steps: int) -> None:
    for sender in senders:
        assert [token for ids in sender.ids for token in ids] == list(range(steps))


def main() -> None:
    ways: dict[str, Callable[[], float]] = {
        f"stream_interval {interval}": lambda interval=interval: over_async_llm(interval)
        for interval in INTERVALS
    }
    ways["direct"] = direct
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            found[name].append(way())
    for name, each in found.items():
        sys.stdout.write(f"{name:20} {statistics.median(each):6.2f} µs\n")


if __name__ == "__main__":
    main()
