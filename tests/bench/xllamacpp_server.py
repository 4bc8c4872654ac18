"""llama.cpp's HTTP server out of the package xllamacpp, until the process is terminated.

usage: python -m tests.bench.xllamacpp_server WEIGHTS PORT THREADS SLOTS CONTEXT
       (CONTEXT: tokens of all slots together)
"""

from __future__ import annotations

import signal
import sys

import xllamacpp


def serve(weights: str, port: int, threads: int, slots: int, context: int) -> None:
    options = xllamacpp.CommonParams()
    options.model.path = weights
    options.port = port
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = threads
    options.n_parallel, options.n_ctx = slots, context
    options.cont_batching = True
    options.cache_ram_mib = 0
    server = xllamacpp.Server(options)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    signal.pause()


if __name__ == "__main__":
    serve(sys.argv[1], *map(int, sys.argv[2:]))
