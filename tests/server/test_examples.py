"""Every file of examples/ does what it says, against a running server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import openai
import pytest

from tests.fixtures import only_packages
from tests.fixtures.running import ARTIFACTS
from tests.fixtures.stack import HANG_S, ROOT, Stack

EXAMPLES = ROOT / "examples"
# Regular expressions that what it prints contains, in this order.
PRINTS = {
    "chat.sh": [r'"content":"\w', r'"delta":\{"content":"\w', r"data: \[DONE\]"],
    "stream.py": [r"\w+ \w+", r"\n\d+ tokens"],
    "tools_loop.py": [r'get_weather\(\{"city": ?"Rome"\}\)', r"21"],
    "json_schema.py": [r"Person\(name='Anna Berg', age=31, city='Rome'\)"],
    "guided_choice.py": [r"^(yes|no|maybe)$"],
    "logprobs.py": [r"(?m)^'\w+' +[01]\.\d{4} +\[\(.+\), \(.+\)\]$"],
    "token_ids.py": [r"\d+ tokens: \[\d", r"new ids: \[\d", r"\w"],
    "perf_analyzer.sh": [r"Successful request count: 40", r"throughput: \d"],
}
OTHERS = {"README.md", "own_model.yaml"}


def test_each_file_is_run_and_listed():
    files = {path.name for path in EXAMPLES.iterdir() if path.is_file()}
    assert files == {*PRINTS, *OTHERS}
    listed = re.findall(
        r"^\| \[([\w.]+)\]\(\1\)", (EXAMPLES / "README.md").read_text(), re.MULTILINE
    )
    assert sorted([*listed, "README.md"]) == sorted(files)


@pytest.mark.parametrize("name", PRINTS)
def test_an_example_prints_what_it_is_for(stack: Stack, name):
    if name == "perf_analyzer.sh" and shutil.which("perf_analyzer") is None:
        pytest.skip("perf_analyzer is not on PATH: docs/performance.md says where to get it")
    path = EXAMPLES / name
    environment = {
        **os.environ,
        "OPENAI_BASE_URL": f"{stack.url}/v1",
        "TRITON": f"127.0.0.1:{stack.triton_grpc_port}",
    }
    command = [str(path)]
    if path.suffix == ".py":
        command = [sys.executable, only_packages.__file__, str(path)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert done.returncode == 0, done.stderr
    rest = done.stdout.strip()
    for pattern in PRINTS[name]:
        found = re.search(pattern, rest)
        assert found, f"{pattern!r} is not in {rest!r}"
        rest = rest[found.end() :]


def test_a_package_that_the_head_does_not_name_is_hidden_from_an_example(tmp_path):
    program = tmp_path / "program.py"
    program.write_text('# /// script\n# dependencies = ["openai"]\n# ///\nimport openai, numpy\n')
    command = [sys.executable, only_packages.__file__, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr.endswith("No module named 'numpy'\n")


def test_the_own_model_is_served_under_both_names(start):
    own = {"MODELS_FILE": EXAMPLES / "own_model.yaml", "ARTIFACTS_DIR": ARTIFACTS / "own_model"}
    started = start("serve", **own)
    started.wait_ready(within_s=110)
    with openai.OpenAI(base_url=f"{started.url}/v1", api_key="none") as client:
        for name in ("mine", "gpt-4o-mini"):
            answer = client.chat.completions.create(
                model=name, messages=[{"role": "user", "content": "Hello!"}]
            )
            assert answer.choices[0].message.content
    started.stop()
