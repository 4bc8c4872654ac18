"""An agent's loop: the model calls tools, we run them, and it answers with their results."""

# /// script
# dependencies = ["openai"]
# ///

import json
import os

from openai import OpenAI

URL = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:9000/v1")
client = OpenAI(base_url=URL, api_key="none")


def get_weather(city: str) -> dict[str, object]:
    return {"city": city, "temperature": 21, "sky": "sunny"}


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the current weather in a city",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "Name of the city"}},
                "required": ["city"],
            },
        },
    }
]

messages: list = [{"role": "user", "content": "What is the weather in Rome?"}]
while True:
    choice = client.chat.completions.create(model="demo", messages=messages, tools=TOOLS).choices[0]
    messages.append(choice.message)
    if choice.finish_reason != "tool_calls":
        break
    for call in choice.message.tool_calls:
        print(f"{call.function.name}({call.function.arguments})")
        result = get_weather(**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})
print(choice.message.content)
