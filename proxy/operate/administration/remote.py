"""The client of a running proxy's `/admin/v1`, and the options by which commands name the proxy."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec
from urllib.parse import quote

import orjson
import typer

from proxy.domain.errors import LaunchError
from proxy.operate.administration.answers import Options, prints, set_options

if TYPE_CHECKING:
    import httpx

TIMEOUT_S = 30.0
LONGEST_MESSAGE = 500  # characters
DATA = "data: "
P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyKind:
    """The key that commands need. variable: where it is, unless --key-file is given."""

    variable: str
    scope: str

    @property
    def file_option(self) -> Any:
        text = f"File with a key of the scope {self.scope}. Default: the variable {self.variable}."
        return typer.Option(help=text)


ADMIN = KeyKind(variable="ADMIN_KEY", scope="admin")
Url = Annotated[
    str | None, typer.Option(help="The proxy's address. Default: HOST and PORT of the settings.")
]
KeyFile = Annotated[Path | None, ADMIN.file_option]
CaFile = Annotated[
    Path | None, typer.Option(help="PEM file to trust instead of the system's certificates.")
]


class AdminClient:
    """Calls one running proxy, until the end of its `with`."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        kind: KeyKind = ADMIN,
        ca_file: Path | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """
        Args:
            transport: another than the network; tests give it.

        Raises:
            LaunchError: the address or the certificates cannot be used.
        """
        import ssl  # with httpx a tenth of a second, which `--help` saves

        import httpx

        self.url = url
        self._kind = kind
        try:
            self._client = httpx.Client(
                base_url=url,
                headers={} if key is None else {"Authorization": f"Bearer {key}"},
                timeout=TIMEOUT_S,
                trust_env=False,  # a proxy of the environment would get the key
                verify=ssl.create_default_context(cafile=ca_file),
                transport=transport,
            )
        except (OSError, ValueError, httpx.InvalidURL) as error:
            raise LaunchError(f"--url {url} or --ca-file cannot be used: {error}") from None

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def call(
        self, method: str, path: str, body: Any = None, *, timeout_s: float = TIMEOUT_S
    ) -> Any:
        """The answer's JSON.

        Raises:
            LaunchError: the proxy cannot be reached, refuses, or is something else.
        """
        found = self._sent(method, path, body, timeout_s)
        content = _json(found)
        if found.is_success and isinstance(content, dict):
            return content
        raise self._refusal(found.status_code, content, self._kind.scope)

    def events(self, path: str, *, scope: str) -> Iterator[Any]:
        """The data of each event, parsed. scope: what a key needs. Raises what `call` raises."""
        with self._reached(), self._client.stream("GET", path) as found:
            if not found.headers.get("content-type", "").startswith("text/event-stream"):
                found.read()
                raise self._refusal(found.status_code, _json(found), scope)
            for line in found.iter_lines():
                if line.startswith(DATA):
                    yield orjson.loads(line.removeprefix(DATA))

    def _sent(self, method: str, path: str, body: Any, timeout_s: float) -> httpx.Response:
        with self._reached():
            return self._client.request(method, path, json=body, timeout=timeout_s)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        import httpx

        try:
            yield
        except httpx.TimeoutException:
            raise LaunchError(
                f"the proxy at {self._client.base_url} has not answered in time. It may still do "
                "what it was asked for: look at its state before you send it again"
            ) from None
        except httpx.HTTPError as error:
            url = self._client.base_url
            is_cut = isinstance(error, httpx.RemoteProtocolError | httpx.ReadError)
            hint = "is it https? Else " if is_cut and url.scheme == "http" else ""
            raise LaunchError(
                f"the proxy at {url} cannot be reached ({error}): {hint}start it, or give its "
                "address with --url"
            ) from None

    def _refusal(self, status: int, content: Any, scope: str) -> LaunchError:
        url = str(self._client.base_url)
        error = content.get("error") if isinstance(content, Mapping) else None
        if not isinstance(error, Mapping):
            return LaunchError(
                f"what answers at {url} (with status {status}) is not a triton-openai proxy"
            )
        message = str(error.get("message"))[:LONGEST_MESSAGE]
        if status in (401, 403):
            return LaunchError(
                f"{message} Set {self._kind.variable}, or give --key-file, with a key of the scope "
                f"{scope}"
            )
        if error.get("code") == "unknown_url" and self._kind is ADMIN:
            return LaunchError(f"the proxy at {url} cannot be operated: it is an older release")
        return LaunchError(message)


def _json(found: httpx.Response) -> Any:
    """None where the answer is something else."""
    try:
        return found.json()
    except ValueError:
        return None


def client(
    url: str | None, key_file: Path | None, ca_file: Path | None, kind: KeyKind = ADMIN
) -> AdminClient:
    """Of the proxy that the options name. Raises LaunchError."""
    from proxy.operate.triton_server.probe import own_url
    from proxy.settings import Settings

    key = given_key(key_file, kind.variable, f"a key of the scope {kind.scope}")
    return AdminClient(url or own_url(Settings()), key=key, kind=kind, ca_file=ca_file)


def calls_proxy(
    show: Callable[[Any], None], kind: KeyKind = ADMIN
) -> Callable[[Callable[Concatenate[AdminClient, P], Any]], Callable[..., None]]:
    """Makes a command of a function that calls the proxy and returns its answer, as `prints` does.

    It also gets the options that name the proxy.
    """

    def command_of(work: Callable[Concatenate[AdminClient, P], Any]) -> Callable[..., None]:
        @functools.wraps(work)
        def called(
            *,
            url: str | None = None,
            key_file: Path | None = None,
            ca_file: Path | None = None,
            **given: Any,
        ) -> Any:
            with client(url, key_file, ca_file, kind) as proxy:
                return work(proxy, **given)  # type: ignore[call-arg]

        _, *own = inspect.signature(work, eval_str=True).parameters.values()
        key_option = Annotated[Path | None, kind.file_option]
        options: Options = {"url": (Url, None), "key_file": (key_option, None)}
        set_options(called, own, {**options, "ca_file": (CaFile, None)})
        return prints(show)(called)

    return command_of


def given_key(file: Path | None, variable: str, what: str) -> str | None:
    """Never an argument's value, which every user of the machine could read. Raises LaunchError."""
    if file is None:
        key, source = os.environ.get(variable, ""), variable
    else:
        source = f"--key-file {file}"
        try:
            key = file.read_text().strip()
        except (OSError, ValueError) as error:
            raise LaunchError(f"{source} cannot be read: {error}") from None
        if not key:
            raise LaunchError(f"{source} is empty: it must have {what}")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise LaunchError(f"{source} has no key: a key has printable ASCII characters, no spaces")
    return key or None


def segment(name: str) -> str:
    """A name as one part of a path, whatever characters it has."""
    return quote(name, safe="")
