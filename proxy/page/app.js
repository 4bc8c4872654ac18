/** The page: its head, the key, and the three views, of which the address names one. */
import { html, render, Dialog, Field, useEffect, useState } from "./html.js";
import { call, keys } from "./api.js";
import { Playground } from "./playground.js";
import { Status } from "./status.js";
import { Keys } from "./keys.js";
import { Requests } from "./requests.js";

const VIEWS = {
  playground: ["Playground", Playground],
  status: ["Status", Status],
  requests: ["Requests", Requests],
  keys: ["Keys", Keys],
};
const THEMES = { "": "Auto", light: "Light", dark: "Dark" };
const viewOf = () => {
  const [name] = location.hash.slice(1).split(/[/?]/);
  return Object.hasOwn(VIEWS, name) ? name : "playground";
};

function App() {
  const [view, setView] = useState(viewOf);
  const [about, setAbout] = useState(null); // what the server is
  const [models, setModels] = useState(null);
  const [error, setError] = useState(null);
  const [isAsking, setAsking] = useState(false);
  const [isAdmin, setAdmin] = useState(false); // of a key that does not chat: whether it administers
  const [session, setSession] = useState(0); // counts changes of the key: views start anew

  const load = async () => {
    try {
      setModels((await call("v1/models", { key: keys.chat })).data);
      setError(null);
    } catch (problem) {
      setModels([]);
      setError(problem);
    }
  };
  const begin = async () => {
    const found = await call("./", { key: "" }).catch(setError);
    setAbout(found);
    if (found?.needs_key) setAsking(true);
    else load();
  };
  useEffect(() => {
    begin();
    const moved = () => setView(viewOf());
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  useEffect(() => {
    document.title = `${VIEWS[view][0]} · triton-openai`;
  }, [view]);

  /** Throws the refusal of a key that the server does not know. */
  const enter = async (key) => {
    try {
      setModels((await call("v1/models", { key })).data);
      keys.chat = keys.admin = key;
      setError(null);
    } catch (problem) {
      if (problem.status !== 403) throw problem;
      keys.admin = key; // it may do something else than chat
      setAdmin(await call("admin/v1/queues").then(Boolean, () => false));
      setError(problem);
    }
    setSession((count) => count + 1);
  };
  const chatWith = async (key) => {
    keys.chat = key;
    await load();
    location.hash = "playground";
  };

  const View = VIEWS[view][1];
  return html`
    <a class="skip" href="#main" onClick=${(event) => {
      event.preventDefault();
      document.querySelector("main").focus();
    }}>Skip to content</a>
    <header>
      <a class="brand" href="#playground"><img src="page/icon.svg" alt="" width="24" height="24" />triton-openai</a>
      <nav aria-label="Views">${Object.entries(VIEWS).map(
        ([name, [label]]) => html`
        <a href=${`#${name}`} aria-current=${name === view ? "page" : undefined}>${label}</a>`,
      )}</nav>
      <div class="tools">
        <a class="quiet wide" href="docs">API</a>
        <${Theme} />
        <button type="button" onClick=${() => setAsking(true)} aria-label=${keys.admin || keys.chat ? "Change the key" : "Enter a key"}>
          <span class=${keys.admin || keys.chat ? "dot on" : "dot"}></span><span class="wide">Key</span></button>
      </div>
    </header>
    <main id="main" tabindex="-1" class=${view}>
      <h1 class="hidden">${VIEWS[view][0]}</h1>
      <${View} key=${`${view} ${view === "playground" ? 0 : session}`} about=${about} models=${models} error=${error} isAdmin=${isAdmin}
          chatWith=${chatWith} askForKey=${() => setAsking(true)} />
    </main>
    ${isAsking && html`<${KeyDialog} enter=${enter} close=${() => setAsking(false)} />`}`;
}

function KeyDialog({ enter, close }) {
  const [key, setKey] = useState("");
  return html`
    <${Dialog} title="Your API key" action="Use this key" save=${() => enter(key.trim())} close=${close}>
      <p>It stays in the memory of this page: reload it, and the key is gone. A key of the scope <b>admin</b> opens Status, Requests and Keys.</p>
      <${Field} label="API key"><input name="key" type="password" autocomplete="off" spellcheck=${false} value=${key}
          onInput=${(e) => setKey(e.target.value)} required /><//>
    <//>`;
}

function Theme() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? "");
  const next = Object.keys(THEMES)[(Object.keys(THEMES).indexOf(theme) + 1) % 3];
  const choose = () => {
    document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem("theme", next);
    } catch {
      /* holds until the page is left */
    }
    setTheme(next);
    dispatchEvent(new Event("themechange"));
  };
  return html`<button type="button" class="quiet wide" onClick=${choose}
      aria-label=${`Theme: ${THEMES[theme]}. Change to ${THEMES[next]}`}><span class="half"></span>${THEMES[theme]}</button>`;
}

render(html`<${App} />`, document.body);
