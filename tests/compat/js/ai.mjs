// What an application does with Vercel's AI SDK, whose default for OpenAI is the Responses API;
// prints JSON. usage: node ai.mjs BASE_URL
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const bodies = [];
const openai = createOpenAI({
  baseURL: process.argv[2],
  apiKey: "none",
  fetch: (url, options) => {
    bodies.push(JSON.parse(options.body));
    return fetch(url, options);
  },
});
const model = openai("demo");
const city = z.object({ city: z.string() });
const results = {
  get_weather: { temperature: 21, sky: "sunny" },
  get_population: { population: 7042 },
};
const descriptions = {
  get_weather: "Get the current weather in a city",
  get_population: "Get the population of a city",
};
const called = [];
const tools = Object.fromEntries(
  Object.entries(descriptions).map(([name, description]) => [
    name,
    tool({
      description,
      inputSchema: city,
      execute: async (given) => {
        called.push([name, given.city]);
        return results[name];
      },
    }),
  ]),
);

const whole = await generateText({ model, prompt: "Hello!", maxRetries: 0 });
const stream = streamText({ model, prompt: "Hello!", maxRetries: 0 });
let streamed = "";
for await (const piece of stream.textStream) streamed += piece;

// The second step of a turn names the items of the first, which the server has kept.
const answers = [];
let messages = [];
for (const question of [
  "What is the weather in Rome?",
  "What is the population of Oslo?",
  "What is the weather in Madrid?",
]) {
  messages.push({ role: "user", content: question });
  const given = { model, messages, tools, stopWhen: stepCountIs(3), maxRetries: 0 };
  const found = answers.length === 1 ? streamText(given) : await generateText(given);
  answers.push(await found.text);
  messages = [...messages, ...(await found.response).messages];
}

const person = await generateText({
  model,
  output: Output.object({ schema: z.object({ name: z.string(), age: z.number() }) }),
  prompt: "Extract the name and the age: Tom is 31 years old.",
  maxRetries: 0,
});

let refused = null;
try {
  await generateText({ model: openai("nobody"), prompt: "Hello!", maxRetries: 0 });
} catch (error) {
  refused = [error.name, error.statusCode, error.data?.error?.code];
}

console.log(
  JSON.stringify({
    whole: whole.text,
    streamed,
    finish: [whole.finishReason, await stream.finishReason],
    tokens: [whole.usage.outputTokens, (await stream.usage).outputTokens],
    called,
    answers,
    references: bodies.flatMap((body) => body.input).filter((one) => one.type === "item_reference")
      .length,
    person: person.output,
    refused,
  }),
);
