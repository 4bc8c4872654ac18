"""binaries: libpython is found in a folder, by the loader, or not at all."""

from __future__ import annotations

from proxy.operate.triton_server import binaries


def test_the_first_folder_that_has_it_wins(tmp_path):
    (tmp_path / "libpython3.99.so.1.0").touch()
    found = binaries.libpython("3.99", [tmp_path / "none", tmp_path])
    assert found is not None
    assert found.folder == tmp_path


def test_a_static_python_has_none(tmp_path):
    assert binaries.libpython("3.99", [tmp_path]) is None
