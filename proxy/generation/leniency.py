"""What a request wishes, and its model does not do, where a refusal would end the conversation.

Called by `prepare`.
"""

from __future__ import annotations

from dataclasses import replace

from proxy.domain.image import Image
from proxy.domain.model import ModelCard
from proxy.domain.request import ChatPrompt, GenerationRequest, Message
from proxy.language.prompting.chat_template import EFFORT, NONE, SWITCHES, VERBOSITY, read_by
from proxy.language.syntax.parsers import syntax_of

UNSEEN = "[The tool has returned an image here. This model reads no images.]"


def without_unread_hints(
    request: GenerationRequest, card: ModelCard
) -> tuple[GenerationRequest, tuple[str, ...]]:
    """The request without hints that no template of the model reads, and their names.

    Reasoning that is unwanted, and that the template cannot switch off, is ended at once. A
    caller's own template is asked by the sandbox alone.
    """
    prompt = request.prompt
    if not isinstance(prompt, ChatPrompt) or prompt.template is not None:
        return request, ()
    values = dict(prompt.template_values)
    given = [name for name in (EFFORT, VERBOSITY) if name in values]
    if not given:
        return request, ()
    read = read_by(card.facts)
    unread = [name for name in given if name not in read]
    if EFFORT in unread and values[EFFORT] == NONE:
        unread.remove(EFFORT)
        if syntax_of(card).reasoning is not None and not read.intersection(SWITCHES):
            del values[EFFORT]
            request = replace(request, thinking_budget=0)
    for name in unread:
        del values[name]
    return replace(request, prompt=replace(prompt, template_values=values)), tuple(unread)


def with_described_results(request: GenerationRequest) -> GenerationRequest:
    """With a sentence in the place of each image of a tool's result."""
    prompt = request.prompt
    if not isinstance(prompt, ChatPrompt) or not any(one.result_images for one in prompt.messages):
        return request
    messages, images, kept = list[Message](), prompt.images, list[Image]()
    at = 0
    for message in prompt.messages:
        shown, own = message.result_images, message.parts.count(None)
        kept += images[at + shown : at + own]
        at += own
        messages.append(_described(message) if shown else message)
    prompt = replace(prompt, messages=tuple(messages), images=tuple(kept))
    return replace(request, prompt=prompt)


def _described(message: Message) -> Message:
    left = message.result_images
    parts = list[str | None]()
    for part in message.parts:
        if part is None and left:
            part, left = UNSEEN, left - 1
        parts.append(part)
    text = "\n".join(filter(None, parts))
    return replace(
        message, content=text, parts=tuple(parts) if None in parts else (), result_images=0
    )
