/** One answer while it comes: the fold of its chunks, whose changes are shown once a frame. */
import { events, keys } from "./api.js";

const LEAST_S = 0.05, // of a rate
  MOST_IN_MS = 16; // tokens: more have come in a burst, which has no rate

export class Answer {
  constructor() {
    Object.assign(this, { text: "", reasoning: "", calls: [], tokens: [], finish: null, usage: null, error: null });
    this.startedAt = performance.now();
    this.firstAt = this.lastAt = null;
    this.moments = 0; // milliseconds in which some of it came
    this.isRunning = true;
    this._listeners = new Set();
    this._isDue = false;
    this._abort = new AbortController();
  }

  /** Streams the answer to a body of /v1/chat/completions. Never throws: an error is a part of the answer. */
  async run(body) {
    try {
      for await (const chunk of events("v1/chat/completions", { key: keys.chat, body, signal: this._abort.signal })) this._add(chunk);
    } catch (error) {
      if (error.name !== "AbortError")
        this.error = { message: error.message, status: error.status, code: error.code, param: error.param, requestId: error.requestId };
    }
    this.isRunning = false;
    this._changed();
  }

  /** Closes the connection, which frees the engine. */
  stop() {
    this.finish = "stopped";
    this._abort.abort();
  }

  listen(listener) {
    this._listeners.add(listener);
    return () => this._listeners.delete(listener);
  }

  get timings() {
    const tokens = this.usage?.completion_tokens ?? null;
    const decodeS = (this.lastAt - this.firstAt) / 1000;
    return {
      ttftS: this.firstAt && (this.firstAt - this.startedAt) / 1000,
      tokens,
      contextTokens: this.usage?.total_tokens ?? null,
      perS: tokens > 1 && decodeS >= LEAST_S && tokens <= MOST_IN_MS * this.moments ? (tokens - 1) / decodeS : null,
    };
  }

  /** As it is kept in the history. */
  get message() {
    const { text, reasoning, calls, tokens, finish, error, timings } = this;
    return { role: "assistant", content: text, reasoning, calls, tokens, finish, error, timings };
  }

  _add(chunk) {
    if (chunk.usage) this.usage = chunk.usage;
    const [choice] = chunk.choices ?? [];
    if (choice) {
      const { content, reasoning_content: reasoning, tool_calls: calls } = choice.delta;
      if (content || reasoning || calls) {
        const now = performance.now();
        if (Math.floor(now) !== Math.floor(this.lastAt ?? -1)) this.moments++;
        this.lastAt = now;
        this.firstAt ??= now;
      }
      this.text += content ?? "";
      this.reasoning += reasoning ?? "";
      for (const call of calls ?? []) {
        const known = (this.calls[call.index] ??= { id: "", name: "", arguments: "" });
        known.id ||= call.id ?? "";
        known.name += call.function?.name ?? "";
        known.arguments += call.function?.arguments ?? "";
      }
      // those of the reasoning are not the text's
      if (choice.logprobs?.content && content) this.tokens.push(...choice.logprobs.content);
      this.finish = choice.finish_reason ?? this.finish;
    }
    this._changed();
  }

  _changed() {
    if (this._isDue) return;
    this._isDue = true;
    const show = () => {
      this._isDue = false;
      for (const listener of this._listeners) listener();
    };
    if (document.hidden) setTimeout(show, 100);
    else requestAnimationFrame(show);
  }
}
