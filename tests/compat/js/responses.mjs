// What an application does with responses in OpenAI's JavaScript SDK; prints JSON.
// usage: node responses.mjs BASE_URL
import OpenAI from "openai";
import { zodResponsesFunction, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const hello = { model: "demo", input: "Hello!" };
const cities = z.object({ city: z.string() });
const tools = [
  ["get_weather", "Get the current weather in a city"],
  ["get_population", "Get the population of a city"],
].map(([name, description]) => zodResponsesFunction({ name, description, parameters: cities }));
const results = {
  get_weather: { temperature: 21, sky: "sunny" },
  get_population: { population: 7042 },
};

const whole = await client.responses.create(hello);
let streamed = "";
for await (const event of await client.responses.create({ ...hello, stream: true })) {
  if (event.type === "response.output_text.delta") streamed += event.delta;
}
const helper = client.responses.stream(hello);
const folded = await helper.finalResponse();

const person = z.object({ name: z.string(), age: z.number() });
const parsed = await client.responses.parse({
  model: "demo",
  input: "Extract the name and the age: Tom is 31 years old.",
  text: { format: zodTextFormat(person, "person") },
});

const loop = [];
let previous = null;
for (const question of [
  "What is the weather in Rome?",
  "What is the population of Oslo?",
  "What is the weather in Madrid?",
]) {
  const asked = await client.responses
    .stream({ model: "demo", input: question, tools, previous_response_id: previous })
    .finalResponse();
  const [call] = asked.output;
  const answer = await client.responses.parse({
    model: "demo",
    input: [
      {
        type: "function_call_output",
        call_id: call.call_id,
        output: JSON.stringify(results[call.name]),
      },
    ],
    tools,
    previous_response_id: asked.id,
  });
  loop.push([call.name, call.parsed_arguments, answer.output_text]);
  previous = answer.id;
}

const items = [];
const many = Array.from({ length: 45 }, (_, at) => ({ role: "user", content: `Number ${at}.` }));
const long = await client.responses.create({ model: "demo", input: many, max_output_tokens: 1 });
for await (const item of client.responses.inputItems.list(long.id, { order: "asc" })) {
  items.push(item.content[0].text);
}
await client.responses.delete(long.id);

const queued = await client.responses.create({ ...hello, background: true });
const numbers = [];
let last = null;
for await (const event of await client.responses.retrieve(queued.id, { stream: true })) {
  numbers.push(event.sequence_number);
  last = event.response ?? last;
}

const errors = {};
const wrong = {
  model: { model: "nobody" },
  range: { temperature: 9 },
  previous: { previous_response_id: "resp_1" },
  tool: { tools: [{ type: "web_search" }], stream: true },
};
for (const [name, body] of Object.entries(wrong)) {
  try {
    await client.responses.create({ ...hello, ...body });
  } catch (error) {
    errors[name] = [error.constructor.name, error.status, error.code, error.param];
  }
}

console.log(
  JSON.stringify({
    texts: [whole.output_text, streamed, folded.output_text, last.output[0].content[0].text],
    tokens: [whole.usage.output_tokens, folded.usage.output_tokens],
    parsed: parsed.output_parsed,
    loop,
    listed: items.every((text, at) => text === many[at].content) && items.length,
    queued: [queued.status, numbers.every((number, at) => number === at), last.status],
    errors,
  }),
);
