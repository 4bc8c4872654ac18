"""Time to first token through the proxy, against a direct gRPC stream on the same ensemble.

usage: make bench-ttft        (`make serve` must be running; HOST, PORT, TRITON_GRPC_PORT as there)

Both are asked in turn, so that noise hits both alike; what counts is the difference of medians.
"""

from __future__ import annotations

import json
import socket
import statistics
import sys
import time
from collections.abc import Callable

import grpc
from tritonclient.grpc import service_pb2_grpc

from proxy.domain.engine import EngineRequest
from proxy.domain.model import ModelCard
from proxy.domain.request import Sampling
from proxy.settings import Settings
from proxy.triton import codec
from tests.doubles.engine import FACTS

PROMPT = "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n"
ROUNDS, REQUESTS = 5, 200


def direct(target: str) -> Callable[[], float]:
    """Seconds from the call to the first response, over one channel."""
    stub = service_pb2_grpc.GRPCInferenceServiceStub(grpc.insecure_channel(target))
    card = ModelCard(name="demo", triton_model="demo", facts=FACTS)
    message = codec.encode(
        EngineRequest(
            id="", model=card, text=PROMPT, max_tokens=2, timeout_s=10,
            sampling=Sampling(temperature=0.0),
        )
    )  # fmt: skip

    def once() -> float:
        start = time.perf_counter()
        call = stub.ModelStreamInfer(iter([message]))
        next(call)
        first = time.perf_counter() - start
        for _ in call:
            pass
        return first

    return once


def through_proxy(host: str, port: int) -> Callable[[], float]:
    """Seconds from the request to the first bytes of its body, over one connection."""
    body = {
        "model": "demo",
        "messages": [{"role": "user", "content": "Hello!"}],
        "max_tokens": 2,
        "stream": True,
    }
    content = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    sock = socket.create_connection((host, port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def once() -> float:
        start = time.perf_counter()
        sock.sendall(head.encode() + content)
        data, first = b"", 0.0
        while not data.endswith(b"0\r\n\r\n"):
            data += sock.recv(65536)
            if not first and b"data: " in data:
                first = time.perf_counter() - start
        return first

    return once


def main() -> None:
    settings = Settings()
    ways = {
        "direct gRPC": direct(settings.triton_target),
        "through the proxy": through_proxy(settings.host, settings.port),
    }
    added = []
    for number in range(ROUNDS):
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(REQUESTS):
            for name, once in ways.items():
                taken[name].append(once() * 1000)
        p50 = {name: statistics.median(times) for name, times in taken.items()}
        added.append(p50["through the proxy"] - p50["direct gRPC"])
        told = ", ".join(f"{name} {ms:.2f} ms" for name, ms in p50.items())
        sys.stdout.write(f"round {number + 1}: p50 {told}, added {added[-1]:.2f} ms\n")
    sys.stdout.write(
        f"added to the time to first token, median: {statistics.median(added):.2f} ms\n"
    )


if __name__ == "__main__":
    main()
