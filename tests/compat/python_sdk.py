"""What an application does with OpenAI's Python SDK, in any of its versions; prints JSON.

usage: python_sdk.py BASE_URL       (PYTHONPATH names the SDK to use)
"""

from __future__ import annotations

import json
import sys

import openai

MESSAGES = [{"role": "user", "content": "Hello!"}]


def main(base_url: str) -> None:
    client = openai.OpenAI(base_url=base_url, api_key="none", max_retries=0)
    whole = client.chat.completions.create(model="demo", messages=MESSAGES)
    chunks = list(
        client.chat.completions.create(
            model="demo", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
    )
    streaming = getattr(client.chat.completions, "stream", None)
    with (streaming or client.beta.chat.completions.stream)(
        model="demo", messages=MESSAGES
    ) as helper:
        kinds = {event.type for event in helper}
        folded = helper.get_final_completion()
    raw = client.chat.completions.with_raw_response.create(model="demo", messages=MESSAGES)
    with client.chat.completions.create(
        model="endless", messages=MESSAGES, stream=True, max_tokens=3000
    ) as abandoned:
        next(iter(abandoned))
    text = client.completions.create(model="endless", prompt="abc", max_tokens=5)
    told = {
        "version": openai.__version__,
        "models": [model.id for model in client.models.list()],
        "whole": whole.choices[0].message.content,
        "stream": "".join(c.choices[0].delta.content or "" for c in chunks if c.choices),
        "helper": folded.choices[0].message.content,
        "helper_events": sorted(kinds),
        "stream_tokens": chunks[-1].usage.completion_tokens,
        "whole_tokens": whole.usage.completion_tokens,
        "raw": raw.parse().choices[0].message.content,
        "raw_request_id": raw.headers["x-request-id"],
        "text_tokens": text.usage.completion_tokens,
        "errors": errors(client),
    }
    sys.stdout.write(json.dumps(told))


def errors(client: openai.OpenAI) -> dict[str, list[object]]:
    """name -> [class, status, code, param]."""
    wrong = {
        "model": {"model": "nobody", "messages": MESSAGES},
        "range": {"model": "demo", "messages": MESSAGES, "temperature": 9},
        "stream": {"model": "demo", "messages": MESSAGES, "max_tokens": 10**6, "stream": True},
    }
    found: dict[str, list[object]] = {}
    for name, arguments in wrong.items():
        try:
            client.chat.completions.create(**arguments)
        except openai.APIStatusError as error:
            found[name] = [type(error).__name__, error.status_code, error.code, error.param]
    return found


if __name__ == "__main__":
    main(sys.argv[1])
