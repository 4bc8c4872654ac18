/** Tenants and keys, and the tabs of usage and audit: everything through the public /admin/v1. */
import {
  html,
  CopyButton,
  Dialog,
  ErrorBox,
  Field,
  Fragment,
  Notice,
  Section,
  Table,
  moment,
  number,
  words,
  useEffect,
  useState,
} from "./html.js";
import { call, callerNames, document as apiDocument, keys as session, list } from "./api.js";
import { entered, Inputs, isNumber, plainOf } from "./fields.js";
import { Budgets, forgetLimits, LimitsDialog } from "./limits.js";
import { Audit, Usage } from "./usage.js";

const TABS = { keys: "Keys", tenants: "Tenants", usage: "Usage", audit: "Audit" };
const shown = (limits) =>
  Object.entries(limits)
    .filter(([, value]) => value != null)
    .map(([name, value]) => `${words(name)} ${number(value)}`)
    .join(", ");
const stateOf = (key) => (key.revoked_at ? "revoked" : key.expires_at && new Date(key.expires_at) < Date.now() ? "expired" : "active");

export function Keys({ about, models, chatWith, askForKey }) {
  const [tab, setTab] = useState("keys");
  const [tenants, setTenants] = useState(null);
  const [keys, setKeys] = useState([]);
  const [nameOf, setNameOf] = useState(() => (id) => id);
  const [schemas, setSchemas] = useState(null); // of the API's document, from which the inputs are made
  const [error, setError] = useState(null);
  const load = async () => {
    try {
      const [all, own] = await Promise.all([list("admin/v1/tenants"), list("admin/v1/keys")]);
      if (!schemas) setSchemas((await apiDocument()).components.schemas);
      forgetLimits();
      const names = await callerNames(about, own);
      setNameOf(() => names);
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
  const texts = { tenant: tenants.map((each) => each.name), model: (models ?? []).map((each) => each.id) };
  const given = { schemas, keys, tenants, texts, nameOf, changed: load };
  const parts = {
    keys: html`<${KeyList} ...${given} chatWith=${chatWith} />`,
    tenants: html`<${TenantList} ...${given} />`,
    usage: html`<${Usage} nameOf=${nameOf} />`,
    audit: html`<${Audit} nameOf=${nameOf} />`,
  };
  return html`
    <div class="tabs" role="group" aria-label="Parts">${Object.entries(TABS).map(
      ([name, label]) => html`
      <button type="button" aria-pressed=${name === tab} onClick=${() => setTab(name)}>${label}</button>`,
    )}</div>
    ${parts[tab]}`;
}

/** The records with a text in what is shown of them, and in a state: [found, the inputs]. */
function useFilter(records, state, states) {
  const [sought, setSought] = useState("");
  const [wanted, setWanted] = useState("");
  const found = records.filter(
    (each) =>
      (!wanted || state(each) === wanted) && JSON.stringify(Object.values(each)).toLowerCase().includes(sought.trim().toLowerCase()),
  );
  return [
    found,
    html`<div class="row filters">
      <${Field} label="Search"><input type="search" name="search" value=${sought} onInput=${(e) => setSought(e.target.value)} /><//>
      <${Field} label="State"><select name="state" value=${wanted} onChange=${(e) => setWanted(e.target.value)}><option value="">all</option>${states.map((each) => html`<option>${each}</option>`)}</select><//>
    </div>`,
  ];
}

/** Buttons of a row. actions: [what it does, its dialog]. */
const actions = (name, all, open) =>
  html`<span class="row end">${all.map(
    ([label, dialog]) =>
      html`<button type="button" class="quiet small" aria-label=${`${label} ${name}`} onClick=${() => open(dialog)}>${label}</button>`,
  )}</span>`;
const State = ({ state }) => html`<span class=${`badge ${state === "active" ? "good" : "bad"}`}>${state}</span>`;
const LimitsCell = ({ record, open }) => {
  const text = [shown(record.limits), ...Object.entries(record.of_models ?? {}).map(([model, limits]) => `${model}: ${shown(limits)}`)]
    .filter(Boolean)
    .join("; ");
  return text
    ? html`<span class="wrap">${text} <button type="button" class="link" aria-label=${`Used of the limits of ${record.name}`} onClick=${open}>used</button></span>`
    : "–";
};
const hasBudget = ({ limits }) => Object.entries(limits).some(([name, value]) => name.startsWith("monthly") && value != null);

function KeyList({ schemas, keys, tenants, texts, nameOf, changed, chatWith }) {
  const [dialog, setDialog] = useState(() => (location.hash === "#keys/new" ? { name: "create" } : null)); // {name, key}
  const [issued, setIssued] = useState(null);
  const [found, filters] = useFilter(keys, stateOf, ["active", "expired", "revoked"]);
  const key = dialog?.key;
  const close = () => {
    if (location.hash === "#keys/new") history.replaceState(null, "", "#keys");
    setDialog(null);
  };
  const send = async (path, body, method = "POST") => {
    const answer = await call(`admin/v1/keys${path && `/${encodeURIComponent(key.id)}${path}`}`, { body, method });
    if (answer.key) setIssued(answer);
    await changed();
  };
  const create = async (form) => {
    const body = entered(form, schemas, schemas.KeyBody);
    if (!tenants.some((each) => each.name === body.tenant)) await call("admin/v1/tenants", { body: { name: body.tenant } });
    await send("", body);
  };
  const change = (form) => send("/", entered(form, schemas, schemas.KeyChanges, key), "PATCH");
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
      ${filters}
      <${Table} label="Keys" rows=${found} id=${(key) => key.id} columns=${[
        ["key", (key) => html`<span title=${key.id}>${nameOf(key.id)}</span>`],
        ["scopes", (key) => html`<span class="wrap">${key.scopes.join(", ")}</span>`],
        ["models", (key) => key.models.join(", ") || "all"],
        ["limits", (key) => html`<${LimitsCell} record=${key} open=${() => setDialog({ name: "limits", key })} />`],
        ["month", (key) => hasBudget(key) && html`<${Budgets} record=${key} owner=${{ key: key.id }} />`],
        ...plainOf(schemas, schemas.KeyBody).map(([name]) => [words(name), (key) => `${key[name] ?? "–"}`, "number"]),
        ["expires", (key) => moment(key.expires_at)],
        ["state", (key) => html`<${State} state=${stateOf(key)} />`],
        [
          html`<span class="hidden">actions</span>`,
          (key) =>
            stateOf(key) !== "revoked" &&
            actions(
              key.name,
              [
                ["Change", "change"],
                ["Rotate", "rotate"],
                ["Revoke", "revoke"],
              ],
              (name) => setDialog({ name, key }),
            ),
        ],
      ]} />
    <//>
    ${
      dialog?.name === "create" &&
      html`<${Dialog} title="Create a key" action="Create" save=${create} close=${close}>
      <p>A new name of a tenant makes a new tenant.</p><${Inputs} schemas=${schemas} body=${schemas.KeyBody} texts=${texts} />
    <//>`
    }
    ${
      dialog?.name === "change" &&
      html`<${Dialog} title=${`Change ${key.name}`} action="Save" save=${change} close=${close}>
      <${Inputs} schemas=${schemas} body=${schemas.KeyChanges} values=${key} />
    <//>`
    }
    ${
      dialog?.name === "rotate" &&
      html`<${Dialog} title=${`Rotate ${key.name}`} action="Rotate" close=${close}
          save=${(form) => send("/rotate", { overlap_s: Math.round(form.get("hours") * 3600) })}>
      <p>The new secret works at once, the old one until the overlap is over.</p>
      <${Field} label="Overlap in hours"><input name="hours" type="number" min="0" step="any" defaultValue="24" required /><//>
    <//>`
    }
    ${
      dialog?.name === "revoke" &&
      html`<${Dialog} title=${`Revoke ${key.name}`} action="Revoke for good" save=${() => send("/revoke")} close=${close}>
      <p>The key ${key.id} of ${key.tenant} ends within a second, in every proxy. This cannot be undone.</p>
    <//>`
    }
    ${dialog?.name === "limits" && html`<${LimitsDialog} owner=${{ key: key.id }} name=${nameOf(key.id)} close=${close} />`}
  <//>`;
}

function TenantList({ schemas, tenants, keys, texts, changed }) {
  const [dialog, setDialog] = useState(null); // {name, one}
  const stateOfTenant = (one) => (one.is_active ? "active" : "suspended");
  const [found, filters] = useFilter(tenants, stateOfTenant, ["active", "suspended"]);
  const one = dialog?.one;
  const path = one?.name && `admin/v1/tenants/${encodeURIComponent(one.name)}`;
  const fields = path ? schemas.TenantChanges : schemas.TenantBody;
  const close = () => setDialog(null);
  const save = async (form) => {
    await call(path ?? "admin/v1/tenants", { method: path ? "PATCH" : "POST", body: entered(form, schemas, fields, one) });
    await changed();
  };
  const remove = async () => {
    await call(path, { method: "DELETE" });
    await changed();
  };
  return html`<${Fragment}>
    <${Section} title="Tenants" action="Create a tenant" onAction=${() => setDialog({ name: "edit", one: {} })}>
      ${filters}
      <${Table} label="Tenants" rows=${found} id=${(one) => one.name} columns=${[
        ["name", (one) => one.name],
        ["keys", (one) => keys.filter((key) => key.tenant === one.name && stateOf(key) === "active").length, "number"],
        ...plainOf(schemas, schemas.TenantBody).map(([name, kind]) => [
          words(name),
          (one) => (isNumber(kind) ? `${one[name] ?? "–"}` : one[name] ? "yes" : "no"),
          "number",
        ]),
        ["limits", (one) => html`<${LimitsCell} record=${one} open=${() => setDialog({ name: "limits", one })} />`],
        ["month", (one) => hasBudget(one) && html`<${Budgets} record=${one} owner=${{ tenant: one.name }} />`],
        ["created", (one) => moment(one.created_at)],
        ["state", (one) => html`<${State} state=${stateOfTenant(one)} />`],
        [
          html`<span class="hidden">actions</span>`,
          (one) =>
            actions(
              one.name,
              [
                ["Change", "edit"],
                ["Delete", "delete"],
              ],
              (name) => setDialog({ name, one }),
            ),
        ],
      ]} />
    <//>
    ${
      dialog?.name === "edit" &&
      html`<${Dialog} title=${path ? `Change ${one.name}` : "Create a tenant"} action="Save" save=${save} close=${close}>
      <${Inputs} schemas=${schemas} body=${fields} values=${one} texts=${texts} />
    <//>`
    }
    ${
      dialog?.name === "delete" &&
      html`<${Dialog} title=${`Delete ${one.name}`} action="Delete for good" save=${remove} close=${close}>
      <p>Its keys must be revoked, and are deleted with it. Its usage is kept.</p>
    <//>`
    }
    ${dialog?.name === "limits" && html`<${LimitsDialog} owner=${{ tenant: one.name }} name=${one.name} close=${close} />`}
  <//>`;
}
