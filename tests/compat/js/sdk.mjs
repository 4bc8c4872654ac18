// What an application does with OpenAI's JavaScript SDK; prints JSON. usage: node sdk.mjs BASE_URL
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "Hello!" }];

const whole = await client.chat.completions.create({ model: "demo", messages });

let streamed = "";
let usage = null;
const stream = await client.chat.completions.create({
  model: "demo",
  messages,
  stream: true,
  stream_options: { include_usage: true },
});
for await (const chunk of stream) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}

const helper = client.chat.completions.stream({ model: "demo", messages });
const folded = await helper.finalChatCompletion();

const { data, response } = await client.chat.completions
  .create({ model: "demo", messages })
  .withResponse();

const abandoned = await client.chat.completions.create({
  model: "endless",
  messages,
  stream: true,
  max_tokens: 3000,
});
let seen = 0;
for await (const _ of abandoned) {
  seen += 1;
  if (seen === 3) abandoned.controller.abort();
}

const errors = {};
const wrong = {
  model: { model: "nobody", messages },
  range: { model: "demo", messages, temperature: 9 },
  stream: { model: "demo", messages, max_tokens: 1000000, stream: true },
};
for (const [name, body] of Object.entries(wrong)) {
  try {
    await client.chat.completions.create(body);
  } catch (error) {
    errors[name] = [error.constructor.name, error.status, error.code, error.param];
  }
}

const models = [];
for await (const model of client.models.list()) models.push(model.id);

console.log(
  JSON.stringify({
    models,
    whole: whole.choices[0].message.content,
    stream: streamed,
    helper: folded.choices[0].message.content,
    stream_tokens: usage.completion_tokens,
    whole_tokens: whole.usage.completion_tokens,
    raw: data.choices[0].message.content,
    raw_request_id: response.headers.get("x-request-id"),
    errors,
  }),
);
