"""GGUF as the weights of an entry: runtime onnx takes it, the others say what to give instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from build_engines import fetch, models_file, onnx_build, scripted_build
from build_engines.errors import BuildError
from build_engines.models_file import ModelsFile, OnnxEntry, OnnxOptions
from build_engines.vllm import build as vllm_build
from build_engines.weights import InstalledPackage, LocalFolder

FP32 = OnnxOptions(precision="fp32")  # the default depends on what the file holds
HEADER = b"GGUF\3\0\0\0" + bytes(40)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "given" / "model.gguf"
    path.parent.mkdir()
    path.write_bytes(HEADER)
    return path


@pytest.fixture
def package(file: Path, monkeypatch: pytest.MonkeyPatch) -> InstalledPackage:
    (file.parent / "__init__.py").touch()
    monkeypatch.syspath_prepend(file.parent.parent)
    return InstalledPackage("given")


def read(tmp_path: Path, **entry: object) -> ModelsFile:
    file = tmp_path / "models.yaml"
    file.write_text(json.dumps({"models": {"m": entry}}))
    return models_file.load(file)


@pytest.mark.parametrize("given", ["given/model.gguf", "given"])
def test_a_dry_run_shows_the_folder_that_is_written_first(tmp_path, file, given):
    entry = read(tmp_path, weights=given, onnx={"precision": "fp32"}).models["m"]
    first, second, *_ = onnx_build.shown("m", entry, tmp_path / "artifacts")
    folder = tmp_path / "artifacts" / "m.weights"
    assert first == f"write {tmp_path / given} as a Hugging Face folder to {folder}"
    assert f"-i {folder} -o {tmp_path / 'artifacts' / 'm' / 'engine'}" in second
    assert onnx_build.needs_tools(entry, tmp_path / "artifacts")


def test_a_package_may_have_the_file(tmp_path, package):
    first, *_ = onnx_build.shown("m", OnnxEntry(weights=package, onnx=FP32), tmp_path)
    assert first.startswith(f"write {package.path} as a Hugging Face folder")


def test_the_file_alone_decides_whether_a_build_is_stale(tmp_path, file, package):
    def key(weights: LocalFolder | InstalledPackage) -> str:
        entry = OnnxEntry(weights=weights, onnx=FP32)
        step = fetch.step(weights, tmp_path, reads_gguf=True)
        return onnx_build._provenance(entry, step).key

    one = key(LocalFolder(file))
    (file.parent / "README.md").write_text("A model.")
    assert key(LocalFolder(file)) == key(LocalFolder(file.parent)) == key(package) == one
    file.write_bytes(HEADER + b"1")
    assert key(package) != one


OTHERS = {
    "scripted": (scripted_build.is_built, {"scripted": {"text": "Hello."}}),
    "vllm": (vllm_build.is_built, {}),
}


@pytest.mark.parametrize("runtime", OTHERS)
@pytest.mark.parametrize("given", ["given/model.gguf", "given", "package://given"])
def test_other_runtimes_refuse_it(tmp_path, package, runtime, given):
    is_built, options = OTHERS[runtime]
    entry = read(tmp_path, weights=given, runtime=runtime, **options).models["m"]
    with pytest.raises(BuildError, match=r"only `runtime: onnx` reads.* Give the Hugging Face fol"):
        is_built("m", entry, tmp_path)


def test_of_several_files_one_is_to_be_named(tmp_path, file):
    (file.parent / "other.gguf").write_bytes(HEADER)
    entry = OnnxEntry(weights=LocalFolder(file.parent))
    with pytest.raises(BuildError, match=r"2 files in GGUF: name one, such as .*model\.gguf"):
        onnx_build.is_built("m", entry, tmp_path)


def test_a_file_that_only_has_the_suffix_is_named(tmp_path, file):
    file.write_bytes(b"<html>Not found</html>")
    with pytest.raises(BuildError, match="not a GGUF file, whatever its name says: fetch it again"):
        onnx_build.is_built("m", OnnxEntry(weights=LocalFolder(file)), tmp_path)


def test_a_failed_build_leaves_no_folder(tmp_path, file):
    file.write_bytes(HEADER[:12])
    artifacts = tmp_path / "artifacts"
    artifacts.mkdir()
    with pytest.raises(BuildError, match="is cut off: it has 12 bytes"):
        onnx_build.build("m", OnnxEntry(weights=LocalFolder(file)), artifacts, lambda _: None)
    assert not list(artifacts.iterdir())
