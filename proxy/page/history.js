/** The list of conversations: search, rename, delete, export and import. */
import { html, useState } from "./html.js";
import { conversations } from "./conversations.js";

export function History() {
  const { all, id, answers } = conversations;
  const [sought, setSought] = useState("");
  const [renamed, setRenamed] = useState(null);
  const [problem, setProblem] = useState("");
  const words = sought.trim().toLowerCase();
  const has = (text) => text.toLowerCase().includes(words);
  const found = words ? all.filter((each) => has(each.title) || each.nodes.some((node) => has(node.content))) : all;
  const rename = (event) => {
    event.preventDefault();
    conversations.rename(renamed, new FormData(event.target).get("title"));
    setRenamed(null);
  };
  const save = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([conversations.exported], { type: "application/json" }));
    link.download = "conversations.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  };
  const load = async ({ target }) => {
    try {
      conversations.import(await target.files[0].text());
      setProblem("");
    } catch (error) {
      setProblem(error.message);
    }
    target.value = "";
  };
  const row = (each) =>
    renamed === each.id
      ? html`<form class="row" onSubmit=${rename}><input name="title" aria-label="New name" autofocus defaultValue=${each.title}
          ref=${(input) => input?.focus()} onKeyDown=${(event) => event.key === "Escape" && setRenamed(null)} /></form>`
      : html`
        <button type="button" aria-current=${each.id === id ? "true" : undefined} onClick=${() => conversations.open(each.id)}>${
          answers.has(each.id) && html`<span class="pulse" role="img" aria-label="is answered:"></span> `
        }${each.title}</button>
        <button type="button" class="remove" aria-label=${`Rename ${each.title}`} onClick=${() => setRenamed(each.id)}>✎</button>
        <button type="button" class="remove" aria-label=${`Delete ${each.title}`} onClick=${() => conversations.remove(each.id)}>×</button>`;
  return html`
    <nav class="history" aria-label="Conversations">
      <button type="button" class="new" onClick=${() => conversations.open(null)}>New conversation</button>
      <input type="search" aria-label="Search conversations" placeholder="Search" value=${sought} onInput=${(e) => setSought(e.target.value)} />
      <ul>${found.map((each) => html`<li key=${each.id}>${row(each)}</li>`)}</ul>
      <div class="row">
        <button type="button" class="quiet small" disabled=${!all.length} onClick=${save}>Export</button>
        <label class="file quiet small">Import<input type="file" name="import" accept="application/json,.json" onChange=${load} /></label>
      </div>
      ${problem && html`<p class="bad" role="alert">${problem}</p>`}
    </nav>`;
}
