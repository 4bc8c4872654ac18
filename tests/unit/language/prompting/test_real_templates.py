"""79 published chat templates show every word that agents send, or refuse it for a known reason.

The templates belong to the makers of the models, so they are read from a folder next to the
repository, and these tests are skipped where it is absent.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from proxy.domain.errors import InvalidRequest
from proxy.domain.image import Image
from proxy.domain.request import ChatPrompt
from proxy.language.prompting.chat_template import SWITCHES, rendered, variables
from proxy.language.syntax.parsers import GENERIC, syntax_of
from tests.doubles.engine import CARD, FACTS
from tests.unit.language.prompting.template_chats import IMAGE, OF_CALLS, OF_TURNS, SPOILT, missing

FOLDER = Path(__file__).parents[5] / "shared" / "data" / "chat_templates"
TEMPLATES = sorted(FOLDER.glob("*.jinja"))
CHATS = {**OF_TURNS, **OF_CALLS, "an image": IMAGE}
NO_IMAGE = "has no place for an image"
NO_CALLS = (
    OF_CALLS,
    "does not use 'messages",
    "it has no place for calls, and its family is unknown",
)
# Template -> the chats that it refuses, what the error says, and why.
REFUSED = {
    "Kimi-K2-Instruct.jinja": (
        OF_CALLS,
        "access to attribute 'append' of 'list' object is unsafe",
        "it changes a list, which the sandbox forbids, as transformers' does",
    ),
    "vllm__tool_chat_template_glm4.jinja": NO_CALLS,
    "fireworks-ai-llama-3-firefunction-v2.jinja": (
        {**OF_TURNS, **OF_CALLS},
        "'functions' is undefined",
        "it wants variables of its own, which chat_template_kwargs can give",
    ),
}
PYTHON = {
    f"{name}.jinja" for name in ("LFM2-8B-A1B", "LFM2.5-Instruct", "LFM2.5-8B-A1B")
}  # its models write calls as Python does, with None


@pytest.mark.skipif(not TEMPLATES, reason="the folder of published chat templates is not here")
@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_a_template_shows_every_word_of_every_chat(path):
    template = path.read_text()
    facts = replace(FACTS, chat_template=template)
    family = syntax_of(replace(CARD, facts=facts)).tools
    options = {"words_tools": family == GENERIC, "family": family}
    refused, error, _ = REFUSED.get(path.name, ((), "", ""))
    for name, chat in CHATS.items():
        messages, tools = chat
        prompt = ChatPrompt(messages=messages, images=(Image(),) if chat is IMAGE else ())
        if name in refused or (chat is IMAGE and "image" not in template):
            with pytest.raises(InvalidRequest, match=error if name in refused else NO_IMAGE):
                rendered(prompt, facts, tools, **options)
            continue
        text = rendered(prompt, facts, tools, **options).text
        assert missing(text, chat) == [], name
        assert text.count("tHink1") < 2, name
        assert "None" not in text or path.name in PYTHON, name
        assert SPOILT.search(text) is None, name


# Templates that open a thought after a user's message alone: always, or where reasoning is on.
ALWAYS = {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B"}
SWITCHED_ON = {
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "deepseek-ai-DeepSeek-V3.1",
    "vllm__tool_chat_template_deepseekv31",
}


@pytest.mark.skipif(not TEMPLATES, reason="the folder of published chat templates is not here")
@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
@pytest.mark.parametrize("is_on", [None, True, False])
def test_few_templates_open_a_thought_only_after_a_users_message(path, is_on):
    facts = replace(FACTS, chat_template=path.read_text())
    syntax = syntax_of(replace(CARD, facts=facts))
    messages, _ = OF_CALLS["a call"]  # without tools: some of these templates do not read any
    read = () if is_on is None else variables(facts.chat_template).intersection(SWITCHES)
    prompt = ChatPrompt(messages=messages, template_values=dict.fromkeys(read, is_on))
    if path.name in REFUSED or syntax.reasoning is None:
        return
    options = {"words_tools": syntax.tools == GENERIC, "family": syntax.tools}
    found = rendered(prompt, facts, reasoning=syntax.reasoning, **options)
    expected = path.stem in (ALWAYS | SWITCHED_ON if is_on else ALWAYS)
    assert found.leaves_thought_out is expected


@pytest.mark.skipif(not TEMPLATES, reason="the folder of published chat templates is not here")
def test_every_refusal_is_of_a_template_that_is_there():
    assert REFUSED.keys() <= {path.name for path in TEMPLATES}
