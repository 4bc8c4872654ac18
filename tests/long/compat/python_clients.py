"""What LiteLLM and LangChain do with a key, right and wrong, and LangChain with responses; prints
JSON.

usage: python_clients.py litellm|langchain|responses BASE_URL KEY   (PYTHONPATH names the packages)
       python_clients.py embeddings BASE_URL FOLDER
"""

from __future__ import annotations

import json
import os
import sys

TEXT = "Hello!"
MESSAGES = [{"role": "user", "content": TEXT}]


def with_litellm(base_url: str, key: str) -> dict[str, object]:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would fetch one
    import litellm

    litellm.suppress_debug_info = True  # it would print them among our JSON

    def ask(given: str, **options: object):
        return litellm.completion(
            model="openai/demo",
            messages=MESSAGES,
            api_base=base_url,
            api_key=given,
            num_retries=0,
            **options,
        )

    stream = [chunk.choices[0].delta.content or "" for chunk in ask(key, stream=True)]
    try:
        ask("wrong")
    except litellm.exceptions.AuthenticationError as error:
        refused = [type(error).__name__, error.status_code]
    whole = ask(key).choices[0].message.content
    return {"whole": whole, "stream": "".join(stream), "refused": refused}


def with_langchain(base_url: str, key: str) -> dict[str, object]:
    import openai
    from langchain_openai import ChatOpenAI

    def model(given: str) -> ChatOpenAI:
        return ChatOpenAI(model="demo", base_url=base_url, api_key=given, max_retries=0)

    stream = [chunk.content for chunk in model(key).stream(TEXT)]
    try:
        model("wrong").invoke(TEXT)
    except openai.AuthenticationError as error:
        refused = [type(error).__name__, error.status_code]
    whole = model(key).invoke(TEXT).content
    return {"whole": whole, "stream": "".join(stream), "refused": refused}


def with_responses(base_url: str, key: str) -> dict[str, object]:
    from langchain_core.messages import HumanMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from pydantic import BaseModel

    class Person(BaseModel):
        """A person."""

        name: str
        age: int

    @tool
    def get_weather(city: str) -> str:
        """Get the current weather in a city"""
        return json.dumps({"temperature": 21, "sky": "sunny"})

    def model(**fields: object) -> ChatOpenAI:
        return ChatOpenAI(
            model="demo",
            base_url=base_url,
            api_key=key,
            max_retries=0,
            use_responses_api=True,
            **fields,
        )

    with_tool = model().bind_tools([get_weather])
    messages: list = [HumanMessage("What is the weather in Rome?")]
    asked = with_tool.invoke(messages)
    streamed = None
    for chunk in with_tool.stream(messages):
        streamed = chunk if streamed is None else streamed + chunk
    messages += [asked, get_weather.invoke(asked.tool_calls[0])]
    kept = model(use_previous_response_id=True).bind_tools([get_weather])
    people = [
        model()
        .with_structured_output(Person, method=method)
        .invoke("Extract the name and the age: Tom is 31 years old.")
        .model_dump()
        for method in ("json_schema", "function_calling")
    ]
    whole = model().invoke(TEXT)
    return {
        "whole": whole.text,
        "tokens": whole.usage_metadata["output_tokens"],
        "stream": "".join(chunk.text for chunk in model().stream(TEXT)),
        "calls": [
            [[call["name"], call["args"]] for call in one.tool_calls] for one in (asked, streamed)
        ],
        "answers": [one.invoke(messages).text for one in (with_tool, kept)],
        "people": people,
    }


def embeddings(base_url: str, folder: str) -> dict[str, object]:
    """LangChain's, which sends texts, or lists of token ids of the tokenizer in this folder."""
    from langchain_openai import OpenAIEmbeddings

    given = {"model": "bert", "base_url": base_url, "api_key": "none"}
    texts = OpenAIEmbeddings(**given, check_embedding_ctx_length=False)
    ids = OpenAIEmbeddings(**given, tiktoken_enabled=False, tiktoken_model_name=folder)
    documents = ["bread and milk", "where is the station"]
    return {
        "texts": texts.embed_documents(documents),
        "ids": ids.embed_documents(documents),
        "query": texts.embed_query(documents[0]),
    }


if __name__ == "__main__":
    client, base_url, key = sys.argv[1:]
    programs = {
        "litellm": with_litellm,
        "langchain": with_langchain,
        "responses": with_responses,
        "embeddings": embeddings,
    }
    told = programs[client](base_url, key)
    sys.stdout.write(json.dumps(told))
