/** Calls of the proxy's public API. Keys live in this module's memory, and nowhere else. */
export const keys = { chat: "", admin: "" };

export class ApiError extends Error {
  constructor(status, body, requestId) {
    const error = body?.error ?? {};
    super(error.message || `The server answered with status ${status}.`);
    Object.assign(this, { status, code: error.code, param: error.param, requestId });
  }
}

const unreachable = (error) =>
  Object.assign(new Error("The server cannot be reached. Is it running?"), { cause: error, code: "unreachable" });

export const url = (path) => new URL(path, globalThis.document.baseURI).href;

/** The response, whose body nobody has read. Throws ApiError. */
async function request(path, { key = keys.admin, body, method = body ? "POST" : "GET", signal } = {}) {
  const headers = { accept: "application/json, text/event-stream", ...(key && { authorization: `Bearer ${key}` }) };
  if (body) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(url(path), { method, headers, signal, body: body && JSON.stringify(body), cache: "no-store" });
  } catch (error) {
    throw error.name === "AbortError" ? error : unreachable(error);
  }
  if (response.ok) return response;
  throw new ApiError(response.status, await response.json().catch(() => null), response.headers.get("x-request-id"));
}

export const call = async (path, options) => (await request(path, options)).json();

/** All pages of a list, as many as `most`. */
export async function list(path, most = 10) {
  const found = [];
  for (let after = "", page = 0; page < most; page++) {
    const answer = await call(`${path}${path.includes("?") ? "&" : "?"}limit=1000${after}`);
    found.push(...answer.data);
    if (!answer.has_more) break;
    const last = answer.data.at(-1);
    after = `&after=${encodeURIComponent(last.number ?? last.id ?? last.name)}`;
  }
  return found;
}

let described;
/** The API's document, which is read once. */
export const document = () => {
  described ??= call("openapi.json", { key: "" }).catch((error) => {
    described = undefined;
    throw error;
  });
  return described;
};

/** nameOf(id, tenant) -> how every view names a caller: its tenant and its key's name, where the store has it.
 *  known: the keys, where they are read already. */
export async function callerNames(about, known) {
  const hasStore = about?.endpoints.includes("GET /admin/v1/keys");
  const found = known ?? (hasStore ? await list("admin/v1/keys").catch(() => []) : []);
  const names = new Map(found.map((key) => [key.id, `${key.tenant} / ${key.name}`]));
  return (id, tenant) => names.get(id) ?? ([tenant, id].filter(Boolean).join(" / ") || "–");
}

/** The data of each server-sent event, parsed; fetch() because an EventSource sends no key. */
export async function* events(path, options) {
  const response = await request(path, options);
  const requestId = response.headers.get("x-request-id");
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read().catch((error) => {
        throw error.name === "AbortError" ? error : unreachable(error);
      });
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const data = part
          .split("\n")
          .filter((line) => line.startsWith("data: "))
          .map((line) => line.slice(6))
          .join("\n");
        if (!data || data === "[DONE]") continue;
        const payload = JSON.parse(data);
        if (payload.error && !payload.choices) throw new ApiError(0, payload, requestId);
        yield payload;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Reads the live status until `signal` aborts; comes again after a pause when the stream ends. */
export async function watch({ signal, onEvent, onState }) {
  for (let failures = 0; !signal.aborted; ) {
    try {
      for await (const event of events("metrics/live", { signal })) {
        onEvent(event);
        if (event.type !== "frame") continue;
        failures = 0;
        onState({ name: "live" });
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error.status && error.status < 500 && error.status !== 429) return onState({ name: "refused", error });
    }
    failures++;
    const pauseMs = Math.min(500 * 2 ** failures, 15_000) * (0.75 + Math.random() / 2);
    onState({ name: "waiting", pauseMs });
    await new Promise((resolve) => {
      setTimeout(resolve, pauseMs);
      signal.addEventListener("abort", resolve, { once: true });
    });
  }
}
