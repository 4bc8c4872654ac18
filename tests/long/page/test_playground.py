"""The playground in a real browser, over a scripted engine: ask, stream, stop, tools, errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fixtures.pictures import PNG
from tests.fixtures.stack import eventually
from tests.long.page.browser import Browser
from tests.long.page.conftest import Serve
from tests.long.page.engine import BROAD, CODE, DEEP, HOSTILE, LONG, MARKUP, PageEngine

MESSAGE, ANSWER = "[name=message]", ".message.assistant"
ENTER = "\ue007"
DONE = "!document.querySelector('.stop')"
STUTTER_MS = 250  # between two frames, on two cores that the server and the browser share
OTHERS_WORK = 3  # frames that wait for the machine; a page that gets slower has many


def opened(page: Browser, url: str) -> None:
    page.open(f"{url}/")
    page.run("localStorage.clear()")
    page.open(f"{url}/?again")
    page.wait_for("h2", "Talk to")


def ask(page: Browser, text: str) -> None:
    page.type(MESSAGE, text)
    page.press(ENTER)


def model(page: Browser, name: str) -> None:
    script = (
        "const e = document.querySelector('[name=model]'); e.value = arguments[0];"
        "e.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    page.run(script, name)


def test_an_answer_streams_with_its_figures_and_stays_in_the_history(serve: Serve, page: Browser):
    server = serve()
    opened(page, server.url)
    model(page, "demo")
    ask(page, "a story")
    page.wait_for(f"{ANSWER}[aria-busy=true]", "Once upon")
    page.wait(DONE)
    page.wait_for(ANSWER, "went to the oven.")
    figures = page.text(f"{ANSWER} .figures").replace("\n", " ")
    assert [word for word in ("TTFT", "tok/s", "stop") if word not in figures] == []
    ask(page, "and now?")
    page.wait_for(ANSWER, "You said: and now?")
    page.open(f"{server.url}/?later")
    page.click(".history li button", "a story")
    page.wait_for(ANSWER, "went to the oven.")
    page.wait_for(ANSWER, "You said: and now?")


def test_stop_frees_the_engine(serve: Serve, page: Browser):
    engine = PageEngine()
    opened(page, serve(engine).url)
    ask(page, "endless")
    page.wait_for(ANSWER, "on and on and")
    assert engine.running == 1
    page.click(".stop")
    eventually(lambda: engine.running == 0, 5, "the engine is free")
    assert engine.closed == 1
    page.wait_for(f"{ANSWER} .figures", "stopped")


def test_a_tool_is_called_and_its_result_goes_back(serve: Serve, page: Browser):
    engine = PageEngine(step_s=0.002)
    opened(page, serve(engine).url)
    page.click("summary", "Tools")
    page.click("details[open] button", "Insert an example")
    ask(page, "the weather in Paris?")
    page.wait_for(".call", "get_weather")
    assert json.loads(page.text(".call pre")) == {"city": "Paris"}
    page.wait(DONE)
    page.type(".call input", "21 degrees")
    page.press(ENTER)
    page.wait_for(ANSWER, "It is 21 degrees and sunny in Paris.")
    assert "21 degrees" in engine.requests[-1].text


def test_reasoning_stands_apart_from_the_answer(serve: Serve, page: Browser):
    opened(page, serve().url)
    ask(page, "17 times 23?")
    page.wait_for(".reasoning", "340")
    page.wait(DONE)
    assert "391" in page.text(f"{ANSWER} > .text")
    assert "340" not in page.text(f"{ANSWER} > .text")


def test_probabilities_are_colours_with_the_alternatives_on_hover_and_by_key(
    serve: Serve, page: Browser
):
    opened(page, serve().url)
    page.click("[name=logprobs]")
    ask(page, "hello there")
    page.wait(DONE)
    classes = page.run(
        "return [...document.querySelectorAll('[data-token]')].map((e) => e.className)"
    )
    assert classes[:4] == ["t0", "t1", "t0", "t2"]
    page.run("document.querySelector('.tokens').focus()")
    page.press("\ue014\ue014")
    page.wait_for(".alternatives", "71.0 %")
    page.wait_for(".alternatives", '" other"')


def test_an_image_goes_with_the_message(serve: Serve, page: Browser, tmp_path: Path):
    engine = PageEngine()
    (tmp_path / "picture.png").write_bytes(PNG)
    opened(page, serve(engine).url)
    page.choose_file("input[name=image]", tmp_path / "picture.png")
    page.wait_for(".composer button", "Remove image")
    ask(page, "what is this?")
    page.wait(DONE)
    assert engine.requests[-1].images


def test_a_schema_and_sampling_are_in_the_request_and_in_its_code(serve: Serve, page: Browser):
    engine = PageEngine()
    opened(page, serve(engine).url)
    model(page, "demo")
    page.type("[name=temperature]", "0.3")
    page.type("[name=system]", "It's short.")
    page.click("summary", "Schema of the answer")
    page.type("[name=schema]", '{"type": "object"')
    page.wait_for(".field.wrong")
    page.type("[name=schema]", '{"type": "object"}')
    page.click("summary", "This request as code")
    for form, part in (
        ("curl", "It'\\''s short."),
        ("Python", "temperature=0.3,"),
        ("JavaScript", 'import OpenAI from "openai";'),
    ):
        page.click(".code .tabs button", form)
        page.wait_for(".code pre", part)
    page.click(".code .tabs button", "Python")
    compile(page.text(".code pre"), "shown", "exec")
    ask(page, "hi")
    page.wait_for(ANSWER)
    eventually(lambda: engine.requests, 5, "it is sent")
    assert engine.requests[-1].sampling.temperature == 0.3
    assert engine.requests[-1].constraint is not None


@pytest.mark.parametrize(("text", "code"), [("fail at once", "model_unavailable")])
def test_an_error_within_a_stream_is_shown_in_full(serve: Serve, page: Browser, text, code):
    opened(page, serve().url)
    ask(page, text)
    page.wait_for(f"{ANSWER} .error", code)
    page.wait_for(f"{ANSWER} .error", "req_")
    assert "You said:" in page.text(ANSWER)


def test_a_refused_parameter_is_shown_by_name(serve: Serve, page: Browser):
    opened(page, serve().url)
    page.type("[name=max_tokens]", "1000000000")
    page.type("[name=temperature]", "99")
    ask(page, "hi")
    page.wait_for(".error dl", "temperature")
    page.wait_for(".error dl", "req_")
    assert all("400" in each for each in page.errors())


def test_names_and_texts_with_markup_are_only_text(serve: Serve, page: Browser):
    opened(page, serve().url)
    model(page, HOSTILE)
    ask(page, "<img src=x onerror=alert(1)> <script>alert(2)</script>")
    page.wait(DONE)
    page.wait_for(f"{ANSWER} .text", "<script>alert(2)</script>")
    page.wait_for(".history li", "<img src=x")
    page.click("nav a", "Status")
    page.wait_for("td", HOSTILE)
    assert page.run("return document.querySelectorAll('body script, main img').length") == 0


WATCH_FRAMES = (
    "window.gaps = []; let last = performance.now();"
    "const tick = (now) => { gaps.push(now - last); last = now; requestAnimationFrame(tick) };"
    "requestAnimationFrame(tick)"
)


@pytest.mark.parametrize(
    ("asked", "end"),
    [("a long answer", LONG[-47:-1]), ("nested", "level 199"), ("broad", "item 599 of a list")],
)
def test_the_longest_answers_come_without_a_stutter(
    serve: Serve, page: Browser, asked: str, end: str
):
    opened(page, serve().url)
    page.run(WATCH_FRAMES)
    ask(page, asked)
    page.wait(DONE, within_s=60)
    page.wait_for(ANSWER, end)
    if end in LONG:
        assert page.text(f"{ANSWER} .text").strip() == LONG.strip()
    gaps = sorted(page.run("return gaps"))
    slow = [f"{each:.0f} ms" for each in gaps if each >= STUTTER_MS]
    assert len(slow) <= OTHERS_WORK, f"{slow} of {len(gaps)} frames"


def test_markdown_becomes_elements_and_code_is_copied(serve: Serve, page: Browser):
    opened(page, serve().url)
    ask(page, "warm up")
    page.wait(DONE)
    assert page.text(".code figcaption span") == "python"
    code = CODE.split("```python\n")[1].split("```")[0].strip()
    assert page.text(".code code") == code
    for css, text in (
        (".md ol > li", "Call it after each load."),
        (".md li li code", "POST /admin"),
        (".md strong", "when it returns"),
        (".md td.right", "31 ms"),
    ):
        page.wait_for(css, text)
    link = page.run(
        "const e = document.querySelector('.md a'); return [e.href, e.rel, e.target, e.innerText]"
    )
    assert link[0] == "https://example.com/warm-up"
    assert link[1:] == ["noopener noreferrer nofollow", "_blank", "the manual"]
    page.command(
        "Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"]
    )
    page.click(".code button", "Copy code")
    page.wait_for(".code button", "Copied")
    assert page.run("return navigator.clipboard.readText()") == code


def test_markup_in_an_answer_runs_nothing_and_loads_nothing(serve: Serve, page: Browser):
    opened(page, serve().url)
    ask(page, "markup")
    page.wait(DONE)
    page.wait_for(".md td", "<d>")
    shown = page.text(f"{ANSWER} .md")
    wanted = ("<b>Heading</b>", "<script>", "<iframe", "<u>under</u>", "Image: a picture")
    assert [each for each in wanted if each not in shown] == []
    found = page.run(
        "return [window.wasRun, document.querySelectorAll("
        "'.md :is(img, iframe, script, b, u, i)').length,"
        "[...document.querySelectorAll('.md a')].map((e) => e.getAttribute('href')),"
        "performance.getEntriesByType('resource').map((e) => new URL(e.name).host)]"
    )
    assert found[:2] == [None, 0]
    assert found[2] == ["https://images.invalid/1.png", "https://example.com/?a=1&b=2"]
    assert set(found[3]) == {page.run("return location.host")}


@pytest.mark.parametrize("text", [CODE, MARKUP, DEEP, BROAD[:3000]])
def test_streamed_markdown_ends_as_the_whole_and_no_block_changes_its_kind(
    serve: Serve, page: Browser, text: str
):
    opened(page, serve().url)
    grown, whole, flips = page.run(
        """return Promise.all([import('./page/markdown.js'), import('./page/html.js')])
        .then(async ([{ Markdown }, { render, html }]) => {
          const text = arguments[0], tags = [];
          const at = [0, 1].map(() => document.createElement('div'));
          let flips = 0;
          const show = (place, text, isRunning) =>
            render(html`<${Markdown} text=${text} isRunning=${isRunning} />`, at[place]);
          const frame = () => new Promise((resolve) => setTimeout(resolve));
          for (let end = 1; end < text.length; end += end < 1500 ? 1 : 50) {
            show(0, text.slice(0, end), true);
            if (end % 50 === 0) await frame();
            [...at[0].firstChild.children].forEach((each, place) => {
              if (tags[place] && tags[place] !== each.tagName) flips++;
              tags[place] = each.tagName;
            });
          }
          show(0, text, false);
          show(1, text, false);
          return [at[0].innerHTML, at[1].innerHTML, flips];
        })""",
        text,
    )
    assert grown == whole
    assert flips == 0


def test_with_a_wrong_key_it_says_so_and_keeps_asking(keyed, page: Browser):
    page.open(f"{keyed.url}/")
    page.wait_for("dialog", "Your API key")
    page.type("[name=key]", "sk-wrong-key")
    page.press(ENTER)
    page.wait_for("dialog .error", "invalid_api_key")
    assert all("401" in each for each in page.errors())
    page.type("[name=key]", keyed.admin)
    page.press(ENTER)
    page.wait("!document.querySelector('dialog')")
    page.wait_for(".notice", "This key administers")
    assert page.run("return document.querySelectorAll('.error').length") == 0
    assert "No model" not in page.text("body")
    assert page.run("return document.activeElement.localName") == "main"
    assert all("403" in each for each in page.errors())
    stored = page.run(
        "return JSON.stringify({...localStorage, ...sessionStorage}) + document.cookie"
    )
    assert "sk-" not in stored
    page.click(".notice button", "Make a key that chats")
    page.type("dialog [name=name]", "playground")
    page.type("dialog [name=tenant]", "acme")
    page.click("dialog button.primary", "Create")
    page.click(".issued button", "Use it in the playground")
    page.wait_for("h2", "Talk to")
    page.errors()


def answered(page: Browser, text: str) -> None:
    ask(page, text)
    page.wait(DONE)
    page.wait_for(ANSWER, f"You said: {text}")


def texts(page: Browser) -> list[str]:
    script = "return [...document.querySelectorAll('.message > .text')].map((e) => e.innerText)"
    return page.run(script)


def test_a_message_is_edited_and_an_answer_made_again_and_one_can_go_back(
    serve: Serve, page: Browser
):
    engine = PageEngine(step_s=0.002)
    opened(page, serve(engine).url)
    answered(page, "one")
    answered(page, "two")
    page.click(".message.user button", "Edit")
    page.type("[name=edit]", "three")
    page.click(".edit button", "Send")
    page.wait_for(ANSWER, "You said: three")
    page.wait(DONE)
    assert texts(page) == ["three", "You said: three"]
    page.wait_for(".versions", "2 of 2")
    page.click("[aria-label='Version before']")
    branch = ["one", "You said: one", "two", "You said: two"]
    assert texts(page) == branch
    page.click(".message.user ~ .assistant ~ .user ~ .assistant button", "Regenerate")
    page.wait(DONE)
    page.wait_for(".assistant .versions", "2 of 2")
    assert texts(page) == branch
    assert [each.text.count("[user]") for each in engine.requests] == [1, 2, 1, 2]
    page.open(f"{page.run('return location.origin')}/?later")
    page.wait_for(".assistant .versions", "2 of 2")
    assert texts(page) == branch
    page.click("[aria-label='Version after']")
    assert texts(page) == ["three", "You said: three"]


def test_a_question_without_an_answer_is_answered_again(serve: Serve, page: Browser):
    engine = PageEngine(step_s=0.3)
    url = serve(engine).url
    opened(page, url)
    ask(page, "hello")
    page.click(".stop")
    page.click(".messages button", "Answer again")
    page.wait_for(".stop")
    page.open(f"{url}/?again")
    assert texts(page) == ["hello"]
    engine.step_s = 0
    page.click(".messages button", "Answer again")
    page.wait_for(ANSWER, "You said: hello")


def test_conversations_are_answered_at_the_same_time_and_deleted_ones_stay_deleted(
    serve: Serve, page: Browser
):
    engine = PageEngine(step_s=0.05)
    opened(page, serve(engine).url)
    ask(page, "a story")
    page.wait_for(ANSWER, "Once upon")
    page.click("button.new")
    ask(page, "endless")
    page.wait_for(ANSWER, "on and on")
    assert engine.running == 2
    page.click("[aria-label='Delete endless']")
    page.wait_for("h2", "Talk to")
    eventually(lambda: engine.running == 1, 5, "the deleted one is stopped")
    page.click(".history li button", "a story")
    page.wait_for(ANSWER, "went to the oven.")
    page.wait(DONE)
    titles = "return [...document.querySelectorAll('.history li')].map((e) => e.innerText)"
    assert ["endless" in each for each in page.run(titles)] == [False]
    assert "endless" not in page.run("return localStorage.conversations")


def test_what_comes_at_once_has_no_rate(serve: Serve, page: Browser):
    opened(page, serve().url)
    rates = page.run(
        """return import('./page/answer.js').then(({ Answer }) =>
          arguments[0].map(([tokens, ms, moments]) => {
            const usage = { completion_tokens: tokens };
            const given = { usage, firstAt: 0, lastAt: ms, moments };
            return Object.assign(new Answer(), given).timings.perS;
          }))""",
        [[1, 0, 1], [3000, 0.02, 1], [3000, 20, 2], [3000, 60, 3], [10, 20, 10], [61, 600, 61]],
    )
    assert rates == [None, None, None, None, None, 100]


def test_settings_survive_a_reload(serve: Serve, page: Browser):
    server = serve()
    opened(page, server.url)
    model(page, "demo")
    page.click("summary", "Tools")
    wanted = {"system": "Be short.", "temperature": "0.5", "top_k": "40", "tools": "[]"}
    for name, value in wanted.items():
        page.type(f"[name={name}]", value)
    page.open(f"{server.url}/?again")
    page.wait_for("h2", "Talk to demo")
    script = "return arguments[0].map((name) => document.querySelector(`[name=${name}]`).value)"
    assert page.run(script, [*wanted, "model"]) == [*wanted.values(), "demo"]


def test_sampling_and_effort_reach_the_engine_and_the_context_is_counted(
    serve: Serve, page: Browser
):
    engine = PageEngine()
    opened(page, serve(engine).url)
    values = {"top_k": "40", "min_p": "0.1", "repetition_penalty": "1.2"}
    for name, value in values.items():
        page.type(f"[name={name}]", value)
    page.run(
        "const e = document.querySelector('[name=reasoning_effort]'); e.value = 'low';"
        "e.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    page.click("summary", "This request as code")
    page.wait_for(".code pre", '"reasoning_effort": "low"')
    answered(page, "hi")
    sampling = engine.requests[-1].sampling
    assert (sampling.top_k, sampling.min_p, sampling.repetition_penalty) == (40, 0.1, 1.2)
    page.wait_for(".context", "of 200,000 tokens")


def test_tools_that_are_no_json_are_reported_at_the_composer(serve: Serve, page: Browser):
    opened(page, serve().url)
    page.click("summary", "Tools")
    page.type("[name=tools]", "[{")
    page.type(MESSAGE, "hi")
    page.wait_for(".composer [role=alert]", "The tools are not JSON")
    assert page.run("return document.querySelector('.composer .primary').disabled")


@pytest.mark.parametrize(("content", "is_text"), [(b"a = 1\n```\n", True), (b"\0\1", False)])
def test_a_text_file_becomes_part_of_the_message(
    serve: Serve, page: Browser, tmp_path: Path, content: bytes, is_text: bool
):
    opened(page, serve().url)
    (tmp_path / "notes.py").write_bytes(content)
    page.choose_file("input[name=text]", tmp_path / "notes.py")
    if is_text:
        page.wait("document.querySelector('[name=message]').value.includes('notes.py')")
        value = page.run("return document.querySelector('[name=message]').value")
        assert value == f"notes.py:\n````\n{content.decode().rstrip()}\n````\n"
    else:
        page.wait_for(".composer [role=alert]", "notes.py is no text")


def test_conversations_are_searched_renamed_exported_and_imported(
    serve: Serve, page: Browser, tmp_path: Path
):
    opened(page, serve(PageEngine(step_s=0.001)).url)
    answered(page, "apples")
    page.click("button.new")
    answered(page, "pears")
    page.click("[aria-label='Rename pears']")
    page.type("[name=title]", "Fruit")
    page.press(ENTER)
    page.wait_for(".history li", "Fruit")
    page.type("[type=search]", "apples")
    page.wait("document.querySelectorAll('.history li').length === 1")
    page.type("[type=search]", "\ue003")
    exported = page.run(
        "return import('./page/conversations.js').then((each) => each.conversations.exported)"
    )
    titles = "return [...document.querySelectorAll('.history li')].map((e) => e.innerText.trim())"
    before = page.run(titles)
    for title in ("apples", "Fruit"):
        page.click(f"[aria-label='Delete {title}']")
    (tmp_path / "saved.json").write_text(exported)
    page.choose_file("[name=import]", tmp_path / "saved.json")
    page.wait("document.querySelectorAll('.history li').length === 2")
    assert page.run(titles) == before
    page.click(".history li button", "apples")
    assert texts(page) == ["apples", "You said: apples"]


NODE = {"id": "a", "parent": None, "role": "user", "content": "hi"}
KEPT = {"id": "1", "title": "t", "model": "m", "nodes": [NODE], "leaf": "a"}


@pytest.mark.parametrize(
    "given",
    [
        "no JSON",
        "null",
        "[]",
        {"form": "other", "conversations": []},
        *(
            {"form": "triton-openai conversations", "conversations": [KEPT | changes]}
            for changes in (
                {"title": 7},
                {"leaf": "b"},
                {"nodes": None},
                {"nodes": [NODE, NODE]},
                {"nodes": [NODE | {"parent": "a"}]},
                {"nodes": [NODE | {"content": {}}]},
                {"nodes": [NODE | {"role": "system"}]},
                {"nodes": [NODE | {"calls": [{"id": 1}]}]},
            )
        ),
    ],
)
def test_a_file_that_is_no_export_is_refused_with_a_reason(
    serve: Serve, page: Browser, tmp_path: Path, given: object
):
    opened(page, serve().url)
    text = given if isinstance(given, str) else json.dumps(given)
    (tmp_path / "saved.json").write_text(text)
    page.choose_file("[name=import]", tmp_path / "saved.json")
    page.wait("document.querySelector('.history [role=alert]')?.textContent.length > 5")
    assert page.run("return document.querySelectorAll('.history li').length") == 0
