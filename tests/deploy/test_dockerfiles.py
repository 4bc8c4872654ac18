"""Dockerfiles: what can be told of an image without building it."""

from __future__ import annotations

import http.server
import json
import re
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.deploy.places import DOCKER, DOCKERFILES, ROOT, is_known
from tests.fixtures.stack import HANG_S

HADOLINT = Path(sys.executable).with_name("hadolint")
each_dockerfile = pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """(name, the rest) of each, lines joined."""
    text = re.sub(r"^\s*#.*\n", "", dockerfile.read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line.strip()]  # type: ignore[misc]


def told(dockerfile: Path, name: str) -> list[str]:
    return [rest for found, rest in instructions(dockerfile) if found == name]


def copied(dockerfile: Path) -> list[str]:
    """Sources out of the repository."""
    words = [shlex.split(rest) for rest in told(dockerfile, "COPY") if "--from" not in rest]
    return [word for line in words for word in line[:-1] if not word.startswith("--")]


@each_dockerfile
def test_hadolint_finds_nothing(dockerfile):
    result = subprocess.run([HADOLINT, dockerfile], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


@each_dockerfile
def test_what_is_copied_is_there_and_not_ignored(dockerfile):
    own = Path(f"{dockerfile}.dockerignore")
    rules = (own if own.exists() else ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in rules
    for source in copied(dockerfile):
        assert (ROOT / source.removesuffix("./")).exists(), source
        assert any(
            source == rule[1:] or source.startswith(f"{rule[1:]}/")
            for rule in rules
            if rule.startswith("!")
        ), f"{source} is ignored"


@each_dockerfile
def test_it_runs_as_a_number_that_is_not_root(dockerfile):
    user, _, group = told(dockerfile, "USER")[-1].partition(":")
    assert int(user) > 0
    assert int(group) > 0


@each_dockerfile
def test_its_variables_are_settings(dockerfile):
    names = re.findall(r"(\w+)=", " ".join(told(dockerfile, "ENV")))
    assert names
    assert [name for name in names if not is_known(name)] == []


@each_dockerfile
def test_every_base_image_can_be_pinned_and_is_recorded(dockerfile):
    """By an argument: a digest that nobody could check would be worse than none."""
    outside = [rest for rest in told(dockerfile, "FROM") if not rest.startswith("triton ")]
    arguments = [rest.split("=")[0] for rest in told(dockerfile, "ARG")]
    for image in outside:
        [digest] = re.findall(r"\$\{\w+_TAG\}\$\{(\w+_DIGEST):\+@\$\{\1\}\}", image)
        assert digest in arguments
    labels = " ".join(told(dockerfile, "LABEL"))
    assert re.search(r'image\.base\.digest="\$\{\w+_DIGEST\}"', labels)


def test_no_image_opens_tritons_http_port():
    for dockerfile in DOCKERFILES:
        assert "TRITON_HTTP_PORT" not in dockerfile.read_text()
        assert "8000" not in " ".join(told(dockerfile, "EXPOSE")).split()


def test_the_gpu_image_compiles_its_own_folders_and_nothing_of_nvidias():
    """/app is NVIDIA's, too, and `compileall` fails with the first file that is no Python."""
    run = " ".join(told(DOCKER / "triton.Dockerfile", "RUN"))
    [compiled] = re.findall(r"compileall -q (.+?) &&", run)
    assert all((ROOT / folder).is_dir() for folder in compiled.split())
    assert "." not in compiled.split()


def test_the_gpu_images_user_has_a_home_to_write_to():
    """NVIDIA's image names one for user 1000, but does not make it."""
    dockerfile = DOCKER / "triton.Dockerfile"
    assert re.search(r"\bHOME=/\S+", " ".join(told(dockerfile, "ENV")))
    [made] = re.findall(r"install --directory --owner=1000 .*", " ".join(told(dockerfile, "RUN")))
    assert '"$HOME"' in made


def test_the_cpu_image_has_torch_only_where_it_is_asked_for():
    [run] = [run for run in told(DOCKER / "cpu.Dockerfile", "RUN") if "torch" in run]
    assert run.startswith('if [ -n "${BUILD_TOOLS}" ]; then')
    assert "-r requirements-torch.txt --index-url" in run


@pytest.mark.parametrize(("status", "is_healthy"), [(200, True), (503, False)])
@each_dockerfile
def test_the_health_check_asks_the_port_of_the_settings(dockerfile, status, is_healthy):
    [check] = told(dockerfile, "HEALTHCHECK")
    python, *arguments = json.loads(check.partition("CMD ")[2])
    assert python.startswith("python")
    asked = []

    class Health(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Health) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        port = str(server.server_port)
        environment = {"PORT": port, "TRITON_METRICS_PORT": port}
        result = subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, timeout=HANG_S
        )
    assert (result.returncode == 0) is is_healthy
    assert asked in (["/health/live"], ["/metrics"])
