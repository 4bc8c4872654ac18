"""As tests/engine has it: the Python models on the path, and small models to run them on."""

from __future__ import annotations

from tests.engine.conftest import artifacts, compiler, runtime, vocabulary

__all__ = ["artifacts", "compiler", "runtime", "vocabulary"]  # fixtures
