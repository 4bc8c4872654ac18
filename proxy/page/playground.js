/** The playground: a conversation with a model, and the request behind it. */
import { html, ErrorBox, Field, useEffect, useMemo, useRef, useState } from "./html.js";
import { Answer } from "./answer.js";
import { AnswerView, GivenView } from "./message.js";
import { RequestCode } from "./request_code.js";

const HISTORY = "conversations",
  MOST_KEPT = 30;
const SAMPLING = [
  ["temperature", "Temperature", "0.1", 0],
  ["top_p", "Top p", "0.05", 0],
  ["max_tokens", "Max tokens", "1", 1],
  ["seed", "Seed", "1", null],
  ["frequency_penalty", "Frequency penalty", "0.1", -2],
  ["presence_penalty", "Presence penalty", "0.1", -2],
];
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
const EMPTY = { model: "", system: "", stop: "", tools: "", schema: "", logprobs: false };
const SUGGESTIONS = ["Hello! Who are you?", "What is this project?", "Tell me a short story."];

const stored = () => {
  try {
    return JSON.parse(localStorage.getItem(HISTORY)) ?? [];
  } catch {
    return [];
  }
};
/** Without images and tokens, which are large. */
const store = (conversations) => {
  const kept = conversations
    .slice(0, MOST_KEPT)
    .map((each) => ({ ...each, messages: each.messages.map(({ image, tokens, ...rest }) => rest) }));
  try {
    localStorage.setItem(HISTORY, JSON.stringify(kept));
  } catch {
    /* full or off: the page's memory has them */
  }
  return conversations;
};

/** A field's JSON: [value, what is wrong with it]. */
const parsed = (text) => {
  if (!text.trim()) return [undefined, null];
  try {
    return [JSON.parse(text), null];
  } catch (error) {
    return [undefined, error.message];
  }
};

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

/** Only what the user set: all else is the model's own default. */
function bodyOf(options, messages) {
  const body = {
    model: options.model,
    messages: [...(options.system ? [{ role: "system", content: options.system }] : []), ...messages.map(toWire)],
  };
  for (const [name] of SAMPLING) if (options[name]) body[name] = Number(options[name]);
  if (options.stop) body.stop = options.stop;
  if (options.logprobs) Object.assign(body, { logprobs: true, top_logprobs: 5 });
  const [tools] = parsed(options.tools),
    [schema] = parsed(options.schema);
  if (tools) body.tools = tools;
  if (schema) body.response_format = { type: "json_schema", json_schema: { name: "answer", strict: true, schema } };
  return { ...body, stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } };
}

// Outside of the component: an answer runs on while its user looks at another view.
const session = { conversations: null, id: null, answer: null, options: EMPTY, redraw: () => {} };

export function Playground({ models, error }) {
  session.conversations ??= stored();
  const [, setCount] = useState(0);
  session.redraw = () => setCount((count) => count + 1);
  const redraw = () => session.redraw();
  const set = (changes) => {
    session.options = { ...session.options, ...changes };
    redraw();
  };

  const chatting = (models ?? []).filter((each) => !each.pooling);
  const { conversations, id, answer } = session;
  const options = { ...session.options, model: session.options.model || chatting[0]?.id || "" };
  const model = chatting.find((each) => each.id === options.model);
  const conversation = conversations.find((each) => each.id === id);
  const messages = conversation?.messages ?? [];
  const [draft, setDraft] = useState("");
  const [image, setImage] = useState(null);
  const wrong = { tools: parsed(options.tools)[1], schema: parsed(options.schema)[1] };
  const asked = [...messages, ...(draft ? [{ role: "user", content: draft, image }] : [])];

  const save = (next) => {
    session.conversations = store([next, ...session.conversations.filter((each) => each.id !== next.id)]);
    redraw();
  };
  const ask = async (given) => {
    const title = given.find((each) => each.role === "user")?.content.slice(0, 60) || "Image";
    const own = { id: session.id ?? crypto.randomUUID?.() ?? String(Date.now()), title, model: options.model, messages: given };
    const running = new Answer();
    Object.assign(session, { id: own.id, answer: running });
    save(own);
    await running.run(bodyOf(options, given));
    if (session.answer === running) session.answer = null;
    save({ ...own, messages: [...given, running.message] });
  };
  const send = (text = draft) => {
    if (!text.trim() || answer || !options.model || wrong.tools || wrong.schema) return;
    setDraft("");
    setImage(null);
    ask([...messages, { role: "user", content: text, image }]);
  };
  const sendResult = (call, content) => {
    const given = [...messages, { role: "tool", callId: call.id, name: call.name, content }];
    const open = given.findLast((each) => each.role === "assistant").calls.some((each) => !given.some((one) => one.callId === each.id));
    if (open) save({ ...conversation, messages: given });
    else ask(given);
  };
  const retry = () => ask(messages.slice(0, -1));
  const open = (next) => {
    session.answer?.stop();
    Object.assign(session, { id: next, answer: null });
    redraw();
  };
  const remove = (gone) => {
    session.conversations = store(session.conversations.filter((each) => each.id !== gone));
    if (gone === session.id) open(null);
    redraw();
  };

  const results = new Map(messages.filter((each) => each.role === "tool").map((each) => [each.callId, each.content]));
  return html`
    <${History} conversations=${conversations} current=${id} open=${open} remove=${remove} />
    <section class="chat" aria-label="Conversation">
      <${Scroller} answer=${answer}>
        ${error && html`<${ErrorBox} error=${error}>${error.status === 403 && html`<p>Enter a key that may chat, or make one under <a
            href="#keys">Keys</a>.</p>`}<//>`}
        ${!messages.length && !answer && html`<${Welcome} model=${options.model} send=${send} />`}
        ${messages.map((message, place) =>
          message.role === "assistant"
            ? html`<${AnswerView} key=${`${id} ${place}`} answer=${message} results=${results} onResult=${answer ? null : sendResult}
                onRetry=${place === messages.length - 1 && !answer ? retry : null} />`
            : html`<${GivenView} key=${`${id} ${place}`} message=${message} />`,
        )}
        ${answer && html`<${AnswerView} key="answer" answer=${answer} />`}
      <//>
      <${Composer} draft=${draft} setDraft=${setDraft} image=${image} setImage=${setImage} send=${send} answer=${answer}
          takesImages=${model?.capabilities.includes("images")} />
    </section>
    <${Options} models=${chatting} options=${options} set=${set} wrong=${wrong}
        body=${bodyOf(options, asked.length ? asked : [{ role: "user", content: SUGGESTIONS[0] }])} />`;
}

function Welcome({ model, send }) {
  return html`
    <div class="welcome">
      <h2>${model ? html`Talk to <b>${model}</b>` : "No model is served yet"}</h2>
      <p>Answers stream from this server. Nothing leaves it, and the conversation stays in your browser.</p>
      ${model && html`<div class="row">${SUGGESTIONS.map((text) => html`<button type="button"
          onClick=${() => send(text)}>${text}</button>`)}</div>`}
    </div>`;
}

/** Follows the end of the text, unless its reader has scrolled up. */
function Scroller({ answer, children }) {
  const element = useRef();
  const isAtEnd = useRef(true);
  const follow = () => {
    if (isAtEnd.current) element.current.scrollTop = element.current.scrollHeight;
  };
  useEffect(() => answer?.listen(follow), [answer]);
  useEffect(follow);
  const onScroll = ({ currentTarget: at }) => {
    isAtEnd.current = at.scrollHeight - at.scrollTop - at.clientHeight < 60;
  };
  return html`<div class="messages" ref=${element} onScroll=${onScroll} tabindex="0" role="log" aria-label="Messages"
      aria-live="off">${children}</div>`;
}

function Composer({ draft, setDraft, image, setImage, send, answer, takesImages }) {
  const onKeyDown = (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  };
  const attach = ({ target }) => {
    const reader = new FileReader();
    reader.onload = () => setImage(reader.result);
    if (target.files[0]) reader.readAsDataURL(target.files[0]);
    target.value = "";
  };
  return html`
    <form class="composer" onSubmit=${(event) => {
      event.preventDefault();
      send();
    }}>
      ${image && html`<div class="row"><img src=${image} alt="The image that goes with the message" /><button type="button"
          class="quiet" onClick=${() => setImage(null)}>Remove image</button></div>`}
      <textarea name="message" rows="2" aria-label="Message" placeholder="Message (Enter sends, Shift+Enter breaks the line)"
          value=${draft} onInput=${(e) => setDraft(e.target.value)} onKeyDown=${onKeyDown}></textarea>
      <div class="row end">
        ${takesImages && html`<label class="file quiet">Add image<input type="file" accept="image/*" onChange=${attach} /></label>`}
        ${answer ? html`<button type="button" class="stop" onClick=${() => answer.stop()}>Stop</button>` : html`<button class="primary"
            disabled=${!draft.trim()}>Send</button>`}
      </div>
    </form>`;
}

function Options({ models, options, set, wrong, body }) {
  const area = (name, label, rows, example) => html`
    <${Field} label=${label} error=${wrong[name]}><textarea name=${name} rows=${rows} spellcheck=${false} value=${options[name]}
        onInput=${(e) => set({ [name]: e.target.value })}></textarea><//>
    ${example && html`<button type="button" class="quiet small"
        onClick=${() => set({ [name]: options[name] ? "" : JSON.stringify(example, null, 2) })}>${options[name] ? "Clear" : "Insert an example"}</button>`}`;
  return html`
    <aside class="options" aria-label="Request">
      <${Field} label="Model">
        <select name="model" value=${options.model} onChange=${(e) => set({ model: e.target.value })}>${models.map((each) => html`<option value=${each.id}>${each.id}</option>`)}</select>
      <//>
      ${area("system", "System prompt", 3)}
      <details open><summary>Sampling</summary>
        <div class="pairs">${SAMPLING.map(
          ([name, label, step, least]) => html`
          <${Field} label=${label}><input name=${name} type="number" step=${step} min=${least} placeholder="default"
              value=${options[name] ?? ""} onInput=${(e) => set({ [name]: e.target.value })} /><//>`,
        )}</div>
        <${Field} label="Stop at"><input name="stop" value=${options.stop} onInput=${(e) => set({ stop: e.target.value })} /><//>
        <label class="check"><input name="logprobs" type="checkbox" checked=${options.logprobs}
            onChange=${(e) => set({ logprobs: e.target.checked })} />Show probabilities of tokens</label>
      </details>
      <details><summary>Tools</summary>${area("tools", "JSON list of tools", 8, EXAMPLE_TOOLS)}</details>
      <details><summary>Schema of the answer</summary>${area("schema", "JSON schema", 8, EXAMPLE_SCHEMA)}</details>
      <details><summary>This request as code</summary><${RequestCode} body=${useMemo(() => body, [JSON.stringify(body)])} /></details>
    </aside>`;
}

function History({ conversations, current, open, remove }) {
  return html`
    <nav class="history" aria-label="Conversations">
      <button type="button" class="new" onClick=${() => open(null)}>New conversation</button>
      <ul>${conversations.map(
        (each) => html`
        <li key=${each.id}>
          <button type="button" aria-current=${each.id === current ? "true" : undefined}
              onClick=${() => open(each.id)}>${each.title}</button>
          <button type="button" class="remove" aria-label=${`Delete ${each.title}`} onClick=${() => remove(each.id)}>×</button>
        </li>`,
      )}</ul>
    </nav>`;
}
