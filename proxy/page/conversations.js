/** Conversations: trees of messages, which the browser keeps, and the answers that run in them. */
import { Answer } from "./answer.js";

const HISTORY = "conversations",
  CURRENT = "conversation",
  MOST_KEPT = 30,
  FORM = "triton-openai conversations";
const TEXTS = ["name", "callId", "reasoning", "finish"];

/** What storage has under the name; `fallback` where it has nothing that can be read, or is off. */
export const stored = (name, fallback, storage = "localStorage") => {
  try {
    return JSON.parse(globalThis[storage].getItem(name)) ?? fallback;
  } catch {
    return fallback;
  }
};
export const store = (name, value, storage = "localStorage") => {
  try {
    globalThis[storage].setItem(name, JSON.stringify(value));
  } catch {
    /* full or off: the page's memory has it */
  }
};

export const newId = () => crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;

/** The messages from the first one to the one that is shown last. */
export function pathOf(conversation) {
  const nodes = new Map(conversation?.nodes.map((each) => [each.id, each]));
  const found = [];
  for (let node = nodes.get(conversation?.leaf); node; node = nodes.get(node.parent)) found.unshift(node);
  return found;
}

export const versionsOf = (conversation, node) => conversation.nodes.filter((each) => each.parent === node.parent);

/** Outside of the components: answers run on while their user looks at something else.
 *  A conversation: {id, title, model, nodes, leaf}; a node is a message with its id and its parent's, which stands before it. */
class Conversations {
  constructor() {
    this.all = [].concat(stored(HISTORY, [])).filter((each) => each?.nodes);
    this.id = stored(CURRENT, null, "sessionStorage");
    this.answers = new Map(); // that run, by conversation
    this.changed = () => {};
  }

  get current() {
    return this.find(this.id);
  }

  find(id) {
    return this.all.find((each) => each.id === id);
  }

  open(id) {
    this.id = id;
    store(CURRENT, id, "sessionStorage");
    this.changed();
  }

  /** The message, after the last one that is shown or another parent. Makes a conversation where none is open. */
  add(message, { parent, model } = {}) {
    const own = this.current ?? { id: newId(), title: message.content.trim().slice(0, 60) || "Image", model, nodes: [], leaf: null };
    const node = { id: newId(), parent: parent === undefined ? own.leaf : parent, ...message };
    this._save({ ...own, nodes: [...own.nodes, node], leaf: node.id });
    if (own.id !== this.id) this.open(own.id);
  }

  /** Asks for an answer to the message that is shown last. makeBody: of its messages. */
  async ask(makeBody) {
    const { id, leaf: parent } = this.current;
    const answer = Object.assign(new Answer(), { id: newId(), parent });
    this.answers.set(id, answer);
    this.changed();
    await answer.run(makeBody(pathOf(this.current)));
    this.answers.delete(id);
    const own = this.find(id); // as it is by now, unless it was deleted
    const { message } = answer;
    const isEmpty = !message.content && !message.reasoning && !message.calls.length && !message.error;
    if (!own || (isEmpty && message.finish === "stopped")) return this.changed();
    const node = { id: answer.id, parent, ...message };
    return this._save({ ...own, nodes: [...own.nodes, node], leaf: own.leaf === parent ? node.id : own.leaf });
  }

  /** Shows the newest end of the branch with this node. */
  show(node) {
    const own = this.current;
    let leaf = node.id;
    for (let next = node; next; next = own.nodes.findLast((each) => each.parent === leaf)) leaf = next.id;
    this._save({ ...own, leaf }, true);
  }

  /** Goes back to before the message, which stays as another version unless there is nothing of it. */
  rewind(node) {
    const own = this.current;
    const isKept = node.content || node.calls?.length || own.nodes.some((each) => each.parent === node.id);
    this._save({ ...own, nodes: isKept ? own.nodes : own.nodes.filter((each) => each !== node), leaf: node.parent }, true);
  }

  rename(id, title) {
    if (title.trim()) this._save({ ...this.find(id), title: title.trim().slice(0, 200) }, true);
  }

  remove(id) {
    this.answers.get(id)?.stop();
    this.all = this.all.filter((each) => each.id !== id);
    this._store();
    if (id === this.id) this.open(null);
    else this.changed();
  }

  get exported() {
    return JSON.stringify({ form: FORM, conversations: this._kept }, null, 1);
  }

  /** Adds those of an exported file. Throws an Error that says what is wrong with it. */
  import(text) {
    const { form, conversations } = JSON.parse(text);
    if (form !== FORM || !Array.isArray(conversations)) throw new Error("It has no exported conversations.");
    const read = conversations.map(checked);
    this.all = [...read, ...this.all.filter((each) => !read.some((one) => one.id === each.id))];
    this._store();
    this.changed();
  }

  _save(next, isInPlace = false) {
    const known = this.all.findIndex((each) => each.id === next.id);
    if (isInPlace) this.all = this.all.with(known, next);
    else this.all = [next, ...this.all.filter((each) => each.id !== next.id)];
    this._store();
    this.changed();
  }

  /** Without images and tokens, which are large. */
  get _kept() {
    return this.all.slice(0, MOST_KEPT).map((each) => ({ ...each, nodes: each.nodes.map(({ image, tokens, ...rest }) => rest) }));
  }

  _store() {
    store(HISTORY, this._kept);
  }
}

/** A conversation of a file, with known fields only. */
function checked({ id, title, model, nodes, leaf }) {
  const known = new Set();
  const isText = (...values) => values.every((each) => typeof each === "string");
  const own = nodes.map((node) => {
    const { role, content, calls = [], timings, error } = node;
    const isWhole = ["user", "assistant", "tool"].includes(role) && isText(node.id, content) && !known.has(node.id);
    if (!isWhole || !(node.parent === null || known.has(node.parent))) throw new Error(`A message of ${title} cannot be read.`);
    if (!calls.every((each) => isText(each.id, each.name, each.arguments))) throw new Error(`A tool call of ${title} cannot be read.`);
    known.add(node.id);
    const texts = Object.fromEntries(TEXTS.filter((name) => isText(node[name])).map((name) => [name, node[name]]));
    const figures = Object.entries(timings ?? {}).filter(([, value]) => Number.isFinite(value));
    return {
      ...{
        id: node.id,
        parent: node.parent,
        role,
        content,
        ...texts,
        calls: calls.map(({ id, name, arguments: given }) => ({ id, name, arguments: given })),
      },
      ...(timings && { timings: Object.fromEntries(figures) }),
      ...(isText(error?.message) && { error: { message: error.message } }),
    };
  });
  if (!isText(id, title, model) || !(leaf === null || known.has(leaf))) throw new Error("A conversation cannot be read.");
  return { id, title, model, nodes: own, leaf };
}

export const conversations = new Conversations();
