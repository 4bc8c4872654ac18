/** A request as code that sends it: curl, Python and JavaScript with OpenAI's SDKs. */
import { html, useState, CopyButton } from "./html.js";
import { url } from "./api.js";

const indented = (body) => JSON.stringify(body, null, 2);
const base = () => url("v1");

/** JSON as Python writes it: only the three names differ, outside of strings. */
const python = (value, depth = 1) => {
  const pad = "    ".repeat(depth),
    end = "    ".repeat(depth - 1);
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const isList = Array.isArray(value);
  const parts = isList
    ? value.map((each) => python(each, depth + 1))
    : Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${python(each, depth + 1)}`);
  const [open, close] = isList ? "[]" : "{}";
  const line = `${open}${parts.join(", ")}${close}`;
  return line.length < 60 && !line.includes("\n") ? line : `${open}\n${pad}${parts.join(`,\n${pad}`)},\n${end}${close}`;
};

export const FORMS = {
  curl: (body) => `curl -N ${base()}/chat/completions \\
  -H "Authorization: Bearer $OPENAI_API_KEY" \\
  -H "Content-Type: application/json" \\
  -d '${indented(body).replaceAll("'", "'\\''")}'`,
  Python: (body) => `from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(base())})
stream = client.chat.completions.create(
${Object.entries(body)
  .map(([name, value]) => `    ${name}=${python(value, 2)},`)
  .join("\n")}
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)`,
  JavaScript: (body) => `import OpenAI from "openai";

const client = new OpenAI({ baseURL: ${JSON.stringify(base())} });
const stream = await client.chat.completions.create(${indented(body)});
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta.content ?? "");
}`,
};

export function RequestCode({ body }) {
  const [form, setForm] = useState("curl");
  const shown = JSON.parse(JSON.stringify(body), (name, value) =>
    name === "url" && value.length > 200 ? `${value.slice(0, 40)}…` : value,
  );
  const text = FORMS[form](shown);
  return html`
    <div class="code">
      <div class="row">
        <div class="tabs" role="group" aria-label="Language">${Object.keys(FORMS).map(
          (name) => html`
          <button type="button" aria-pressed=${name === form} onClick=${() => setForm(name)}>${name}</button>`,
        )}</div>
        <${CopyButton} text=${text} />
      </div>
      <pre tabindex="0" aria-label=${`The request in ${form}`}>${text}</pre>
    </div>`;
}
