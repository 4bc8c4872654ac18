"""tls: what is served over it is the same, and a new certificate needs no restart."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
from pathlib import Path

import pytest

from proxy.domain.errors import LaunchError
from proxy.server.tls import ReloadingTls
from tests.fixtures.certificates import certificate, needs_openssl
from tests.fixtures.own_server import served
from tests.unit.server.talks import GET

pytestmark = needs_openssl


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Certificate and key in use; those of `first` so far."""
    made = certificate(tmp_path, "first")
    used = tmp_path / "used.crt", tmp_path / "used.key"
    for source, target in zip(made, used, strict=True):
        shutil.copy(source, target)
    return used


def replace(used: tuple[Path, Path], new: tuple[Path, Path]) -> None:
    for target, source in zip(used, new, strict=True):
        copy = target.with_suffix(".new")
        shutil.copy(source, copy)
        os.replace(copy, target)


def client_context(*chain: Path) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if chain:
        context.load_cert_chain(*chain)
    return context


async def connected(address, *chain: Path):
    return await asyncio.open_connection(*address[:2], ssl=client_context(*chain))


def shown(writer: asyncio.StreamWriter) -> bytes:
    return writer.get_extra_info("ssl_object").getpeercert(binary_form=True)


def der(file: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(file.read_text())


async def streaming(scope, receive, send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for part in (b"one", b"two"):
        await send({"type": "http.response.body", "body": part, "more_body": True})
        await asyncio.sleep(0.01)
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.anyio
async def test_new_files_serve_new_connections_and_old_ones_stay(files, tmp_path):
    tls, second = ReloadingTls(*files, None), certificate(tmp_path, "second")
    async with served(streaming, own_tls=tls) as address:
        reader, before = await connected(address)
        replace(files, second)
        assert tls.reload()
        assert not tls.reload()
        _, after = await connected(address)
        assert shown(before) == der(tmp_path / "first.crt")
        assert shown(after) == der(tmp_path / "second.crt")
        before.write(GET)
        assert await reader.readuntil(b"\r\n0\r\n\r\n")
        before.close()
        after.close()


@pytest.mark.anyio
async def test_half_of_a_replacement_changes_nothing(files, tmp_path):
    tls, second = ReloadingTls(*files, None), certificate(tmp_path, "second")
    shutil.copy(second[0], files[0])
    assert not tls.reload()
    async with served(streaming, own_tls=tls) as address:
        _, writer = await connected(address)
        assert shown(writer) == der(tmp_path / "first.crt")
        writer.close()
        files[1].unlink()
        assert not tls.reload()
        shutil.copy(second[1], files[1])
        assert tls.reload()
        _, writer = await connected(address)
        assert shown(writer) == der(second[0])
        writer.close()


@pytest.mark.anyio
async def test_with_client_authorities_a_client_needs_a_certificate_of_theirs(files, tmp_path):
    authority = certificate(tmp_path, "authority")
    own, other = certificate(tmp_path, "own", issuer="authority"), certificate(tmp_path, "other")
    tls = ReloadingTls(*files, authority[0])
    async with served(streaming, own_tls=tls) as address:
        for chain, expected in ((own, True), (other, False), ((), False)):
            assert await is_served(address, *chain) is expected, chain


@pytest.mark.anyio
async def test_new_client_authorities_replace_the_old_ones(files, tmp_path):
    for name in ("old", "new"):
        certificate(tmp_path, name)
        certificate(tmp_path, f"of-{name}", issuer=name)
    authority = tmp_path / "authority.crt"
    shutil.copy(tmp_path / "old.crt", authority)
    tls = ReloadingTls(*files, authority)
    async with served(streaming, own_tls=tls) as address:
        for expected in ("old", "new"):
            for name in ("old", "new"):
                chain = tmp_path / f"of-{name}.crt", tmp_path / f"of-{name}.key"
                assert await is_served(address, *chain) is (name == expected)
            shutil.copy(tmp_path / "new.crt", authority)
            tls.reload()


async def is_served(address, *chain: Path) -> bool:
    try:
        reader, writer = await connected(address, *chain)
        writer.write(GET)
        found = await reader.read(12)
        writer.close()
    except (ssl.SSLError, ConnectionError):
        return False
    return found == b"HTTP/1.1 200"


@pytest.mark.anyio
async def test_silent_clients_are_cut_off_in_time(files):
    async with served(
        streaming, own_tls=ReloadingTls(*files, None), handshake_timeout_s=0.2
    ) as address:
        silent = [await asyncio.open_connection(*address[:2]) for _ in range(20)]
        assert await is_served(address)
        for reader, writer in silent:
            assert await asyncio.wait_for(reader.read(), 60) == b""
            writer.close()


@pytest.mark.anyio
async def test_more_silent_clients_than_handshakes_do_not_keep_others_out(files):
    """The oldest handshakes end, long before their time is over; the latest stay."""
    tls = ReloadingTls(*files, None)
    async with served(
        streaming, own_tls=tls, handshake_timeout_s=3600, most_handshakes=5
    ) as address:
        silent = [await asyncio.open_connection(*address[:2]) for _ in range(50)]
        assert await is_served(address)
        for reader, writer in silent[:45]:
            assert await asyncio.wait_for(reader.read(), 60) == b""
            writer.close()
        assert not any(reader.at_eof() for reader, _ in silent[-4:])
        for _, writer in silent:
            writer.close()


@pytest.mark.parametrize("broken", ["missing", "text", "other key", "encrypted key"])
def test_files_that_make_no_certificate_stop_the_start(files, tmp_path, broken):
    certificate_file, key_file = files
    if broken == "missing":
        key_file.unlink()
    elif broken == "text":
        certificate_file.write_text("hello")
    elif broken == "other key":
        key_file = certificate(tmp_path, "second")[1]
    else:
        command = f"openssl ec -aes256 -passout pass:abcd -in {key_file} -out {tmp_path}/locked"
        assert os.system(f"{command} 2>/dev/null") == 0
        key_file = tmp_path / "locked"
    with pytest.raises(LaunchError, match=r"TLS_CERT_FILE=.* and TLS_KEY_FILE=.* cannot be used"):
        ReloadingTls(certificate_file, key_file, None)
