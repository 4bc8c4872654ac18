/** What a request asks for besides its messages: the form, what the browser keeps of it, and the body. */
import { html, Field, useMemo } from "./html.js";
import { store, stored } from "./conversations.js";
import { RequestCode } from "./request_code.js";

const SETTINGS = "settings";
// name, label, step, least; the models' capabilities say which of them one takes
const SAMPLING = [
  ["temperature", "Temperature", "0.1", 0],
  ["top_p", "Top p", "0.05", 0],
  ["top_k", "Top k", "1", -1],
  ["min_p", "Min p", "0.05", 0],
  ["max_tokens", "Max tokens", "1", 1],
  ["seed", "Seed", "1", null],
  ["frequency_penalty", "Frequency penalty", "0.1", -2],
  ["presence_penalty", "Presence penalty", "0.1", -2],
  ["repetition_penalty", "Repetition penalty", "0.05", 0.01],
];
const EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
const EXAMPLE_TOOLS = [
  {
    type: "function",
    function: {
      name: "get_weather",
      description: "The weather of a city.",
      parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    },
  },
];
const EXAMPLE_SCHEMA = {
  type: "object",
  properties: { name: { type: "string" }, age: { type: "integer" } },
  required: ["name", "age"],
  additionalProperties: false,
};
const EMPTY = { model: "", system: "", stop: "", tools: "", schema: "", reasoning_effort: "", logprobs: false };

/** As they were left; the key is not among them. */
export const keptOptions = () => ({ ...EMPTY, ...stored(SETTINGS, {}) });
export const keepOptions = (options) => store(SETTINGS, options);

/** A field's JSON: [value, what is wrong with it]. */
const parsed = (text) => {
  if (!text.trim()) return [undefined, null];
  try {
    return [JSON.parse(text), null];
  } catch (error) {
    return [undefined, error.message];
  }
};
/** By field, what is wrong with it. */
export const wrongIn = (options) => ({ tools: parsed(options.tools)[1], schema: parsed(options.schema)[1] });

function toWire(message) {
  if (message.role === "tool") return { role: "tool", tool_call_id: message.callId, content: message.content };
  if (message.role !== "assistant") {
    if (!message.image) return { role: message.role, content: message.content };
    return {
      role: "user",
      content: [
        { type: "text", text: message.content },
        { type: "image_url", image_url: { url: message.image } },
      ],
    };
  }
  const wire = { role: "assistant", content: message.content || null };
  if (message.calls?.length)
    wire.tool_calls = message.calls.map((call) => ({
      id: call.id,
      type: "function",
      function: { name: call.name, arguments: call.arguments },
    }));
  return wire;
}

/** Only what the user set and the model takes: all else is the model's own default. */
export function bodyOf(options, model, messages) {
  const said = messages.filter((each) => each.role !== "assistant" || each.content || each.calls?.length);
  const body = {
    model: options.model,
    messages: [...(options.system ? [{ role: "system", content: options.system }] : []), ...said.map(toWire)],
  };
  for (const [name] of taken(model)) if (options[name]) body[name] = Number(options[name]);
  if (options.reasoning_effort) body.reasoning_effort = options.reasoning_effort;
  if (options.stop) body.stop = options.stop;
  if (options.logprobs) Object.assign(body, { logprobs: true, top_logprobs: 5 });
  const [tools] = parsed(options.tools),
    [schema] = parsed(options.schema);
  if (tools) body.tools = tools;
  if (schema) body.response_format = { type: "json_schema", json_schema: { name: "answer", strict: true, schema } };
  return { ...body, stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } };
}

const taken = (model) => SAMPLING.filter(([name]) => model?.capabilities.includes(name));

export const ModelChoice = ({ models, options, set }) => html`
  <div class="model"><${Field} label="Model"><select name="model" value=${options.model}
      onChange=${(e) => set({ model: e.target.value })}>${models.map((each) => html`<option value=${each.id}>${each.id}</option>`)}</select><//></div>`;

export function Options({ model, options, set, wrong, body }) {
  const area = (name, label, rows, example) => html`
    <${Field} label=${label} error=${wrong[name]}><textarea name=${name} rows=${rows} spellcheck=${false} value=${options[name]}
        onInput=${(e) => set({ [name]: e.target.value })}></textarea><//>
    ${
      example &&
      html`<button type="button" class="quiet small"
        onClick=${() => set({ [name]: options[name] ? "" : JSON.stringify(example, null, 2) })}>${options[name] ? "Clear" : "Insert an example"}</button>`
    }`;
  return html`
    <aside class="options" aria-label="Request">
      ${area("system", "System prompt", 3)}
      <details open><summary>Sampling</summary>
        <div class="pairs">${taken(model).map(
          ([name, label, step, least]) => html`
          <${Field} label=${label}><input name=${name} type="number" step=${step} min=${least} placeholder="default"
              value=${options[name] ?? ""} onInput=${(e) => set({ [name]: e.target.value })} /><//>`,
        )}
          <${Field} label="Reasoning effort"><select name="reasoning_effort" value=${options.reasoning_effort}
              onChange=${(e) => set({ reasoning_effort: e.target.value })}><option value="">default</option>${EFFORTS.map((each) => html`<option>${each}</option>`)}</select><//>
        </div>
        <${Field} label="Stop at"><input name="stop" value=${options.stop} onInput=${(e) => set({ stop: e.target.value })} /><//>
        <label class="check"><input name="logprobs" type="checkbox" checked=${options.logprobs}
            onChange=${(e) => set({ logprobs: e.target.checked })} />Show probabilities of tokens</label>
      </details>
      <details><summary>Tools</summary>${area("tools", "JSON list of tools", 8, EXAMPLE_TOOLS)}</details>
      <details><summary>Schema of the answer</summary>${area("schema", "JSON schema", 8, EXAMPLE_SCHEMA)}</details>
      <details><summary>This request as code</summary><${RequestCode} body=${useMemo(() => body, [JSON.stringify(body)])} /></details>
    </aside>`;
}
