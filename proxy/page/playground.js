/** The playground: a conversation with a model, and the request behind it. */
import { html, ErrorBox, Notice, whole, useEffect, useRef, useState } from "./html.js";
import { conversations, pathOf, versionsOf } from "./conversations.js";
import { History } from "./history.js";
import { AnswerView, GivenView } from "./message.js";
import { bodyOf, keepOptions, keptOptions, ModelChoice, Options, wrongIn } from "./options.js";

const SUGGESTIONS = ["Hello! Who are you?", "What is this project?", "Tell me a short story."];
const MOST_TEXT = 200_000; // bytes of an attached file

let kept; // outside of the component, which its user leaves for other views

export function Playground({ about, models, error, isAdmin, askForKey }) {
  kept ??= keptOptions();
  const [, setCount] = useState(0);
  const redraw = () => setCount((count) => count + 1);
  conversations.changed = redraw;
  const set = (changes) => {
    kept = { ...kept, ...changes };
    keepOptions(kept);
    redraw();
  };

  const chatting = (models ?? []).filter((each) => !each.pooling);
  const model = chatting.find((each) => each.id === kept.model) ?? chatting[0];
  const options = { ...kept, model: model?.id ?? "" };
  const { id, current } = conversations;
  const messages = pathOf(current);
  const running = conversations.answers.get(id);
  const answer = running?.parent === current?.leaf ? running : null; // else it runs in another branch
  const [draft, setDraft] = useState("");
  const [image, setImage] = useState(null);
  const wrong = wrongIn(options);
  const asked = [...messages, ...(draft ? [{ role: "user", content: draft, image }] : [])];
  const isReady = Boolean(model) && !running && !wrong.tools && !wrong.schema;

  const ask = () => conversations.ask((path) => bodyOf(options, model, path));
  const send = (content = draft) => {
    if (!content.trim() || !isReady) return;
    setDraft("");
    setImage(null);
    conversations.add({ role: "user", content, image }, { model: options.model });
    ask();
  };
  const edit = (node, content) => {
    conversations.add({ role: "user", content, image: node.image }, { parent: node.parent });
    ask();
  };
  const again = (node) => {
    conversations.rewind(node);
    ask();
  };
  const sendResult = (call, content) => {
    conversations.add({ role: "tool", callId: call.id, name: call.name, content });
    const path = pathOf(conversations.current);
    const { calls } = path.findLast((each) => each.role === "assistant");
    if (calls.every((each) => path.some((one) => one.callId === each.id))) ask();
  };

  const results = new Map(messages.filter((each) => each.role === "tool").map((each) => [each.callId, each.content]));
  const last = messages.at(-1);
  const calls = messages.findLast((each) => each.role === "assistant")?.calls ?? [];
  const isUnanswered = last && last.role !== "assistant" && (last.role === "user" || calls.every((each) => results.has(each.id)));
  const view = (node) => {
    const versions = html`<${Versions} node=${node} all=${versionsOf(current, node)} />`;
    return node.role === "assistant"
      ? html`<${AnswerView} key=${node.id} answer=${node} results=${results} versions=${versions} onResult=${isReady && sendResult}
          onAgain=${isReady && (() => again(node))} />`
      : html`<${GivenView} key=${node.id} message=${node} versions=${versions} onEdit=${isReady && node.role === "user" && ((text) => edit(node, text))} />`;
  };
  const used = (answer ?? messages.findLast((each) => each.timings?.contextTokens))?.timings.contextTokens;
  return html`
    <${History} />
    <${ModelChoice} models=${chatting} options=${options} set=${set} />
    <section class="chat" aria-label="Conversation">
      <${Scroller} answer=${answer} id=${id}>
        ${error && (error.status === 403 ? html`<${NoChat} error=${error} isAdmin=${isAdmin} askForKey=${askForKey} />` : html`<${ErrorBox} error=${error} />`)}
        ${!models && !error && about?.needs_key && html`<${Notice} title="This server needs a key" action=${["Enter a key", askForKey]}>Ask its operator for one.<//>`}
        ${!messages.length && !error && models && html`<${Welcome} model=${options.model} send=${send} />`}
        ${messages.map(view)}
        ${answer && html`<${AnswerView} key=${answer.id} answer=${answer} />`}
        ${isUnanswered && isReady && html`<div><button type="button" onClick=${ask}>Answer again</button></div>`}
      <//>
      <${Composer} draft=${draft} setDraft=${setDraft} image=${image} setImage=${setImage} send=${send} answer=${running} wrong=${wrong}
          isReady=${isReady} takesImages=${model?.capabilities.includes("images")}
          context=${used && model?.context_length && `${whole(used)} of ${whole(model.context_length)} tokens`} />
    </section>
    <${Options} model=${model} options=${options} set=${set} wrong=${wrong}
        body=${bodyOf(options, model, asked.length ? asked : [{ role: "user", content: SUGGESTIONS[0] }])} />`;
}

const NoChat = ({ error, isAdmin, askForKey }) =>
  isAdmin
    ? html`<${Notice} title="This key administers" action=${["Make a key that chats", () => (location.hash = "keys/new")]}>It opens Status, Requests and Keys, and
        does not chat. The page keeps it, and uses the new key here.<//>`
    : html`<${Notice} title="This key does not chat" action=${["Enter another key", askForKey]}>${error.message}<//>`;

/** Which of the versions of a message is shown, and the way to the others. */
function Versions({ node, all }) {
  if (all.length < 2) return null;
  const place = all.indexOf(node);
  const button = (label, sign, other) => html`<button type="button" class="quiet small" aria-label=${label} disabled=${!other}
      onClick=${() => conversations.show(other)}>${sign}</button>`;
  return html`<span class="versions">${button("Version before", "‹", all[place - 1])}${place + 1} of ${all.length}${button("Version after", "›", all[place + 1])}</span>`;
}

function Welcome({ model, send }) {
  return html`
    <div class="welcome">
      <h2>${model ? html`Talk to <b>${model}</b>` : "No model is served yet"}</h2>
      <p>Answers stream from this server. Nothing leaves it, and the conversation stays in your browser.</p>
      ${
        model &&
        html`<div class="row">${SUGGESTIONS.map(
          (text) => html`<button type="button"
          onClick=${() => send(text)}>${text}</button>`,
        )}</div>`
      }
    </div>`;
}

/** Follows the end of the text, unless its reader has scrolled up. */
function Scroller({ answer, id, children }) {
  const element = useRef();
  const isAtEnd = useRef(true);
  const follow = () => {
    if (isAtEnd.current) element.current.scrollTop = element.current.scrollHeight;
  };
  useEffect(() => answer?.listen(follow), [answer]);
  useEffect(() => {
    isAtEnd.current = true;
  }, [id]);
  useEffect(follow);
  const onScroll = ({ currentTarget: at }) => {
    isAtEnd.current = at.scrollHeight - at.scrollTop - at.clientHeight < 60;
  };
  return html`<div class="messages" ref=${element} onScroll=${onScroll} tabindex="0" role="log" aria-label="Messages"
      aria-live="off">${children}</div>`;
}

function Composer({ draft, setDraft, image, setImage, send, answer, wrong, isReady, takesImages, context }) {
  const [problem, setProblem] = useState("");
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
  const attachText = async ({ target }) => {
    const [file] = target.files;
    const text = file && file.size <= MOST_TEXT ? await file.text() : null;
    const isText = text !== null && !/[\0\ufffd]/.test(text);
    setProblem(isText ? "" : `${file.name} is no text of at most ${MOST_TEXT / 1000} kB.`);
    const fence = "`".repeat(Math.max(2, ...(text?.match(/`+/g) ?? []).map((each) => each.length)) + 1);
    if (isText) setDraft(`${draft && `${draft}\n\n`}${file.name}:\n${fence}\n${text.replace(/\n$/, "")}\n${fence}\n`);
    target.value = "";
  };
  const notes = [
    problem,
    wrong.tools && `The tools are not JSON: ${wrong.tools}`,
    wrong.schema && `The schema is not JSON: ${wrong.schema}`,
  ].filter(Boolean);
  return html`
    <form class="composer" onSubmit=${(event) => {
      event.preventDefault();
      send();
    }}>
      ${
        image &&
        html`<div class="row"><img src=${image} alt="The image that goes with the message" /><button type="button"
          class="quiet" onClick=${() => setImage(null)}>Remove image</button></div>`
      }
      <textarea name="message" rows="2" aria-label="Message" placeholder="Message (Enter sends, Shift+Enter breaks the line)"
          value=${draft} onInput=${(e) => setDraft(e.target.value)} onKeyDown=${onKeyDown}></textarea>
      ${notes.map((text) => html`<p class="bad" role="alert">${text}</p>`)}
      <div class="row end">
        ${context && html`<span class="context">${context}</span>`}
        <label class="file quiet">Add text<input type="file" name="text" accept="text/*,.md,.json,.csv,.log,.py,.js,.ts,.yaml,.toml" onChange=${attachText} /></label>
        ${takesImages && html`<label class="file quiet">Add image<input type="file" name="image" accept="image/*" onChange=${attach} /></label>`}
        ${
          answer
            ? html`<button type="button" class="stop" onClick=${() => answer.stop()}>Stop</button>`
            : html`<button class="primary"
            disabled=${!draft.trim() || !isReady}>Send</button>`
        }
      </div>
    </form>`;
}
