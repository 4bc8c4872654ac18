"""The child of sandbox.py: compiles guides under limits, and ends when its parent does.

usage: sandbox_main.py INFO_FILE MEMORY_BYTES TIMEOUT_S    standard input: a socket of JSON lines
A compile that takes longer ends the process, by SIGALRM.
First it sends {"error": null or why it cannot work}; then for each [kind, text] {"reason": ...}.
"""

from __future__ import annotations

import json
import os
import queue
import resource
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from grammars import compile_guide, reason

WALK_TOKENS = 32
WALK_CPU_S = 0.8  # 25 ms a token; a sound guide takes less than one
MB = 1_000_000


def main() -> None:
    """This thread waits for the parent's end; compiling, which lets go of the GIL, is the other's.

    The end of the input ends the process, even amid a compile.
    """
    connection = socket.socket(fileno=0)
    questions: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_work, args=(connection, questions), daemon=True).start()
    for line in connection.makefile("rb"):
        questions.put(line)
    os._exit(0)


def _work(connection: socket.socket, questions: queue.Queue[bytes]) -> None:
    memory_bytes, timeout_s = int(sys.argv[2]), float(sys.argv[3])
    try:
        compiler = _compiler(Path(sys.argv[1]))
        _limit(memory_bytes)
    except Exception as error:
        _send(connection, {"error": f"{type(error).__name__}: {error}"})
        return
    _send(connection, {"error": None})
    while True:
        kind, text = json.loads(questions.get())
        signal.setitimer(signal.ITIMER_REAL, timeout_s)  # needs no GIL to be heard
        try:
            answer = _unfit(compile_guide(compiler, kind, text))
        except Exception as error:
            if isinstance(error, MemoryError) or "std::bad_alloc" in str(error):
                _send(connection, {"reason": f"it needs more than {memory_bytes // MB} MB"})
                os._exit(0)  # what it had is not all given back
            answer = reason(error)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(connection, {"reason": answer})


def _send(connection: socket.socket, answer: dict[str, str | None]) -> None:
    connection.sendall(json.dumps(answer).encode() + b"\n")


def _compiler(info_file: Path) -> Any:
    import xgrammar

    info = xgrammar.TokenizerInfo.deserialize_json(info_file.read_text(encoding="utf-8"))
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
    _unfit(compile_guide(compiler, "json", ""))  # so that the baseline has it all
    return compiler


def _limit(memory_bytes: int) -> None:
    """So much address space beyond what the process has now; and no core file, whatever happens."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _unfit(grammar: Any) -> str | None:
    """Follows the guide for some tokens: some compile quickly and then take seconds a token."""
    import xgrammar

    matcher = xgrammar.GrammarMatcher(grammar)
    vocab_size = grammar.tokenizer_info.vocab_size
    mask = np.empty((1, -(-vocab_size // 32)), dtype=np.int32)
    random = np.random.default_rng(0)
    start = time.thread_time()
    for step in range(WALK_TOKENS):
        matcher.fill_next_token_bitmask(mask)
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
        if not len(allowed):
            return None if step else "no text matches it"
        going_on = np.setdiff1d(allowed, matcher.stop_token_ids)
        if not len(going_on):
            return None
        matcher.accept_token(int(random.choice(going_on)))
        if time.thread_time() - start > WALK_CPU_S:
            return "it is too ambiguous to be followed token by token"
    return None


if __name__ == "__main__":
    main()
