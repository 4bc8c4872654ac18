"""Small faults, one a mutant: of the hot path, from the engine's tokens to the client's bytes, and
of what we pass to TensorRT-LLM.
"""

from __future__ import annotations

from tests.mutants.mutant import Mutant

ENGINE = "model_repository/engine/1"
CHOICE = "proxy/generation/choice"
CHAT = "proxy/api/openai/renderers.py"
ENGINE_TESTS = ("tests/engine/test_response_writer.py", "tests/engine/test_scripted_runtime.py")
CHOICE_TESTS = ("tests/unit/generation/choice",)
API_TESTS = (
    "tests/api/answers/test_fold.py",
    "tests/api/answers/test_generation.py",
    "tests/api/answers/test_parameters.py",
)
STREAM_TESTS = ("tests/server/test_streams.py",)
GPU = "build_engines/gpu"
RECORD_TESTS = ("tests/unit/build_engines/gpu/legacy/test_upstream_flags.py",)
ARGUMENT_TESTS = ("tests/engine/test_trtllm_arguments.py",)

CATALOGUE = (
    Mutant(
        fault="the engine drops the last token of a response",
        path=f"{ENGINE}/stream.py",
        before="tokens, self._tokens = self._tokens, []",
        after="tokens, self._tokens = self._tokens[:-1] or self._tokens, []",
        tests=ENGINE_TESTS,
    ),
    Mutant(
        fault="tokens that wait together are sent in the wrong order",
        path=f"{ENGINE}/stream.py",
        before="self._tokens.append(token)",
        after="self._tokens.insert(0, token)",
        tests=ENGINE_TESTS,
    ),
    Mutant(
        fault="the engine ignores a request's deadline",
        path=f"{ENGINE}/stream.py",
        before="if now >= self._deadline:",
        after="if now < 0:",
        tests=("tests/engine/test_response_writer.py",),
    ),
    Mutant(
        fault="callers with other cache salts share cached prefixes",
        path=f"{ENGINE}/block_log.py",
        before="hashlib.blake2b(salt.encode(), digest_size=16)",
        after="hashlib.blake2b(b'', digest_size=16)",
        tests=("tests/engine/test_scheduler.py", "tests/engine/test_onnx_runtime.py"),
    ),
    Mutant(
        fault="the detokenizer returns a response's texts in the wrong order",
        path="model_repository/detokenizer/1/model.py",
        before="self._table.lookup(ids.ravel().tolist())",
        after="self._table.lookup(ids.ravel().tolist())[::-1]",
        tests=("tests/server/test_triton_direct.py", *STREAM_TESTS),
    ),
    Mutant(
        fault="texts of other token ids are taken for the stream's own",
        path="proxy/triton/codec.py",
        before="if raw.pop(tensors.RECEIPT, None) != ids + mark:",
        after="if raw.pop(tensors.RECEIPT, None) is None:",
        tests=("tests/unit/triton/test_codec.py",),
    ),
    Mutant(
        fault="the engine takes a prompt that was tokenized for another request",
        path=f"{ENGINE}/model.py",
        before="not in (None, request_id):",
        after="== request_id == b'':",
        tests=("tests/server/test_triton_direct.py",),
    ),
    Mutant(
        fault="alternatives of a token are those of the first token",
        path="proxy/triton/codec.py",
        before="top[at * each : (at + 1) * each]",
        after="top[:each]",
        tests=("tests/unit/triton/test_codec.py",),
    ),
    Mutant(
        fault="no stop goes to the engine when a client disconnects",
        path="proxy/triton/client.py",
        before="                if has_ended:\n                    stream.release()",
        after="                if has_ended or has_begun:\n                    stream.release()",
        tests=("tests/server/test_leaving.py",),
    ),
    Mutant(
        fault="a character that is split between tokens is lost",
        path=f"{CHOICE}/answer_text.py",
        before="text = self._decoder.decode(data)",
        after="text = self._decoder.decode(data, final=True)",
        tests=CHOICE_TESTS,
    ),
    Mutant(
        fault="the beginning of a stop string leaks",
        path="proxy/language/syntax/stop_matcher.py",
        before="safe = len(buffer) - automaton.depth[self._node]",
        after="safe = len(buffer)",
        tests=CHOICE_TESTS,
    ),
    Mutant(
        fault="the stop string itself is sent",
        path="proxy/language/syntax/stop_matcher.py",
        before="return buffer if self._includes_stop else buffer[:-length]",
        after="return buffer",
        tests=CHOICE_TESTS,
    ),
    Mutant(
        fault="a stop string ends an answer before min_tokens",
        path=f"{CHOICE}/answer_text.py",
        before="self._stops.is_on = self._cost.tokens > self._min_tokens",
        after="self._stops.is_on = True",
        tests=(*CHOICE_TESTS, "tests/api/answers/test_parameters.py"),
    ),
    Mutant(
        fault="usage counts a delta of several tokens as one",
        path=f"{CHOICE}/choice.py",
        before="self._cost.tokens += len(delta.token_bytes)",
        after="self._cost.tokens += 1",
        tests=(*CHOICE_TESTS, *API_TESTS),
    ),
    Mutant(
        fault="usage counts the prompt with each choice",
        path=f"{CHOICE}/choice_cost.py",
        before="        if self._counts_prompt:\n",
        after="        if self._counts_prompt or delta:\n",
        tests=(*CHOICE_TESTS, *API_TESTS),
    ),
    Mutant(
        fault="usage has no cached tokens",
        path=f"{CHOICE}/choice_cost.py",
        before="self._cached = delta.cached_tokens or 0",
        after="self._cached = 0",
        tests=(*CHOICE_TESTS, *API_TESTS),
    ),
    Mutant(
        fault="choices of one request have the same seed",
        path="proxy/domain/request.py",
        before="seed=sampling.seed + candidate",
        after="seed=sampling.seed",
        tests=API_TESTS,
    ),
    Mutant(
        fault="a permit is lost with each request",
        path="proxy/access/concurrency.py",
        before="            self.running -= count",
        after="            pass",
        tests=(
            "tests/unit/access",
            "tests/api/limits/test_admission.py",
        ),
    ),
    Mutant(
        fault="a stream that has begun is sent again from its beginning",
        path="proxy/generation/stream/engine_stream.py",
        before="if cause is Cause.LOST and not self._has_deltas:",
        after="if cause is Cause.LOST:",
        tests=("tests/unit/generation/test_failover.py",),
    ),
    Mutant(
        fault="a continued stream counts its prompt again",
        path="proxy/generation/stream/engine_stream.py",
        before="delta = replace(delta, prompt_tokens=None, cached_tokens=None)",
        after="pass",
        tests=("tests/api/lost_engines/test_continuation.py",),
    ),
    Mutant(
        fault="a stream that is preempted keeps its row",
        path="proxy/generation/stream/engine_stream.py",
        before="                self._permit.release()\n                return State.QUEUED",
        after="                return State.QUEUED",
        tests=("tests/unit/generation/test_rows.py",),
    ),
    Mutant(
        fault="a stream ends without [DONE]",
        path="proxy/api/http/stream_format.py",
        before=r'end=b"data: [DONE]\n\n"',
        after='end=b""',
        tests=API_TESTS,
    ),
    Mutant(
        fault="an error in a stream that has begun is not sent",
        path="proxy/api/http/answer.py",
        before="self._format.error(body) + self._format.end",
        after="self._format.end",
        tests=("tests/api/wrong_requests/test_errors.py", *API_TESTS),
    ),
    Mutant(
        fault="a stream has no chunk with the role",
        path=CHAT,
        before="chunks = [] if self._has_begun else self._openings(event)",
        after="chunks: list[Json] = []",
        tests=("tests/unit/api/openai", *API_TESTS),
    ),
    Mutant(
        fault="all chunks are of the first choice",
        path=CHAT,
        before="choice = _choice(event.choice, self._delta(event))",
        after="choice = _choice(0, self._delta(event))",
        tests=API_TESTS,
    ),
    Mutant(
        fault="reasoning is sent as content",
        path=CHAT,
        before="return dict.fromkeys(self._reasoning_fields, event.text)",
        after='return {"content": event.text}',
        tests=("tests/unit/api", "tests/api/answers/test_fold.py", "tests/api/tools/test_tools.py"),
    ),
    Mutant(
        fault="arguments of all calls go to the first call",
        path=CHAT,
        before='{"index": event.index, **more}',
        after='{"index": 0, **more}',
        tests=("tests/api/tools/test_tools.py", "tests/api/answers/test_fold.py"),
    ),
    Mutant(
        fault="quantize.py gets a flag that upstream does not have",
        path=f"{GPU}/legacy/commands.py",
        before="return [*command, *_shards(options)]",
        after='return [*command, "--export_format", "tensorrt_llm", *_shards(options)]',
        tests=RECORD_TESTS,
    ),
    Mutant(
        fault="trtllm-build gets a choice that upstream does not have",
        path=f"{GPU}/legacy/commands.py",
        before='"--kv_cache_type", "paged"',
        after='"--kv_cache_type", "pages"',
        tests=RECORD_TESTS,
    ),
    Mutant(
        fault="a nested key of llm_args is one that upstream does not have",
        path=f"{GPU}/llm_args.py",
        before='"free_gpu_memory_fraction": options.kv_cache.fraction',
        after='"free_gpu_memory_share": options.kv_cache.fraction',
        tests=ARGUMENT_TESTS,
    ),
    Mutant(
        fault="a nested value of llm_args is one that upstream does not have",
        path=f"{GPU}/llm_args.py",
        before='"capacity_scheduler_policy": options.scheduler.upper()',
        after='"capacity_scheduler_policy": options.scheduler',
        tests=ARGUMENT_TESTS,
    ),
    Mutant(
        fault="a default is not upstream's",
        path=f"{GPU}/options.py",
        before="fraction: Annotated[float, Field(gt=0, le=1)] = 0.9",
        after="fraction: Annotated[float, Field(gt=0, le=1)] = 0.95",
        tests=RECORD_TESTS,
    ),
)
