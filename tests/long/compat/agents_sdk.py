"""An agent of the OpenAI Agents SDK with its default model, which speaks the Responses API: three
turns with two tools; prints JSON.

usage: agents_sdk.py BASE_URL KEY       (PYTHONPATH names the packages)
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import openai
from agents import Agent, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled

QUESTIONS = (
    "What is the weather in Rome?",
    "What is the population of Oslo?",
    "What is the weather in Madrid?",
)
CALLED: list[list[str]] = []


@function_tool
def get_weather(city: str) -> str:
    """Get the current weather in a city"""
    CALLED.append(["get_weather", city])
    return json.dumps({"temperature": 21, "sky": "sunny"})


@function_tool
def get_population(city: str) -> str:
    """Get the population of a city"""
    CALLED.append(["get_population", city])
    return json.dumps({"population": 7042})


async def conversation(agent: Agent, *, is_streamed: bool, is_kept: bool) -> dict[str, Any]:
    """is_kept: the server has the conversation, and gets only what is new."""
    CALLED.clear()
    history: list[Any] = []
    previous, answers, kinds = None, [], set()
    for question in QUESTIONS:
        message = {"role": "user", "content": question}
        given = [message] if is_kept else [*history, message]
        fields: dict[str, Any] = {}
        if is_kept:
            fields = {"previous_response_id": previous, "auto_previous_response_id": True}
        if is_streamed:
            run = Runner.run_streamed(agent, given, **fields)
            async for event in run.stream_events():
                kinds.add(event.type)
        else:
            run = await Runner.run(agent, given, **fields)
        answers.append(run.final_output)
        history, previous = run.to_input_list(), run.last_response_id
    return {"answers": answers, "called": list(CALLED), "kinds": sorted(kinds)}


async def main(base_url: str, key: str) -> None:
    set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0)
    model = OpenAIResponsesModel(model="demo", openai_client=client)
    agent = Agent(name="guide", model=model, tools=[get_weather, get_population])
    told = {
        f"{'streamed' if is_streamed else 'whole'}, {'kept' if is_kept else 'sent'}": (
            await conversation(agent, is_streamed=is_streamed, is_kept=is_kept)
        )
        for is_streamed in (False, True)
        for is_kept in (False, True)
    }
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
