// What an application does with Anthropic's JavaScript SDK; prints JSON. usage: node anthropic.mjs BASE_URL
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const fields = {
  model: "demo",
  max_tokens: 60,
  messages: [{ role: "user", content: "Hello!" }],
};
const city = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const results = {
  get_weather: { temperature: 21, sky: "sunny" },
  get_population: { population: 7042 },
};
const descriptions = {
  get_weather: "Get the current weather in a city",
  get_population: "Get the population of a city",
};
const tools = Object.entries(descriptions).map(([name, description]) => ({
  name,
  description,
  input_schema: city,
}));
const questions = [
  "What is the weather in Rome?",
  "What is the population of Oslo?",
  "What is the weather in Madrid?",
];
const promptTokens = ({ usage }) => usage.input_tokens + usage.cache_read_input_tokens;

// without what differs between two answers: ids, and what the prefix cache had
const comparable = ({ role, content, stop_reason, usage }) => ({
  role,
  content: content.map(({ type, text, name, input }) => ({ type, text, name, input })),
  stop_reason,
  output_tokens: usage.output_tokens,
});

const whole = await client.messages.create(fields);
const stream = client.messages.stream(fields);
let text = "";
stream.on("text", (more) => (text += more));
const folded = await stream.finalMessage();
const weather = { ...fields, messages: [{ role: "user", content: questions[0] }], tools };
const called = await client.messages.stream(weather).finalMessage();
const { max_tokens, ...prompt } = weather;
const counted = await client.messages.countTokens(prompt);

const loop = [];
const messages = [];
for (const question of questions) {
  messages.push({ role: "user", content: question });
  const asked = await client.messages.create({ ...fields, messages, tools });
  const call = asked.content.find((block) => block.type === "tool_use");
  messages.push({ role: "assistant", content: asked.content });
  const content = JSON.stringify(results[call.name]);
  messages.push({
    role: "user",
    content: [{ type: "tool_result", tool_use_id: call.id, content }],
  });
  const answer = await client.messages.stream({ ...fields, messages, tools }).finalMessage();
  messages.push({ role: "assistant", content: answer.content });
  const { stop_reason, content: said } = answer;
  loop.push([asked.stop_reason, call.name, call.input, stop_reason, said[0].text]);
}

const cities = [];
const [tool] = tools;
const runnable = {
  ...tool,
  parse: (given) => given,
  run: (given) => {
    cities.push(given.city);
    return JSON.stringify(results.get_weather);
  },
};
const last = await client.beta.messages.toolRunner({ ...weather, tools: [runnable] });

const errors = {};
for (const [name, wrong] of Object.entries({
  model: { model: "nobody" },
  range: { temperature: 1.5 },
  stream: { messages: [{ role: "user", content: "hello ".repeat(9000) }], stream: true },
})) {
  try {
    await client.messages.create({ ...fields, ...wrong });
  } catch (error) {
    const kind = error.error?.error?.type;
    errors[name] = [error.constructor.name, error.status, kind, Boolean(error.requestID)];
  }
}

console.log(
  JSON.stringify({
    whole: comparable(whole),
    folded: comparable(folded),
    text: [text, whole.content[0].text],
    called: [comparable(called), comparable(await client.messages.create(weather))],
    counted: [counted.input_tokens, promptTokens(called)],
    loop,
    runner: [cities, last.stop_reason, last.content[0].text],
    errors,
  }),
);
