"""One running stack for all tests of this folder: `demo`, and `endless`, which never ends early."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import openai
import pytest
import yaml

from tests.fixtures.scripted import scripted
from tests.fixtures.stack import ROOT, SECRET, Stack, free_port, stopped_at_the_end

ARTIFACTS = ROOT / "artifacts" / "tests"
ROWS = 8  # of `endless`
Start = Callable[..., Stack]
PATIENCE_S = 1.5  # with readers of the `scripted` stack
WORKERS = 2
SCRIPTED = {
    "thinker": scripted(
        "<think>\nThe guest greets me.\n</think>\n\nHello to you!",
        after={"</think>\n\n": "Hello at once!"},
        more={"reasoning_parser": "qwen3"},
    ),
    "steady": scripted(repeats=True, step_ms=6.0),
    "flood": scripted(repeats=True, step_tokens=16, more={"hold_ms": 0}),
}


@pytest.fixture(scope="session")
def models_file() -> Path:
    """Kept between runs, so that only the first one builds."""
    endless = ARTIFACTS / "weights" / "endless"
    if not (endless / "config.json").exists():
        endless.mkdir(parents=True, exist_ok=True)
        maker = ROOT / "tests" / "fixtures" / "random_model.py"
        subprocess.run([sys.executable, str(maker), "llama", str(endless)], check=True)
    demo = yaml.safe_load((ROOT / "models.yaml").read_text())["models"]["demo"]
    models = {
        "demo": {**demo, "weights": str(ROOT / demo["weights"]), "aliases": ["gpt-4o-mini"]},
        "endless": {"weights": str(endless), "onnx": {"threads": 1, "max_rows": ROWS}},
    }
    path = ARTIFACTS / "models.yaml"
    path.write_text(yaml.safe_dump({"models": models}))
    return path


@pytest.fixture(scope="session")
def start(models_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """start("serve", NAME=value, …) -> a stack that is stopped at the end at the latest.

    None takes one of the usual variables away.
    """
    with stopped_at_the_end() as stacks:

        def run(
            *command: str, module: str = "triton_openai.proxy.cli", **settings: object
        ) -> Stack:
            environment = {
                "MODELS_FILE": models_file,
                "ARTIFACTS_DIR": ARTIFACTS,
                "PORT": free_port(),
                "TRITON_GRPC_PORT": free_port(),
                "TRITON_HTTP_PORT": free_port(),
                "TRITON_METRICS_PORT": free_port(),
                "TRITON_SECRET": SECRET,
                **settings,
            }
            log = tmp_path_factory.mktemp("log") / "log.txt"
            given = {name: value for name, value in environment.items() if value is not None}
            text = {name: str(value) for name, value in given.items()}
            stack = Stack([*command], text, log, module)
            stacks.append(stack)
            return stack

        yield run


@pytest.fixture(scope="session")
def stack(start: Start) -> Stack:
    started = start("serve")
    started.wait_ready(within_s=110)
    return started


@pytest.fixture(scope="session")
def scripted_stack(start: Start) -> Stack:
    """Engines that say what they are told, behind a proxy of several processes."""
    folder = ARTIFACTS / "scripted"
    folder.mkdir(parents=True, exist_ok=True)
    models_file = folder / "models.yaml"
    models_file.write_text(yaml.safe_dump({"models": SCRIPTED}))
    started = start(
        "serve",
        MODELS_FILE=models_file,
        ARTIFACTS_DIR=folder,
        WORKERS=WORKERS,
        SLOW_READER_TIMEOUT_S=PATIENCE_S,
    )
    started.wait_ready(within_s=240)
    return started


@pytest.fixture
def client(stack: Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{stack.url}/v1", api_key="none", max_retries=0) as made:
        yield made
