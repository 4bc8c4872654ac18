"""Images in a chat: parts and their order, data URLs and links, and everything that is refused."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from proxy.domain.identity import Limits
from proxy.domain.image import Image
from proxy.domain.model import CAPABILITIES
from proxy.server_tools.image_fetcher import ImageFetcher
from proxy.server_tools.pinned_http import PinnedHttp
from tests.api.formats import CHAT, answering, error_of
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine
from tests.doubles.key_source import PEPPER, KeysInMemory
from tests.fixtures.pictures import GIF, JPEG, PNG, WEBP, data_url
from tests.unit.domain.test_image import PNG_HEAD, chunk, header

# As Qwen's: parts are texts or images, and a content may be a text.
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
    "{% if c.type == 'image' %}<img>{% elif 'text' in c %}{{ c.text }}{% endif %}"
    "{% endfor %}{% endif %}{% endfor %}<assistant>"
)
# As LLaVA's: it walks through the parts, and never asks for a text.
LLAVA = (
    "{% for m in messages %}{{ m['role'] }}: "
    "{% for c in m['content'] | selectattr('type', 'equalto', 'image') %}<image>{% endfor %}"
    "{% for c in m['content'] | selectattr('type', 'equalto', 'text') %}{{ c['text'] }}"
    "{% endfor %} {% endfor %}"
)
SEEING = replace(FACTS, chat_template=TEMPLATE)


def image(url: str, **fields) -> dict:
    return {"type": "image_url", "image_url": {"url": url, **fields}}


def text(words: str) -> dict:
    return {"type": "text", "text": words}


def chat(*parts: dict, **fields) -> dict:
    return {"model": "demo", "messages": [{"role": "user", "content": list(parts)}], **fields}


@pytest.fixture
def engine() -> ScriptedEngine:
    return answering("a cat")


@pytest.fixture
def client(serve, engine):
    return serve(engine, FixedCatalog(facts=SEEING))


def test_parts_keep_their_order_and_the_engine_gets_the_images(client, engine):
    body = chat(text("a"), image(data_url("png", PNG)), text("b"), image(data_url("jpeg", JPEG)))
    answer = client.post(CHAT, json=body)
    assert answer.json()["choices"][0]["message"]["content"] == "a cat"
    request = engine.requests[0]
    assert request.text == "<user>a<img>b<img><assistant>"
    assert request.images == (
        Image(media_type="image/png", base64=base64.b64encode(PNG).decode()),
        Image(media_type="image/jpeg", base64=base64.b64encode(JPEG).decode()),
    )
    assert "images" in request.needed_capabilities


@pytest.mark.parametrize(
    ("kind", "data"), [("png", PNG), ("jpeg", JPEG), ("jpg", JPEG), ("gif", GIF), ("webp", WEBP)]
)
@pytest.mark.parametrize("path", [CHAT, "/chat/json"])
def test_each_type_is_taken_by_every_chat(client, engine, path, kind, data):
    body = chat(image(data_url(kind, data), detail="high"))
    assert client.post(path, json=body).status_code == 200
    assert base64.b64decode(engine.requests[0].images[0].base64) == data


def test_a_template_that_reads_parts_alone_gets_every_text_as_a_part(serve):
    engine = answering("a")
    client = serve(engine, FixedCatalog(facts=replace(FACTS, chat_template=LLAVA)))
    messages = [{"role": "system", "content": "be kind"}, *chat(text("b"))["messages"]]
    assert client.post(CHAT, json={"model": "demo", "messages": messages}).is_success
    assert engine.requests[0].text == "system: be kind user: b "


def test_an_answer_behind_an_image_can_be_continued(serve):
    engine = answering("a")
    client = serve(engine, FixedCatalog(facts=replace(FACTS, chat_template=LLAVA)))
    body = chat(image(data_url("png", PNG)), continue_final_message=True)
    body["messages"].append({"role": "assistant", "content": "It is"})
    assert client.post(CHAT, json=body).is_success
    assert engine.requests[0].text == "user: <image> assistant: It is"


def test_a_model_without_images_refuses_them_by_name(serve):
    engine = ScriptedEngine()
    client = serve(engine, FixedCatalog(facts=SEEING, capabilities=CAPABILITIES - {"images"}))
    error = error_of(client.post(CHAT, json=chat(text("a"), image(data_url("png", PNG)))))
    assert (error["code"], error["param"]) == ("unsupported_parameter", "messages[0].content[1]")
    assert "reads no images" in error["message"]
    assert not engine.requests


def test_a_template_without_a_place_for_them_refuses_them(serve):
    client = serve(ScriptedEngine())
    error = error_of(client.post(CHAT, json=chat(image(data_url("png", PNG)))))
    assert (error["code"], error["param"]) == ("unsupported_parameter", "messages[0].content[0]")
    assert "no place for an image" in error["message"]


# Two calls whose results have images; then what may follow.
CALLS = [
    {"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}} for one in "cd"
]
TURN = [
    {"role": "user", "content": "u"},
    {"role": "assistant", "content": None, "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "c", "content": [text("r"), image(data_url("png", PNG))]},
    {"role": "tool", "tool_call_id": "d", "content": [image(data_url("jpeg", JPEG)), text("s")]},
]
SHOWN = "<user>u<assistant><tool>r<tool>s<user>"
OWN = {"role": "user", "content": [text("o"), image("https://localhost/a.png")]}
CALLING = TEMPLATE + "{# tool_calls #}"


@pytest.mark.parametrize(
    "more",
    [
        [],
        [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}],
        [{"role": "user", "content": "b"}],
    ],
)
@pytest.mark.parametrize("sees", [True, False])
def test_images_of_results_stand_in_a_users_message_or_become_a_sentence(serve, more, sees):
    engine = answering("ok")
    capabilities = CAPABILITIES if sees else CAPABILITIES - {"images"}
    facts = replace(FACTS, chat_template=CALLING)
    client = serve(engine, FixedCatalog(facts=facts, capabilities=capabilities))
    answer = client.post(CHAT, json={"model": "demo", "messages": [*TURN, *more]})
    assert answer.status_code == 200, answer.text
    request = engine.requests[0]
    assert request.text.startswith(SHOWN)
    shown = request.text.removeprefix(SHOWN)
    if sees:
        assert shown.startswith("<img><img><")
        kinds = [one.media_type for one in request.images]
        assert kinds == ["image/png", "image/jpeg"]
    else:
        assert shown.count("reads no images") == 2
        assert not request.images
    assert [word for word in ("a", "b") if f">{word}<" in shown] == [one["content"] for one in more]


@pytest.mark.parametrize("size", [1, 40_000])  # a large chat is rendered in the sandbox
@pytest.mark.parametrize(
    ("template", "capabilities", "options", "place"),
    [
        ("{{ messages }}{# tool_calls #}", CAPABILITIES, {}, "messages[2].content[1]"),
        (CALLING, CAPABILITIES - {"images"}, {}, "messages[4].content[1]"),
        (
            CALLING,
            CAPABILITIES - {"images"},
            {"unreadable_result_images": "refuse"},
            "messages[2].content[1]",
        ),
        (CALLING, CAPABILITIES, {}, "messages[4].content[1]"),
    ],
)
def test_an_image_that_is_refused_has_the_callers_place(
    serve, template, capabilities, options, place, size
):
    facts = replace(FACTS, chat_template=template)
    client = serve(answering("ok"), FixedCatalog(facts=facts, capabilities=capabilities), **options)
    messages = [{"role": "user", "content": "u" * size}, *TURN[1:], OWN]
    error = error_of(client.post(CHAT, json={"model": "demo", "messages": messages}))
    assert error["param"] == place


@pytest.mark.parametrize("role", ["system", "developer", "assistant"])
def test_only_a_users_message_or_a_tools_may_have_images(idle, role):
    message = {"role": role, "content": [image(data_url("png", PNG))]}
    error = error_of(idle.post(CHAT, json={"model": "demo", "messages": [message]}))
    assert (error["code"], error["param"]) == ("unsupported_parameter", "messages[0].content[0]")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("file:///etc/passwd", "must be http:"),
        ("ftp://example.com/a.png", "must be http:"),
        ("data:image/png,abc", "must be http:"),
        ("https://user:password@example.com/a.png", "must be http:"),
        ("https://example.com/" + "a" * 3000, "must be http:"),
        ("/tmp/a.png", "must be http:"),
        ("", "must be http:"),
        ("data:image/png;base64,????", "not base64"),
        ("data:image/png;base64,iVBORw0", "not base64"),
        ("data:image/png;base64,", "no known image"),
        (data_url("png", b"x" * 2000), "no known image"),
        (data_url("png", JPEG), "it is image/jpeg"),
        (data_url("svg+xml", b"<svg/>"), "no known image"),
        (data_url("tiff", PNG), "declared as image/tiff"),
    ],
)
def test_what_is_no_image_is_refused_with_its_place(idle, url, words):
    error = error_of(idle.post(CHAT, json=chat(image(url))))
    assert (error["code"], error["param"]) == (
        "invalid_messages",
        "messages[0].content[0].image_url.url",
    )
    assert words in error["message"]
    assert len(error["message"]) < 700


def test_the_detail_that_no_engine_can_be_told_is_refused(idle):
    error = error_of(idle.post(CHAT, json=chat(image(data_url("png", PNG), detail="low"))))
    assert error["param"] == "messages[0].content[0].image_url.detail"
    assert error["code"] == "unsupported_parameter"


@pytest.mark.parametrize("count", [16, 17, 1000])
def test_the_number_of_images_is_bounded(client, count):
    response = client.post(CHAT, json=chat(*[image(data_url("gif", GIF))] * count))
    if count == 16:
        assert response.status_code == 200
        return
    error = error_of(response)
    assert (error["code"], error["param"]) == ("invalid_messages", "messages")
    assert f"at most 16 images are allowed, {count}" in error["message"]


def test_two_megabytes_that_are_no_image_are_refused_soon(idle):
    url = data_url("png", b"\0" * 1_400_000)
    assert error_of(idle.post(CHAT, json=chat(image(url))))["code"] == "invalid_messages"
    too_large = idle.post(CHAT, json=chat(image(data_url("png", PNG + b"\0" * 2_000_000))))
    error = error_of(too_large)
    assert (too_large.status_code, error["code"]) == (413, "request_too_large")
    assert "MAX_REQUEST_SIZE_MB" in error["message"]


def test_the_pixels_of_a_request_are_bounded(client, engine):
    """A file of 531 kB with 169 million pixels held the real backend's loop for 14 s."""
    large = PNG_HEAD + header(5_000, 5_000) + chunk(b"IDAT")
    part = image(data_url("png", large))
    assert client.post(CHAT, json=chat(part, part)).status_code == 200
    error = error_of(client.post(CHAT, json=chat(part, part, image(data_url("png", PNG)))))
    assert (error["code"], error["param"]) == ("invalid_messages", "messages[0].content[2]")
    assert "50000000 pixels" in error["message"]
    headless = image(data_url("png", PNG[:12]))
    error = error_of(client.post(CHAT, json=chat(headless)))
    assert "its head says no size" in error["message"]
    assert len(engine.requests) == 1


def test_choices_with_images_count_the_bytes_that_each_is_sent(client):
    body = chat(image(data_url("png", PNG + b"\0" * 1_000_000)), n=16)
    error = error_of(client.post(CHAT, json=body))
    assert (error["code"], error["param"]) == ("invalid_parameter", "n")


@pytest.mark.parametrize(
    ("texts", "marked"),
    [
        (["<|img|>"], ["<|img|>"]),
        (["a </s> b", "<|img|>"], ["</s>", "<|img|>"]),
        (["<|im", "g|>"], ["<|img|>"]),
        (["<", "/s>"], ["</s>"]),
        (["image", "text"], []),
    ],
)
def test_control_tokens_stay_plain_in_the_parts_of_a_message(serve, texts, marked):
    """Also one that two parts spell together. The types of parts are left alone, though `image` is
    what one of these tokens has between its brackets.
    """
    tokens = {1: b"</s>", 2: b"<|img|>", 3: b"<image>", 4: b"<text>"}
    engine = answering("a")
    client = serve(engine, FixedCatalog(facts=replace(SEEING, special_tokens=tokens)))
    body = chat(*map(text, texts), image(data_url("png", PNG)))
    assert client.post(CHAT, json=body).is_success
    request = engine.requests[0]
    assert request.text == f"<user>{''.join(texts)}<img><assistant>"
    spans = memoryview(request.plain_spans).cast("i").tolist()
    places = zip(spans[::2], spans[1::2], strict=True)
    assert [request.text[at:end] for at, end in places] == marked


def test_an_engine_that_takes_text_alone_refuses_a_control_token_in_a_part(serve):
    """As vLLM's: it would take the caller's placeholder for an image's."""
    facts = replace(SEEING, special_tokens={2: b"<|img|>"})
    catalog = FixedCatalog(facts=facts, capabilities=CAPABILITIES - {"plain_spans"})
    engine = ScriptedEngine()
    body = chat(text("<|img|>"), image(data_url("png", PNG)))
    error = error_of(serve(engine, catalog).post(CHAT, json=body))
    assert (error["code"], error["param"]) == ("unsupported_parameter", "messages")
    assert "'<|img|>'" in error["message"]
    assert not engine.requests


def test_tokens_are_not_counted_of_images(client):
    body = chat(image(data_url("png", PNG)))
    for path in ("/tokenize", f"{CHAT}/render"):
        error = error_of(client.post(path, json=body))
        assert error["code"] == "unsupported_parameter"
        assert "counts the tokens of an image" in error["message"]


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://127.0.0.1:9000/metrics",
        "http://[::1]/a.png",
        "http://0x7f000001/a.png",
        "https://localhost/a.png",
    ],
)
def test_a_link_into_the_servers_network_is_refused(client, engine, url):
    response = client.post(CHAT, json=chat(text("a"), image(url)))
    error = error_of(response)
    assert (response.status_code, error["param"]) == (400, "messages[0].content[1]")
    assert "its address is not a public one" in error["message"]
    assert not engine.requests


class Anywhere(PinnedHttp):
    """May connect to the test's own server."""

    def response(self, request, *, allows_private=False):
        return super().response(request, allows_private=True)


@pytest.fixture
def fetching(serve, engine, server):
    images = ImageFetcher(100_000, Anywhere())
    return serve(engine, FixedCatalog(facts=SEEING), images=images)


@pytest.mark.parametrize("stream", [False, True])
def test_a_link_is_fetched_before_the_engine_gets_the_request(fetching, engine, server, stream):
    body = chat(image(server.url("/image")), image(data_url("gif", GIF)), stream=stream)
    assert fetching.post(CHAT, json=body).status_code == 200
    first, second = engine.requests[0].images
    assert first == Image(media_type="image/png", base64=base64.b64encode(PNG).decode())
    assert second.media_type == "image/gif"
    assert len(server.seen) == 1


def test_all_choices_share_what_was_fetched(fetching, engine, server):
    assert fetching.post(CHAT, json=chat(image(server.url("/image")), n=3)).status_code == 200
    assert [len(each.images[0].base64) for each in engine.requests] == [
        len(base64.b64encode(PNG))
    ] * 3
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/moved", "status 302, a redirect, which is not followed"),
        ("/broken", "status 503"),
        ("/large", "larger than 100000 bytes"),
        ("/text", "by its first bytes it is none of image/png"),
        ("/zipped", "compressed"),
        ("/endless-head", "cannot be reached"),
    ],
)
def test_what_cannot_be_fetched_is_the_callers_error(fetching, engine, server, path, words):
    error = error_of(fetching.post(CHAT, json=chat(image(server.url(path)))))
    assert (error["code"], error["param"]) == ("invalid_messages", "messages[0].content[0]")
    assert words in error["message"]
    assert len(server.seen) == 1
    assert not engine.requests


def test_the_images_of_a_request_are_bounded_together(fetching, engine, server):
    links = [image(server.url("/image-of-60000"))] * 2
    error = error_of(fetching.post(CHAT, json=chat(*links)))
    assert error["param"] == "messages[0].content[1]"
    assert "larger than" in error["message"]


@pytest.mark.parametrize("path", ["/slow", "/drip"])
def test_a_slow_server_is_given_up(fetching, monkeypatch, server, path):
    monkeypatch.setattr("proxy.server_tools.image_fetcher.TIMEOUT_S", 0.2)
    error = error_of(fetching.post(CHAT, json=chat(image(server.url(path)))))
    assert "not complete within 0.2 s" in error["message"]


def test_a_request_over_its_callers_limits_fetches_nothing(serve, engine, server):
    keys = KeysInMemory()
    keys.add_tenant("acme", limits=Limits(requests_per_minute=1))
    images = ImageFetcher(100_000, Anywhere())
    catalog = FixedCatalog(facts=SEEING)
    client = serve(engine, catalog, keys=keys, key_pepper=PEPPER, images=images)
    client.headers["authorization"] = f"Bearer {keys.add('own1', tenant='acme')}"
    statuses = [
        client.post(CHAT, json=chat(image(server.url("/image")))).status_code for _ in range(3)
    ]
    assert statuses == [200, 429, 429]
    assert len(server.seen) == 1
