"""The vllm runtime on a stand-in that takes only recorded parameters, for what a real vLLM, which
tests/long/vllm runs, shows at times only: errors, a hang, a death, odd outputs.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import shutil
import sys
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from build_engines.upstream.argument_types import differences
from build_engines.vllm import arguments
from hang_watch import HangWatch
from lora_adapters import lora_requests
from port import GenerationInput, Guide, Job, SamplingParams
from stats import Stats
from tests.bench import vllm_client
from tests.doubles.sink import KeptTokens
from tests.fixtures.stack import HANG_S, eventually
from vllm_engine.library import Library, prepare_process
from vllm_engine.runtime import IMAGES_AT_ONCE, VllmRuntime
from vllm_engine.sampling_params import SamplingTranslator
from vllm_engine.statistics import StatRecorder

RECORDS = [arguments.record_of(version) for version in arguments.RECORDS]
GREEDY = SamplingParams(temperature=0)
PROMPT = [5, 6, 7]


class Refused(Exception):
    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class Ended(Exception):
    pass


class Failed(Exception):
    pass


def recorded(name: str):
    """A class of vLLM that takes what every record has, of the declared types."""

    def make(**given: Any) -> SimpleNamespace:
        for record in RECORDS:
            fields = record.fields(name)
            for parameter, value in given.items():
                if parameter in ("output_kind", "structured_outputs"):
                    assert parameter in fields
                    continue
                kind = fields[parameter]["type"]
                assert not list(differences(value, kind, record, parameter))
        if given.get("temperature", 0) > 2:
            raise Refused("temperature must be in [0, 2]", "temperature")
        return SimpleNamespace(**given)

    return make


@dataclass
class StandIn:
    """`script`: for each step, what `output` makes an output of, or an exception."""

    script: list[Any]
    step_s: float = 0.0
    errored: bool = False
    asked: list[Any] = field(default_factory=list)
    aborted: int = 0
    waits_for: asyncio.Event | None = None

    async def generate(self, prompt, sampling_params, request_id, *, lora_request, priority):
        self.asked.append((prompt, sampling_params, request_id, lora_request, priority))
        try:
            if self.waits_for is not None:
                await self.waits_for.wait()
            for step in self.script:
                await asyncio.sleep(self.step_s)
                if isinstance(step, Exception):
                    raise step
                yield step
        except asyncio.CancelledError:
            self.aborted += 1
            raise

    def shutdown(self) -> None:
        pass


def output(*ids: int, end: str | None = None, cached=0, logprobs=None, prompt=None, metrics=None):
    newest = SimpleNamespace(token_ids=list(ids), logprobs=logprobs, finish_reason=end)
    return SimpleNamespace(
        outputs=[newest],
        finished=end is not None,
        num_cached_tokens=cached,
        metrics=metrics,
        prompt_logprobs=prompt,
        prompt_token_ids=PROMPT * 3,  # vLLM has put an image's tokens into its place
    )


def probs(**by_id: float) -> dict[int, Any]:
    return {int(id_[1:]): SimpleNamespace(logprob=value) for id_, value in by_id.items()}


LIBRARY = Library(
    llm=None,
    engine_args=None,
    sampling_params=recorded("SamplingParams"),
    structured_outputs=recorded("StructuredOutputsParams"),
    lora_request=lambda **given: SimpleNamespace(**given),
    delta="DELTA",
    ended=Ended,
    failed=(Failed,),
    refused=(Refused, ValueError),
    is_on_cpu=True,
    version="0",
)


@pytest.fixture
def runtime():
    """runtime(script, …) -> a runtime and its engine."""
    started = []

    def run(*script, die=lambda reason: None, hang_s=0.0, **more):
        engine = StandIn(list(script), **more)
        translator = SamplingTranslator(library=LIBRARY, end_ids=(2, 9), logits_size=100)
        adapters = lora_requests(LIBRARY.lora_request, '{"poet": "/adapters/poet"}')
        watch = HangWatch(hang_s)
        started.append(VllmRuntime(engine, translator, adapters, Stats(), watch, die))
        return started[-1], engine

    yield run
    for one in started:
        one.close()


def generate(running, sampling=GREEDY, wait=True, **more) -> KeptTokens:
    sink = KeptTokens()
    wanted = {"prompt_ids": list(PROMPT), "max_tokens": 5, "sampling": sampling, **more}
    running.submit(Job("r", GenerationInput(**wanted), sink))
    if wait:
        assert sink.is_over.wait(HANG_S)
    return sink


def test_the_methods_have_the_parameters_that_are_passed():
    import json

    for path in arguments.RECORDS.values():
        methods = json.loads(path.read_text())["methods"]
        passed = {"prompt", "sampling_params", "request_id", "lora_request", "priority"}
        assert passed <= set(methods["AsyncLLM.generate"])
        assert {"engine_args", "stat_loggers"} <= set(methods["AsyncLLM.from_engine_args"])
        read = {"outputs", "finished", "metrics", "num_cached_tokens", "prompt_logprobs"}
        assert read <= set(methods["RequestOutput.__init__"])


def test_every_parameter_is_passed_with_its_declared_type(runtime):
    running, engine = runtime(output(4, end="length"))
    sampling = SamplingParams(
        temperature=0.5, top_k=3, top_p=0.9, min_p=0.1, seed=2**64 - 1, repetition_penalty=1.1,
        presence_penalty=0.1, frequency_penalty=0.2, logit_bias=((3, 1.0), (3, 2.0)),
        allowed_token_ids=(1, 2), bad_words=((4,), (5, 6)), min_tokens=1,
        stop_token_ids=frozenset({8}), log_probs=None,
    )  # fmt: skip
    sink = generate(running, sampling, priority=3, cache_salt="s", lora_name="poet")
    assert (sink.ids, sink.end) == ([4], "length")
    (prompt, params, _, lora, priority), *_ = engine.asked
    assert prompt == {"prompt_token_ids": PROMPT, "cache_salt": "s"}
    assert (lora.lora_path, lora.lora_int_id, priority) == ("/adapters/poet", 1, -3)
    assert params.logit_bias == {3: 3.0}
    assert params.stop_token_ids == [2, 8, 9]
    assert params._bad_words_token_ids == [[4], [5, 6]]


@pytest.mark.parametrize(
    ("sampling", "more", "refused"),
    [
        (SamplingParams(temperature=3), {}, "temperature: vLLM refuses"),
        (SamplingParams(bad_words=((1, 100),)), {}, "bad_words: bad_words names token 100"),
        (GREEDY, {"lora_name": "x"}, "lora_name: this model has no adapter 'x'"),
        (GREEDY, {"generated_ids": [4]}, "resume_from: vLLM cannot continue"),
        (GREEDY, {"guide": Guide("ebnf_grammar", "")}, None),
        (GREEDY, {"guide": Guide("json_schema", "{")}, "guided_decoding_guide: the guide cannot"),
    ],
)
def test_what_cannot_be_passed_is_refused_by_name(runtime, sampling, more, refused):
    running, engine = runtime(output(4, end="stop"))
    sink = generate(running, sampling, **more)
    if refused is None:
        return
    assert sink.end == "refused"
    assert sink.message.startswith(refused)
    assert not engine.asked


def test_a_refusal_of_the_engine_is_the_callers(runtime):
    running, _ = runtime(Refused("too long", "input_tokens"))
    sink = generate(running)
    assert (sink.end, sink.message) == ("refused", "prompt: vLLM refuses the request: too long")


@pytest.mark.parametrize(
    ("error", "cause", "said"),
    [
        (Failed(), ValueError("NaN"), "ValueError('NaN')"),
        (Failed("no room"), None, "Failed('no room')"),  # as vLLM 0.33's GenerationError
    ],
)
def test_an_error_in_one_request_says_its_cause_or_itself(runtime, error, cause, said):
    error.__cause__ = cause
    running, _ = runtime(error)
    sink = generate(running)
    assert (sink.end, sink.message) == ("failed", f"generation failed: vLLM failed: {said}")


OLDER, NEWER = ("VLLMValidationError",), ("VLLMClientError", "GracefulHTTPError", "GenerationError")


@pytest.mark.parametrize("names", [OLDER, (*OLDER, *NEWER)])
def test_the_errors_that_a_version_has_are_told_apart(monkeypatch, names):
    """A package of the names that Library.load imports; from 0.29 on, there are more errors."""
    errors = {name: type(name, (Exception,), {}) for name in names}
    fields: dict[str, dict[str, Any]] = {
        "vllm": {"__version__": "0", "__path__": []},
        "vllm.engine": {"__path__": []},
        "vllm.engine.arg_utils": {"AsyncEngineArgs": None},
        "vllm.exceptions": errors,
        "vllm.lora": {"__path__": []},
        "vllm.lora.request": {"LoRARequest": None},
        "vllm.platforms": {"current_platform": SimpleNamespace(is_cpu=lambda: True)},
        "vllm.sampling_params": {
            "RequestOutputKind": SimpleNamespace(DELTA="DELTA"),
            "SamplingParams": None,
            "StructuredOutputsParams": None,
        },
        "vllm.v1": {"__path__": []},
        "vllm.v1.engine": {"__path__": []},
        "vllm.v1.engine.async_llm": {"AsyncLLM": None},
        "vllm.v1.engine.exceptions": {"EngineDeadError": Ended, "EngineGenerateError": Failed},
    }
    for name, values in fields.items():
        module = ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    found = Library.load()
    known = [errors[name] for name in errors if name in ("GenerationError", "GracefulHTTPError")]
    assert {*found.failed} == {Failed, *known}
    assert {*found.refused} == {ValueError, *errors.values()} - {*known}


@pytest.mark.parametrize(
    ("version", "is_on_cpu", "given", "wanted"),
    [
        ("0.27.1", True, {}, True),
        ("0.28.0", True, {}, True),
        ("0.27.1", True, {"use_fp64_gumbel": False}, False),
        ("0.27.1", False, {}, None),
        ("0.29.0", True, {}, None),
        ("1.0", True, {}, None),
    ],
)
def test_older_samplers_for_cpus_draw_in_the_way_that_keeps_seeds(
    monkeypatch, version, is_on_cpu, given, wanted
):
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    library = replace(
        LIBRARY,
        version=version,
        is_on_cpu=is_on_cpu,
        engine_args=lambda **arguments: arguments,
        llm=SimpleNamespace(from_engine_args=lambda arguments, stat_loggers: arguments),
    )
    started = library.start(Path("/engine"), json.dumps(given), stat_logger=None)
    assert started.get("use_fp64_gumbel") is wanted


def test_vllms_processes_are_spawned_whatever_the_environment_says(monkeypatch):
    """Its default on GPUs is a fork, of a process with Triton's threads."""
    monkeypatch.setattr(shutil, "which", lambda _: None)  # this process keeps its own Python
    environ = {"VLLM_WORKER_MULTIPROC_METHOD": "fork"}
    prepare_process(environ, {"devices": ""})
    assert environ["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ([output(4)], "ended without a finish reason"),
        ([output(4, end="error")], "the reason 'error'"),
        ([output(4, 5, end="stop", logprobs=[probs(t4=-1)])], "1 log-probabilities for 2 tokens"),
    ],
)
def test_an_output_that_lacks_something_fails_the_request(runtime, steps, problem):
    running, _ = runtime(*steps)
    wanted = SamplingParams(temperature=0, log_probs=0)
    steps_have_probs = steps[0].outputs[0].logprobs is not None
    sink = generate(running, wanted if steps_have_probs else GREEDY)
    assert sink.end == "failed"
    assert problem in sink.message


def test_log_probabilities_are_ranked_and_the_sampled_token_has_its_own(runtime):
    found = [probs(t4=-3.0, t7=-0.5, t8=-1.0)]
    running, _ = runtime(output(4, end="stop", logprobs=found))
    (token,) = generate(running, SamplingParams(temperature=0, log_probs=2)).tokens
    assert token.log_probs.sampled == -3.0
    assert token.log_probs.top == ((7, -0.5), (8, -1.0))


def test_an_echo_without_new_tokens_drops_the_one_that_vllm_must_generate(runtime):
    prompt = [None, probs(t6=-1.0), probs(t7=-2.0)]
    running, engine = runtime(output(4, end="length", prompt=prompt, logprobs=[probs(t4=0.0)]))
    sink = generate(
        running, SamplingParams(temperature=0, log_probs=0), echoes_prompt=True, max_tokens=0
    )
    assert [token.id for token in sink.echoed] == PROMPT
    assert [token.log_probs.sampled for token in sink.echoed][1:] == [-1.0, -2.0]
    assert (sink.ids, sink.end) == ([], "length")
    assert engine.asked[0][1].max_tokens == 1


def picture(width: int = 3, height: int = 2, *, kind: str = "PNG") -> bytes:
    with io.BytesIO() as file:
        Image.new("1" if kind == "PNG" else "RGB", (width, height)).save(file, kind)
        return base64.b64encode(file.getvalue())


def test_images_reach_vllm_decoded_and_their_tokens_are_counted(runtime):
    running, engine = runtime(output(4, end="length"))
    kinds = ("PNG", "JPEG", "GIF", "WEBP")
    sink = generate(running, images=tuple(picture(kind=kind) for kind in kinds))
    assert (sink.ids, sink.end, sink.prompt_tokens) == ([4], "length", 9)
    found = engine.asked[0][0]["multi_modal_data"]["image"]
    assert [(one.mode, one.size) for one in found] == [("RGB", (3, 2))] * 4
    assert generate(running).prompt_tokens is None


def test_a_transparent_image_stands_on_white(runtime):
    running, engine = runtime(output(4, end="length"))
    with io.BytesIO() as file:
        Image.new("RGBA", (1, 1), (255, 0, 0, 0)).save(file, "PNG")
        generate(running, images=(base64.b64encode(file.getvalue()),))
    (found,) = engine.asked[0][0]["multi_modal_data"]["image"]
    assert found.getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize(
    ("images", "more", "refused"),
    [
        ((picture(), b"no base64!"), {}, "image: image 2 cannot be decoded"),
        ((picture()[:-40],), {}, "image: image 1 cannot be decoded"),
        ((picture(kind="BMP"),), {}, "image: image 1 cannot be decoded"),
        ((picture(), picture(8000, 7000)), {}, "image: the images have more than 50,000,000"),
        ((picture(),), {"echoes_prompt": True}, "echo_prompt: a prompt with images"),
    ],
)
def test_images_that_cannot_be_shown_are_refused_by_name(runtime, images, more, refused):
    running, engine = runtime(output(4, end="stop"))
    sink = generate(running, images=images, **more)
    assert sink.end == "refused"
    assert sink.message.startswith(refused)
    assert not engine.asked


def test_few_prompts_with_images_wait_for_their_first_token_at_once(runtime):
    first = asyncio.Event()
    running, engine = runtime(output(4), output(4, end="stop"), waits_for=first)
    sinks = [generate(running, images=(picture(),), wait=False) for _ in range(IMAGES_AT_ONCE + 2)]
    text = generate(running, wait=False)
    eventually(lambda: len(engine.asked) == IMAGES_AT_ONCE + 1, 5, "all that may be are asked for")
    running._loop.call_soon_threadsafe(first.set)
    for sink in (*sinks, text):
        assert sink.is_over.wait(HANG_S)
        assert sink.ids == [4, 4]


def test_a_prompt_that_images_make_too_long_says_so(runtime):
    running, _ = runtime(Refused("The prompt is longer than the maximum model length of 8"))
    sink = generate(running, images=(picture(),))
    assert (sink.end, sink.code) == ("refused", "context_length_exceeded")


@pytest.mark.parametrize("interval", [*vllm_client.INTERVALS, 7])
@pytest.mark.parametrize("steps", [1, 2, 8, 23])
def test_outputs_of_several_steps_lose_no_token_and_keep_the_order(interval, steps):
    assert vllm_client.over_async_llm(interval, rows=3, steps=steps) > 0


def test_a_cancel_aborts_the_request_of_vllm(runtime):
    running, engine = runtime(*[output(4)] * 1000, step_s=0.01)
    sink = generate(running, wait=False)
    sink.after = lambda count: running.cancel("r")
    assert sink.is_over.wait(HANG_S)
    assert sink.end == "cancelled"
    assert engine.aborted == 1
    assert not running.cancel("another"), "the shell remembers it: the request may still come"
    assert running.cancel("r"), "it has ended: the shell need not remember the stop"


@pytest.mark.parametrize("how", ["it has ended", "it hangs"])
def test_an_engine_that_ends_or_hangs_ends_all_jobs_and_the_process(runtime, how):
    died, reasons = threading.Event(), []

    def die(reason: str) -> None:
        reasons.append(reason)
        died.set()

    running, engine = runtime(output(4), step_s=60, die=die, hang_s=0.3 if "hang" in how else 0)
    sink = generate(running, wait=False)
    engine.errored = how == "it has ended"
    assert died.wait(HANG_S)
    assert (sink.end, sink.message) == ("failed", reasons[0])
    assert "vllm.hang_seconds" in reasons[0] or "has ended" in reasons[0]


def test_statistics_of_iterations():
    stats, now = Stats(), [100.0]
    recorder = StatRecorder(stats, lambda: None, lambda: now[0])
    config = SimpleNamespace(
        scheduler_config=SimpleNamespace(max_num_seqs=8),
        cache_config=SimpleNamespace(num_gpu_blocks=40, block_size=16),
    )
    assert recorder.connected(config) is recorder
    assert (stats.most_rows, stats.kv_blocks, stats.kv_block_tokens) == (8, 40, 16)

    def iteration(prompt: int, tokens: int, rows: int) -> None:
        recorder.record(
            SimpleNamespace(
                num_running_reqs=rows,
                num_waiting_reqs=2,
                num_skipped_waiting_reqs=1,
                kv_cache_usage=0.5,
            ),
            SimpleNamespace(
                num_prompt_tokens=prompt, num_generation_tokens=tokens, num_preempted_reqs=1
            ),
        )

    iteration(30, 1, 2)
    now[0] += 0.5
    iteration(0, 2, 2)
    assert (stats.prefill_tokens, stats.decode_tokens, stats.decode_seconds) == (30, 3, 0.5)
    assert (stats.rows, stats.waiting, stats.kv_blocks_used, stats.preemptions) == (2, 3, 20, 2)
    now[0] += 1000  # idle: nothing is recorded then
    recorder.record(None, None)
    assert stats.decode_seconds == 0.5
