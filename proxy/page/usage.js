/** Usage by day, and the audit log in words. */
import { html, ErrorBox, Field, Section, Table, day, moment, number, whole, words, useEffect, useMemo, useState } from "./html.js";
import { call, list } from "./api.js";
import { Chart, COLORS } from "./chart.js";

const GROUPS = ["tenant", "key", "model", "tenant,model", "tenant,key,model"];
const MEASURES = {
  tokens: [(row) => row.prompt_tokens + row.output_tokens, number],
  cost: [(row) => row.cost, (value) => value.toFixed(2)],
  requests: [(row) => row.requests, number],
  errors: [(row) => row.errors, number],
};

export function Usage({ nameOf }) {
  const [from, setFrom] = useState(() => day(new Date(Date.now() - 29 * 86_400_000)));
  const [by, setBy] = useState("tenant,model");
  const [measure, setMeasure] = useState("tokens");
  const [rows, setRows] = useState([]);
  const [error, setError] = useState(null);
  const groups = by.split(",");
  const [of, format] = MEASURES[measure];
  useEffect(() => {
    call(`admin/v1/usage?from=${from}&by=day,${by}`).then(
      ({ data }) => {
        setRows(data);
        setError(null);
      },
      (problem) => setError(problem),
    );
  }, [from, by]);
  const cell = (row, name) => (name === "key" ? nameOf(row.key) : row[name]) || "–";
  const nameOfRow = (row) =>
    groups
      .filter((name) => name in row)
      .map((name) => cell(row, name))
      .join(", ");

  /** The groups with the most, the rest as one, each drawn on top of those after it. */
  const [stack, series] = useMemo(() => {
    const at = [];
    for (let time = Date.parse(from); time <= Date.now(); time += 86_400_000) at.push(time / 1000);
    const places = new Map(at.map((time, place) => [day(new Date(time * 1000)), place]));
    const sums = Map.groupBy(
      rows.filter((row) => groups[0] in row),
      nameOfRow,
    );
    const total = (own) => own.reduce((sum, row) => sum + of(row), 0);
    const sorted = [...sums].map(([name, own]) => ({ name, own, total: total(own) })).sort((one, other) => other.total - one.total);
    const most = COLORS.length - 1;
    const rest = sorted.slice(most).flatMap((each) => each.own);
    const shown = [...sorted.slice(0, most), ...(rest.length ? [{ name: "others", own: rest, total: total(rest) }] : [])];
    const height = at.map(() => 0);
    const layers = shown.map(({ own }) => {
      for (const row of own) if (places.has(row.day)) height[places.get(row.day)] += of(row);
      return [...height];
    });
    return [shown, [at, ...(layers.length ? layers.reverse() : [height])]];
  }, [rows, from, measure, nameOf]);
  const sum = (name) => rows.reduce((total, each) => total + each[name], 0);
  const choice = (label, value, change, all) => html`<${Field} label=${label}><select name=${label} value=${value}
      onChange=${(e) => change(e.target.value)}>${all.map((each) => html`<option value=${each}>${each.replaceAll(",", ", ")}</option>`)}</select><//>`;
  const failed = (row) =>
    new URLSearchParams({
      failed: "true",
      ...Object.fromEntries(groups.filter((name) => row[name]).map((name) => [name === "key" ? "key_id" : name, row[name]])),
    });
  return html`
    <${Section} title="Usage by day">
      <div class="row filters">
        <${Field} label="From"><input type="date" value=${from} onChange=${(e) => e.target.value && setFrom(e.target.value)} /><//>
        ${choice("By", by, setBy, GROUPS)}${choice("Chart of", measure, setMeasure, Object.keys(MEASURES))}
        <dl class="sums">${["requests", "errors", "prompt_tokens", "output_tokens", "cost"].map(
          (name) =>
            html`<div><dt>${words(name).replace(" tokens", "")}</dt><dd>${name === "cost" ? sum(name).toFixed(2) : number(sum(name))}</dd></div>`,
        )}</dl>
      </div>
      <${ErrorBox} error=${error} />
      <${Chart} key=${`${measure} ${series.length}`} label=${`${measure} by day and ${by}`} height=${150} bars series=${series} format=${format} />
      <ul class="legend">${stack.map((each, place) => html`<li><i class=${`c${place}`}></i>${each.name} <b>${format(each.total)}</b></li>`)}</ul>
      <${Table} label="Usage" rows=${[...rows].reverse()} empty="No usage in these days." columns=${[
        ["day", (row) => row.day],
        ...groups.map((name) => [name, (row) => cell(row, name)]),
        ["requests", (row) => whole(row.requests), "number"],
        ["errors", (row) => (row.errors ? html`<a href=${`#requests?${failed(row)}`}>${whole(row.errors)}</a>` : 0), "number"],
        ...["prompt_tokens", "cached_tokens", "output_tokens"].map((name) => [words(name), (row) => whole(row[name]), "number"]),
        ["cost", (row) => row.cost.toFixed(4), "number"],
      ]} />
    <//>`;
}

const VERBS = {
  create: "created",
  update: "changed",
  delete: "deleted",
  revoke: "revoked",
  rotate: "rotated",
  read: "read",
  denied: "was denied",
};

/** A record's fields by name, those of its parts with the part's name before them. */
const flat = (record, before = "") =>
  Object.entries(record ?? {}).flatMap(([name, value]) =>
    value && typeof value === "object" && !Array.isArray(value) ? flat(value, `${before}${words(name)} `) : [[before + words(name), value]],
  );
const said = (value) =>
  value == null || value === ""
    ? "none"
    : Array.isArray(value)
      ? value.join(", ") || "all"
      : typeof value === "number"
        ? whole(value)
        : String(value);

/** What an entry changed: the fields with another value than before. */
function changes({ before, after }) {
  const old = new Map(flat(before)),
    now = new Map(flat(after));
  return [...new Set([...old.keys(), ...now.keys()])]
    .filter((name) => JSON.stringify(old.get(name)) !== JSON.stringify(now.get(name)) && (before || said(now.get(name)) !== "none"))
    .map((name) =>
      before && after ? `${name}: ${said(old.get(name))} → ${said(now.get(name))}` : after && `${name}: ${said(now.get(name))}`,
    )
    .filter(Boolean);
}

export function Audit({ nameOf }) {
  const [entries, setEntries] = useState([]);
  const [sought, setSought] = useState("");
  const [error, setError] = useState(null);
  useEffect(() => {
    list("admin/v1/audit?order=desc", 1).then(setEntries, setError);
  }, []);
  const objectOf = (object) => {
    const [kind, ...rest] = object.split("/");
    const name = rest.join("/");
    return !name || !["keys", "tenants"].includes(kind) ? object : `the ${kind.slice(0, -1)} ${kind === "keys" ? nameOf(name) : name}`;
  };
  const sentence = ({ actor, action, object }) => {
    const verb = action.split(".").at(-1);
    return `${nameOf(actor)} ${VERBS[verb] ?? verb.replaceAll("_", " ")} ${objectOf(object)}`;
  };
  const found = entries.filter((each) =>
    `${sentence(each)} ${each.action} ${each.object}`.toLowerCase().includes(sought.trim().toLowerCase()),
  );
  return html`
    <${Section} title="Audit log, newest first">
      <div class="row filters"><${Field} label="Search"><input type="search" value=${sought} onInput=${(e) => setSought(e.target.value)} /><//></div>
      <${ErrorBox} error=${error} />
      <${Table} label="Audit log" rows=${found} id=${(entry) => entry.number} columns=${[
        ["number", (entry) => entry.number, "number"],
        ["at (UTC)", (entry) => moment(entry.at)],
        [
          "what happened",
          (entry) => html`<span class="wrap" title=${`${entry.actor} ${entry.action} ${entry.object}`}>${sentence(entry)}</span>`,
        ],
        ["changes", (entry) => html`<span class="wrap muted">${changes(entry).join("; ") || "–"}</span>`],
      ]} />
    <//>`;
}
