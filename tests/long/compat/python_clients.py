"""What LiteLLM and LangChain do with a key, right and wrong; prints JSON.

usage: python_clients.py litellm|langchain BASE_URL KEY       (PYTHONPATH names the packages)
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
    programs = {"litellm": with_litellm, "langchain": with_langchain, "embeddings": embeddings}
    told = programs[client](base_url, key)
    sys.stdout.write(json.dumps(told))
