"""ImageFetcher over real sockets: which addresses it connects to, and how many requests at once."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from proxy.domain.errors import InvalidRequest, RateLimited
from proxy.domain.image import Image
from proxy.domain.request import ChatPrompt, Message
from proxy.server_tools import image_fetcher
from proxy.server_tools.image_fetcher import ImageFetcher
from proxy.server_tools.pinned_http import PinnedHttp
from tests.fixtures.pictures import PNG
from tests.fixtures.stack import HANG_S
from tests.fixtures.tool_server import running
from tests.unit.server_tools.test_http_tools import Names


class Anywhere(PinnedHttp):
    def response(self, request, *, allows_private=False):
        return super().response(request, allows_private=True)


def linked(*urls: str) -> ChatPrompt:
    message = Message(role="user", content="", parts=(None,) * len(urls))
    return ChatPrompt(messages=(message,), images=tuple(Image(url=url) for url in urls))


@pytest.mark.parametrize(
    "addresses", [["127.0.0.1"], ["8.8.8.8", "10.0.0.1"], ["169.254.169.254"], ["fe80::1%eth0"]]
)
def test_a_name_with_a_private_address_is_not_connected_to(addresses):
    names = Names(addresses)
    fetcher = ImageFetcher(1000, PinnedHttp(names))
    with pytest.raises(InvalidRequest, match="not a public one") as refused:
        asyncio.run(fetcher.fetched(linked("https://evil.example/a.png"), "me"))
    assert refused.value.param == "messages[0].content[0]"
    assert names.asked == [("evil.example", 443)]
    assert not any(one in refused.value.message for one in addresses)


def test_a_name_is_resolved_once_so_it_cannot_be_bound_anew():
    names = Names(["127.0.0.1"], ["203.0.113.9"])
    with running() as server:
        prompt = linked(server.url("/image", "pictures.example"))
        fetched = asyncio.run(ImageFetcher(1000, Anywhere(names)).fetched(prompt, "me"))
        assert server.seen[0][2]["host"] == f"pictures.example:{server.server_port}"
        assert names.asked == [("pictures.example", server.server_port)]
    assert fetched.images[0].url is None
    assert fetched.images[0].media_type == "image/png"
    assert len(PNG) < 1000


def test_names_whose_servers_do_not_answer_hold_up_nobody_elses_threads(monkeypatch):
    answers = threading.Event()

    def asked(host, *_, **__):
        answers.wait(HANG_S)
        raise OSError(host)

    async def scenario() -> None:
        fetcher = ImageFetcher(1000)
        slow = linked("https://slow.example/a.png")
        tasks = [asyncio.create_task(fetcher.fetched(slow, str(n))) for n in range(50)]
        await asyncio.sleep(0.05)
        assert await asyncio.wait_for(asyncio.to_thread(lambda: 1), HANG_S / 2) == 1
        assert not any(task.done() for task in tasks)
        answers.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(each) for each in found} == {InvalidRequest}

    monkeypatch.setattr("socket.getaddrinfo", asked)
    asyncio.run(scenario())


@pytest.mark.parametrize(
    "url", ["http://a..b/", "http://\u200b/", "http://[::1/", "http://x:99999/"]
)
def test_a_name_that_is_none_is_the_callers_error(url):
    with pytest.raises(InvalidRequest, match="cannot be used"):
        asyncio.run(ImageFetcher(1000).fetched(linked(url), "me"))


def test_one_tenant_gets_a_part_of_the_requests_that_may_fetch_at_once():
    """Its slow servers leave the others their part."""

    async def scenario() -> None:
        fetcher = ImageFetcher(1000, Anywhere())
        with running() as server:
            slow = linked(server.url("/slow"))
            most = image_fetcher.MOST_REQUESTS // 4
            tasks = [asyncio.create_task(fetcher.fetched(slow, "one")) for _ in range(most)]
            await asyncio.sleep(0)
            with pytest.raises(RateLimited, match="For one tenant, this server runs at most 16"):
                await fetcher.fetched(slow, "one")
            found = await fetcher.fetched(linked(server.url("/image")), "another")
            assert found.images[0].base64
            for task in tasks:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            assert (await fetcher.fetched(linked(server.url("/image")), "one")).images[0].base64

    asyncio.run(scenario())
