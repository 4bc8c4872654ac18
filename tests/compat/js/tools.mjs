// An agent's loop of tools with OpenAI's JavaScript SDK; prints JSON. usage: node tools.mjs BASE_URL
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const city = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const results = {
  get_weather: { temperature: 21, sky: "sunny" },
  get_population: { population: 7042 },
};
const descriptions = {
  get_weather: "Get the current weather in a city",
  get_population: "Get the population of a city",
};
const called = [];
const tools = Object.entries(descriptions).map(([name, description]) => ({
  type: "function",
  function: {
    name,
    description,
    parameters: city,
    parse: JSON.parse,
    function: (given) => {
      called.push([name, given.city]);
      return results[name];
    },
  },
}));

let messages = [];
const answers = [];
for (const question of [
  "What is the weather in Rome?",
  "What is the population of Oslo?",
  "What is the weather in Madrid?",
]) {
  messages.push({ role: "user", content: question });
  const runner = client.chat.completions.runTools({ model: "demo", messages, tools, stream: true });
  answers.push(await runner.finalContent());
  messages = runner.messages;
}
const required = await client.chat.completions.create({
  model: "demo",
  messages: [{ role: "user", content: "Hello!" }],
  tools,
  tool_choice: "required",
});

console.log(
  JSON.stringify({
    called,
    answers,
    required: required.choices[0].finish_reason,
    arguments: Object.keys(JSON.parse(required.choices[0].message.tool_calls[0].function.arguments)),
  }),
);
