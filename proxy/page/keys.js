/** Tenants, keys, usage and audit: everything through the public /admin/v1. */
import {
  html,
  CopyButton,
  Dialog,
  ErrorBox,
  Field,
  Fragment,
  Notice,
  Table,
  day,
  moment,
  number,
  whole,
  useEffect,
  useMemo,
  useState,
} from "./html.js";
import { call, keys as session, list } from "./api.js";
import { Chart } from "./chart.js";

const TABS = { keys: "Keys", tenants: "Tenants", usage: "Usage", audit: "Audit" };
const words = (name) => name.replaceAll("_", " ");
const shown = (limits) =>
  Object.entries(limits)
    .filter(([, value]) => value != null)
    .map(([name, value]) => `${words(name)} ${number(value)}`)
    .join(", ") || "–";
const stateOf = (key) => (key.revoked_at ? "revoked" : key.expires_at && new Date(key.expires_at) < Date.now() ? "expired" : "active");

export function Keys({ about, chatWith, askForKey }) {
  const [tab, setTab] = useState("keys");
  const [tenants, setTenants] = useState(null);
  const [keys, setKeys] = useState([]);
  const [schemas, setSchemas] = useState(null); // of the API's document, from which the inputs are made
  const [error, setError] = useState(null);
  const load = async () => {
    try {
      const [all, own] = await Promise.all([list("admin/v1/tenants"), list("admin/v1/keys")]);
      if (!schemas) setSchemas((await call("openapi.json", { key: "" })).components.schemas);
      setTenants(all);
      setKeys(own);
      setError(null);
    } catch (problem) {
      setError(problem);
    }
  };
  const hasStore = about?.endpoints.includes("GET /admin/v1/tenants");
  const hasKey = Boolean(session.admin) || about?.needs_key === false;
  useEffect(() => {
    if (hasStore && hasKey) load();
  }, [hasStore, hasKey]);

  if (about && !hasStore) {
    return html`<${Notice} title="This server has no store of keys">Start it with the setting <b>KEY_PEPPER</b>, a long random value: the first start makes an admin key, with which this view creates tenants and keys. <a href="docs">The API</a> has the routes.<//>`;
  }
  if (!hasKey)
    return html`<${Notice} title="Keys are for operators" action=${["Enter a key", askForKey]}>Enter a key of the scope <b>admin</b>.<//>`;
  if (error && !tenants) return html`<${ErrorBox} error=${error}><button type="button" onClick=${askForKey}>Enter another key</button><//>`;
  if (!tenants || !schemas) return html`<p class="empty" role="status">Reading…</p>`;
  const parts = {
    keys: html`<${KeyList} schemas=${schemas} keys=${keys} tenants=${tenants} changed=${load} chatWith=${chatWith} />`,
    tenants: html`<${TenantList} schemas=${schemas} tenants=${tenants} keys=${keys} changed=${load} />`,
    usage: html`<${Usage} />`,
    audit: html`<${Audit} />`,
  };
  return html`
    <div class="tabs" role="group" aria-label="Parts">${Object.entries(TABS).map(
      ([name, label]) => html`
      <button type="button" aria-pressed=${name === tab} onClick=${() => setTab(name)}>${label}</button>`,
    )}</div>
    ${parts[tab]}`;
}

/** A part of a view with its heading, its button and its dialog. */
function Section({ title, action, onAction, children }) {
  return html`<section class="panel wide"><div class="row between"><h2>${title}</h2>${action && html`<button type="button"
      class="primary" onClick=${onAction}>${action}</button>`}</div>${children}</section>`;
}

/** The fields of a body that are switches or numbers: [name, schema]. */
const plain = ({ properties }) =>
  Object.entries(properties)
    .map(([name, field]) => [name, { ...field, ...field.anyOf?.[0] }])
    .filter(([, { type }]) => ["boolean", "integer", "number"].includes(type));

const entered = (form, body) =>
  Object.fromEntries(
    plain(body).map(([name, { type }]) => [name, type === "boolean" ? form.has(name) : form.get(name) ? Number(form.get(name)) : null]),
  );

const Inputs = ({ body, values = {} }) =>
  plain(body).map(([name, { type, description, minimum, maximum }]) =>
    type === "boolean"
      ? html`<label class="check" title=${description}><input type="checkbox" name=${name} defaultChecked=${values[name]} />${words(name)}</label>`
      : html`<${Field} label=${words(name)} hint=${description}><input name=${name} type="number" min=${minimum} max=${maximum}
          step="any" placeholder="none" defaultValue=${values[name] ?? ""} /><//>`,
  );

const LimitInputs = ({ schemas, limits }) => html`
  <details><summary>Limits</summary><div class="pairs"><${Inputs} body=${schemas.LimitsBody} values=${limits} /></div><small>A
    monthly budget limits only models that have a price in models.yaml.</small></details>`;

function KeyList({ schemas, keys, tenants, changed, chatWith }) {
  const [dialog, setDialog] = useState(() => (location.hash === "#keys/new" ? { name: "create" } : null)); // {name, key}
  const [issued, setIssued] = useState(null);
  const close = () => {
    if (location.hash === "#keys/new") history.replaceState(null, "", "#keys");
    setDialog(null);
  };
  const path = (key, action) => `admin/v1/keys/${encodeURIComponent(key.id)}/${action}`;
  const create = async (form) => {
    const tenant = form.get("tenant").trim();
    if (!tenants.some((each) => each.name === tenant)) await call("admin/v1/tenants", { body: { name: tenant } });
    const expires = form.get("days") && new Date(Date.now() + form.get("days") * 86_400_000).toISOString();
    const models = form
      .get("models")
      .split(",")
      .map((each) => each.trim())
      .filter(Boolean);
    setIssued(
      await call("admin/v1/keys", {
        body: {
          ...{ tenant, name: form.get("name"), scopes: form.getAll("scope"), models, expires_at: expires || null },
          ...entered(form, schemas.KeyBody),
          limits: entered(form, schemas.LimitsBody),
        },
      }),
    );
    changed();
  };
  const rotate = async (form) => {
    setIssued(await call(path(dialog.key, "rotate"), { body: { overlap_s: Math.round(form.get("hours") * 3600) } }));
    changed();
  };
  const revoke = async () => {
    await call(path(dialog.key, "revoke"), { method: "POST" });
    changed();
  };
  return html`<${Fragment}>
    ${
      issued &&
      html`
      <section class="issued" role="status">
        <h2>The key ${issued.name}</h2>
        <p>It is shown only this once. Copy it now.</p>
        <pre tabindex="0" aria-label="The new key">${issued.key}</pre>
        <div class="row"><${CopyButton} text=${issued.key} /><button type="button"
            onClick=${() => chatWith(issued.key)}>Use it in the playground</button><button type="button" class="quiet"
                onClick=${() => setIssued(null)}>Done</button></div>
      </section>`
    }
    <${Section} title="Keys" action="Create a key" onAction=${() => setDialog({ name: "create" })}>
      <${Table} label="Keys" rows=${keys} id=${(key) => key.id} columns=${[
        ["name", (key) => key.name],
        ["id", (key) => key.id],
        ["tenant", (key) => key.tenant],
        ["scopes", (key) => html`<span class="wrap">${key.scopes.join(", ")}</span>`],
        ["models", (key) => key.models.join(", ") || "all"],
        ["limits", (key) => html`<span class="wrap">${shown(key.limits)}</span>`],
        ["expires", (key) => moment(key.expires_at)],
        ["state", (key) => html`<span class=${`badge ${stateOf(key) === "active" ? "good" : "bad"}`}>${stateOf(key)}</span>`],
        [
          html`<span class="hidden">actions</span>`,
          (key) =>
            stateOf(key) !== "revoked" &&
            html`<span class="row end">
          <button type="button" class="quiet small" aria-label=${`Rotate ${key.name}`}
              onClick=${() => setDialog({ name: "rotate", key })}>Rotate</button>
          <button type="button" class="quiet small" aria-label=${`Revoke ${key.name}`}
              onClick=${() => setDialog({ name: "revoke", key })}>Revoke</button></span>`,
        ],
      ]} />
    <//>
    ${
      dialog?.name === "create" &&
      html`<${Dialog} title="Create a key" action="Create" save=${create} close=${close}>
      <${Field} label="Name"><input name="name" required maxlength="128" /><//>
      <${Field} label="Tenant" hint="A new name makes a new tenant."><input name="tenant" required list="tenants"
          autocomplete="off" /><datalist id="tenants">${tenants.map((each) => html`<option value=${each.name} />`)}</datalist><//>
      <fieldset><legend>Scopes</legend>${schemas.Scope.enum.map((scope) => html`<label class="check"><input type="checkbox" name="scope"
          value=${scope} defaultChecked=${schemas.KeyBody.properties.scopes.default.includes(scope)} />${scope}</label>`)}</fieldset>
      <${Field} label="Models" hint="Patterns with * and ?, separated by commas; empty: all."><input name="models" /><//>
      <${Field} label="Expires after days"><input name="days" type="number" min="1" placeholder="never" /><//>
      <${Inputs} body=${schemas.KeyBody} />
      <${LimitInputs} schemas=${schemas} />
    <//>`
    }
    ${
      dialog?.name === "rotate" &&
      html`<${Dialog} title=${`Rotate ${dialog.key.name}`} action="Rotate" save=${rotate} close=${close}>
      <p>The new secret works at once, the old one until the overlap is over.</p>
      <${Field} label="Overlap in hours"><input name="hours" type="number" min="0" step="any" defaultValue="24" required /><//>
    <//>`
    }
    ${
      dialog?.name === "revoke" &&
      html`<${Dialog} title=${`Revoke ${dialog.key.name}`} action="Revoke for good" save=${revoke} close=${close}>
      <p>The key ${dialog.key.id} of ${dialog.key.tenant} ends within a second, in every proxy. This cannot be undone.</p>
    <//>`
    }
  <//>`;
}

function TenantList({ schemas, tenants, keys, changed }) {
  const [edited, setEdited] = useState(null);
  const fields = edited?.name ? schemas.TenantChanges : schemas.TenantBody;
  const save = async (form) => {
    const body = { ...entered(form, fields), limits: entered(form, schemas.LimitsBody) };
    if (edited.name) await call(`admin/v1/tenants/${encodeURIComponent(edited.name)}`, { method: "PATCH", body });
    else await call("admin/v1/tenants", { body: { name: form.get("name"), ...body } });
    changed();
  };
  return html`<${Fragment}>
    <${Section} title="Tenants" action="Create a tenant" onAction=${() => setEdited({ limits: {} })}>
      <${Table} label="Tenants" rows=${tenants} id=${(one) => one.name} columns=${[
        ["name", (one) => one.name],
        ["keys", (one) => keys.filter((key) => key.tenant === one.name && stateOf(key) === "active").length, "number"],
        ...plain(schemas.TenantBody).map(([name]) => [words(name), (one) => `${one[name] ?? "–"}`, "number"]),
        ["limits", (one) => html`<span class="wrap">${shown(one.limits)}</span>`],
        ["created", (one) => moment(one.created_at)],
        ["state", (one) => html`<span class=${`badge ${one.is_active ? "good" : "bad"}`}>${one.is_active ? "active" : "suspended"}</span>`],
        [
          html`<span class="hidden">actions</span>`,
          (one) =>
            html`<button type="button" class="quiet small" aria-label=${`Change ${one.name}`}
                onClick=${() => setEdited(one)}>Change</button>`,
        ],
      ]} />
    <//>
    ${
      edited &&
      html`<${Dialog} title=${edited.name ? `Change ${edited.name}` : "Create a tenant"} action="Save" save=${save}
          close=${() => setEdited(null)}>
      ${!edited.name && html`<${Field} label="Name" hint="Letters, digits and ._:@-"><input name="name" required /><//>`}
      <${Inputs} body=${fields} values=${edited} />
      <${LimitInputs} schemas=${schemas} limits=${edited.limits} />
    <//>`
    }
  <//>`;
}

function Usage() {
  const [from, setFrom] = useState(() => day(new Date(Date.now() - 29 * 86_400_000)));
  const [by, setBy] = useState("tenant,model");
  const [[days, rows], setRows] = useState([[], []]);
  const [error, setError] = useState(null);
  useEffect(() => {
    const read = (groups) => call(`admin/v1/usage?from=${from}&by=${groups}`).then((answer) => answer.data);
    Promise.all([read("day"), read(`day,${by}`)]).then((found) => {
      setRows(found);
      setError(null);
    }, setError);
  }, [from, by]);
  const series = useMemo(() => {
    const found = new Map(days.map((each) => [each.day, each.prompt_tokens + each.output_tokens]));
    const at = [];
    for (let time = Date.parse(from); time <= Date.now(); time += 86_400_000) at.push(time / 1000);
    return [at, at.map((time) => found.get(day(new Date(time * 1000))) ?? 0)];
  }, [days, from]);
  const sum = (name) => days.reduce((total, each) => total + each[name], 0);
  return html`
    <${Section} title="Usage by day">
      <div class="row filters">
        <${Field} label="From"><input type="date" value=${from} onChange=${(e) => e.target.value && setFrom(e.target.value)} /><//>
        <${Field} label="By"><select value=${by} onChange=${(e) => setBy(e.target.value)}>${["tenant,model", "tenant", "model", "tenant,key,model"].map((each) => html`<option value=${each}>${each.replaceAll(",", ", ")}</option>`)}</select><//>
        <dl class="sums">${[
          ["requests", "requests"],
          ["errors", "errors"],
          ["prompt", "prompt_tokens"],
          ["output", "output_tokens"],
          ["cost", "cost"],
        ].map(
          ([label, name]) => html`<div><dt>${label}</dt><dd>${name === "cost" ? sum(name).toFixed(2) : number(sum(name))}</dd></div>`,
        )}</dl>
      </div>
      <${ErrorBox} error=${error} />
      <${Chart} label="Tokens by day" height=${150} bars series=${series} format=${number} />
      <${Table} label="Usage" rows=${[...rows].reverse()} empty="No usage in these days." columns=${[
        ["day", (row) => row.day],
        ...by.split(",").map((name) => [name, (row) => row[name] || "–"]),
        ...["requests", "errors", "prompt_tokens", "cached_tokens", "output_tokens"].map((name) => [
          words(name),
          (row) => whole(row[name]),
          "number",
        ]),
        ["cost", (row) => row.cost.toFixed(4), "number"],
      ]} />
    <//>`;
}

function Audit() {
  const [entries, setEntries] = useState([]);
  const [error, setError] = useState(null);
  useEffect(() => {
    list("admin/v1/audit?order=desc", 1).then(setEntries, setError);
  }, []);
  return html`
    <${Section} title="Audit log, newest first">
      <${ErrorBox} error=${error} />
      <${Table} label="Audit log" rows=${entries.slice(0, 200)} id=${(entry) => entry.number} columns=${[
        ["number", (entry) => entry.number, "number"],
        ["at (UTC)", (entry) => moment(entry.at)],
        ["actor", (entry) => entry.actor],
        ["action", (entry) => entry.action],
        ["object", (entry) => entry.object],
        ["after", (entry) => html`<span class="wrap muted">${entry.after ? JSON.stringify(entry.after).slice(0, 160) : "–"}</span>`],
      ]} />
    <//>`;
}
