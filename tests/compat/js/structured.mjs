// Structured output with OpenAI's JavaScript SDK and zod; prints JSON. usage: node structured.mjs BASE_URL
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "Tell me about yourself in JSON." }];

const Address = z.object({
  street: z.enum(["Main Street", "Mill Lane"]),
  number: z.int().min(1).max(99),
});
const Person = z.object({
  mood: z.union([z.literal("good"), z.literal("bad")]),
  home: Address,
  second_home: Address.nullable(),
  colours: z.array(z.enum(["red", "green"])).max(3),
  is_kind: z.boolean(),
});
const asked = {
  model: "demo",
  messages,
  max_tokens: 600,
  response_format: zodResponseFormat(Person, "person"),
};

const whole = await client.chat.completions.parse(asked);
const streamed = await client.chat.completions.stream(asked).finalChatCompletion();

let refused = null;
try {
  const schema = { type: "nothing" };
  const response_format = { type: "json_schema", json_schema: { name: "x", schema } };
  await client.chat.completions.create({ model: "demo", messages, response_format });
} catch (error) {
  refused = [error.constructor.name, error.status, error.code, error.param];
}

console.log(
  JSON.stringify({
    parsed: whole.choices[0].message.parsed,
    streamed: streamed.choices[0].message.parsed,
    content: whole.choices[0].message.content,
    is_person: Person.safeParse(JSON.parse(whole.choices[0].message.content)).success,
    refused,
  }),
);
