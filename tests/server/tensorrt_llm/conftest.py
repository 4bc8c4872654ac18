"""One tritonserver with a model on each of TensorRT-LLM's roads, and a proxy in front of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import httpx
import pytest
from tritonclient.grpc import service_pb2_grpc

from proxy.domain.engine import EngineRequest
from proxy.domain.model import CAPABILITIES, ModelCard
from proxy.domain.request import Sampling
from proxy.triton import codec
from tests.doubles.engine import FACTS
from tests.fixtures.adapters import write
from tests.fixtures.running import Start
from tests.fixtures.stack import SECRET, Stack, eventually, free_ports, stopped_at_the_end
from tests.fixtures.trtllm_models import TrtllmModels
from tests.server.tensorrt_llm.streams import STREAMS

Run = Callable[..., Stack]
MODELS = ("llm", "slow", "mortal", "stuck", "cpp")


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> TrtllmModels:
    made = TrtllmModels(tmp_path_factory.mktemp("artifacts"))
    folder = tmp_path_factory.mktemp("adapters")
    adapters = {name: write(folder / name) for name in ("sql", "poet")}
    made.add_llm_api("llm", {}, adapters=adapters)
    made.add_llm_api("slow", {"step_s": 0.02, "tokens_a_response": 2, "empty_last": True})
    made.add_llm_api("mortal", {"crash_at": 8, "step_s": 0.1})
    made.add_llm_api("stuck", {"stall_at": 3, "step_s": 0.05}, hang_seconds=2)
    made.add_cpp_backend("cpp", STREAMS)
    return made


@pytest.fixture(scope="session")
def run(start_shared: Start, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """run(artifacts) -> a tritonserver over that folder; run(proxy_for=triton) -> a proxy. They end
    with `start_shared`.
    """
    with stopped_at_the_end() as stacks:

        def started(artifacts: Path | None = None, proxy_for: Stack | None = None) -> Stack:
            folder = tmp_path_factory.mktemp("run")
            environment = {**free_ports(), "TRITON_SECRET": SECRET}
            environment["ARTIFACTS_DIR"] = str(artifacts or folder)
            command, module = [], "tests.fixtures.rendered_triton"
            if proxy_for is not None:
                target = f"grpc://127.0.0.1:{proxy_for.triton_grpc_port}"
                command, module = ["proxy", "--triton", target], "proxy.cli"
                others = folder / "others.yaml"
                others.write_text("models: {another: {weights: w}}")
                environment |= {"MODELS_FILE": str(others), "MAX_RESENDS": "1"}
                environment |= {"SANDBOX_PROCESSES": "1"}
                environment |= {"TRITON_METRICS_PORT": str(proxy_for.triton_metrics_port)}
            stack = Stack(command, environment, folder / "log.txt", module)
            stacks.append(stack)
            return stack

        yield started


@pytest.fixture(scope="session")
def triton(run: Run, models: TrtllmModels) -> Stack:
    return run(models.artifacts)


def answers(proxy: Stack, model: str) -> bool:
    body = {"model": model, "prompt": [10, 60, 61], "max_tokens": 1, "temperature": 0}
    return httpx.post(f"{proxy.url}/v1/completions", json=body).status_code == 200


@pytest.fixture(scope="session")
def proxy(run: Run, triton: Stack) -> Stack:
    return run(proxy_for=triton)


@pytest.fixture
def stack(triton: Stack, proxy: Stack) -> Stack:
    """The proxy, once each model answers, whatever the test before did to it."""

    def is_ready() -> bool:
        assert triton.process.poll() is None, triton.log.read_text()
        return proxy.is_ready() and all(answers(proxy, one) for one in MODELS)

    eventually(is_ready, 110, "Triton and the proxy are ready")
    return proxy


@pytest.fixture
def ask(triton: Stack, stack: Stack) -> Iterator[Callable[..., str]]:
    """ask(prompt ids, model, …) -> the ensemble's text, or what it refuses with."""
    numbers = itertools.count()
    with grpc.insecure_channel(f"127.0.0.1:{triton.triton_grpc_port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

        def asked(
            prompt,
            model,
            sampling=Sampling(temperature=0.0),  # noqa: B008
            adapter=None,
            **fields,
        ) -> str:
            is_cpp = model == "cpp"
            lacks = {"queue_time", "prompt_blocks"}
            if is_cpp:
                lacks |= {"deadline", "engine_times"}
            card = ModelCard(
                name=adapter or model,
                parent=model if adapter else None,
                triton_model=model,
                facts=replace(FACTS, runtime="tensorrtllm" if is_cpp else "tensorrt_llm"),
                capabilities=CAPABILITIES - lacks,
            )
            message = codec.encode(
                EngineRequest(
                    id=f"ask-{next(numbers)}",
                    model=card,
                    token_ids=tuple(prompt),
                    sampling=sampling,
                    timeout_s=30,
                    **fields,
                )
            )
            message.parameters.pop("guide_may_be_pending", None)  # it waits where others ask again
            text = b""
            for response in stub.ModelStreamInfer(iter([message])):
                if response.error_message:
                    return response.error_message
                delta = codec.decode(response.infer_response).delta
                text += b"".join(delta.token_bytes if delta else ())
            return text.decode()

        yield asked
