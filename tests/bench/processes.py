"""CPU and memory of a running stack, by process."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from tests.fixtures.stack import Stack


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds since the process began, and resident bytes, by part."""

    cpu_s: dict[str, float]
    memory: dict[str, int]

    def since(self, before: Usage, tokens: int) -> dict[str, float]:
        """Microseconds a token by part."""
        return {
            f"{part}_us": (self.cpu_s[part] - before.cpu_s[part]) / max(1, tokens) * 1e6
            for part in self.cpu_s
        }


class Processes:
    """The proxy, tritonserver, and the stub of each role of one model."""

    def __init__(self, stack: Stack, model: str) -> None:
        main = psutil.Process(stack.process.pid)
        triton = stack.tritonserver()
        self._parts = {"proxy": [main], "tritonserver": [triton]}
        for role in ("tokenizer", "engine", "detokenizer"):
            word = f"/{model}_{role}/"
            self._parts[role] = [
                process
                for process in triton.children(recursive=True)
                if word in " ".join(process.cmdline()) and "stub" in process.name()
            ]

    def usage(self) -> Usage:
        cpu, memory = {}, {}
        for part, processes in self._parts.items():
            times = [process.cpu_times() for process in processes]
            cpu[part] = sum(one.user + one.system for one in times)
            memory[part] = sum(process.memory_info().rss for process in processes)
        return Usage(cpu, memory)
