"""What this project is made of: the hashes of the lock, and the bill of materials."""

from __future__ import annotations

import re

import pytest
from packaging.utils import canonicalize_name
from pip._internal.models.link import Link

from supply_chain import lock_hashes

each_lock = pytest.mark.parametrize("lock", lock_hashes.LOCKS, ids=lambda path: path.name)
DIGESTS = ["a" * 64, "b" * 64, "c" * 64]


@pytest.mark.parametrize(
    ("is_usable", "filenames"),
    [
        (
            True,
            [
                "x-1-py3-none-any.whl",
                "x-1-py2.py3-none-any.whl",
                "x-1-cp310-cp310-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
                "x-1-cp312-cp312-manylinux_2_28_aarch64.whl",
                "x-1-cp38-abi3-manylinux_2_28_x86_64.whl",
                "x-1-cp311-abi3-linux_x86_64.whl",
                "x-1-py3-none-manylinux2010_x86_64.whl",
            ],
        ),
        (
            False,
            [
                "x-1-cp39-cp39-manylinux_2_17_x86_64.whl",
                "x-1-cp313-cp313-manylinux_2_17_x86_64.whl",
                "x-1-cp311-cp311-musllinux_1_2_x86_64.whl",
                "x-1-cp311-cp311-macosx_11_0_arm64.whl",
                "x-1-cp311-cp311-win_amd64.whl",
                "x-1-cp311-cp311-manylinux_2_17_ppc64le.whl",
                "x-1.tar.gz",
                "no wheel.whl",
            ],
        ),
    ],
)
def test_wheels_for_our_pythons_and_platforms_are_in_the_lock_and_no_others(is_usable, filenames):
    assert {lock_hashes.is_usable(filename) for filename in filenames} == {is_usable}


def links(*filenames: str, algorithm: str = "sha256") -> list[Link]:
    return [
        Link(f"https://index.example/{name}#{algorithm}={digest}")
        for name, digest in zip(filenames, DIGESTS, strict=False)
    ]


@pytest.mark.parametrize(
    ("package", "filenames", "chosen"),
    [
        # only files of the pinned version count
        ("x", ["x-1.0-py3-none-any.whl", "x-1.1-py3-none-any.whl", "x-1.0.tar.gz"], 0),
        # a source counts where no wheel fits
        ("some-name", ["some_name-1.0-cp313-cp313-win_amd64.whl", "some_name-1.0.tar.gz"], 1),
    ],
)
def test_the_hashes_of_a_pin_are_those_of_its_files(package, filenames, chosen):
    assert lock_hashes.chosen(package, "1.0", links(*filenames)) == {DIGESTS[chosen]}


def test_a_file_without_a_sha256_and_a_version_without_a_file_are_errors():
    with pytest.raises(lock_hashes.NoHash, match="no file"):
        lock_hashes.chosen("x", "2.0", links("x-1.0-py3-none-any.whl"))
    with pytest.raises(lock_hashes.NoHash, match="no SHA-256"):
        lock_hashes.chosen("x", "1.0", links("x-1.0-py3-none-any.whl", algorithm="md5"))


def test_no_package_is_pinned_in_two_locks():
    names = [
        canonicalize_name(name)
        for lock in lock_hashes.LOCKS
        # environments of their own
        if lock.name not in {"requirements-docs.lock", "requirements-quantization.lock"}
        for name in {found["name"] for found in lock_hashes.PIN.finditer(lock.read_text())}
    ]
    assert len(names) == len({*names})


@each_lock
def test_no_file_names_a_package_index(lock):
    assert not re.search(r"https?://", lock.read_text())
