/** The requests that ended last, by the filters of the API, each with its stages as bars. */
import { html, Dialog, ErrorBox, Field, Notice, Table, seconds, words, useEffect, useState } from "./html.js";
import { call, callerNames, document as apiDocument, keys } from "./api.js";

const PATH = "admin/v1/requests";
const filtersOf = () => new URLSearchParams(location.hash.split("?")[1] ?? "");

export function Requests({ about, askForKey }) {
  const [fields, setFields] = useState([]);
  const [filters, setFilters] = useState(filtersOf);
  const [nameOf, setNameOf] = useState(() => (id) => id);
  const [rows, setRows] = useState(null);
  const [error, setError] = useState(null);
  const [shown, setShown] = useState(null);
  const hasKey = Boolean(keys.admin) || about?.needs_key === false;
  const load = () => {
    const given = new URLSearchParams([...filters].filter(([, value]) => value));
    call(`${PATH}?${given}`).then(
      ({ data }) => {
        setRows(data);
        setError(null);
      },
      (problem) => setError(problem),
    );
  };
  useEffect(() => {
    if (!hasKey) return;
    apiDocument().then((found) => setFields(found.paths[`/${PATH}`].get.parameters), setError);
    callerNames(about).then((found) => setNameOf(() => found));
  }, [hasKey]);
  useEffect(() => {
    if (hasKey) load();
  }, [hasKey, filters]);

  if (!hasKey)
    return html`<${Notice} title="Requests are for operators" action=${["Enter a key", askForKey]}>Enter a key of the scope <b>admin</b>.<//>`;
  if (error?.status === 403)
    return html`<${ErrorBox} error=${error}><p>Without keys, requests are shown with the setting <b>ADMIN=on</b>.</p><button type="button" onClick=${askForKey}>Enter another key</button><//>`;
  const set = (name, value) => {
    const next = new URLSearchParams(filters);
    if (value) next.set(name, value);
    else next.delete(name);
    history.replaceState(null, "", `#requests${next.size ? `?${next}` : ""}`);
    setFilters(next);
  };
  return html`
    <section class="panel wide">
      <div class="row between"><h2>Requests that ended last</h2><button type="button" onClick=${load}>Read again</button></div>
      <div class="row filters">${fields.map((field) => html`<${Filter} key=${field.name} field=${field} value=${filters.get(field.name) ?? ""} set=${set} />`)}</div>
      <${ErrorBox} error=${error} />
      ${
        rows &&
        html`<${Table} label="Requests" rows=${rows} id=${(one) => one.id} empty="None that matches." columns=${[
          ["began (UTC)", (one) => one.began_at.slice(5, 19).replace("T", " ")],
          [
            "request",
            (one) =>
              html`<button type="button" class="quiet small cut" title=${one.id} onClick=${() => setShown(one.id)}>${one.id}</button>`,
          ],
          ["caller", (one) => nameOf(one.key_id, one.tenant)],
          ["model", (one) => one.model ?? "–"],
          [
            "end",
            (one) => html`<span class=${`badge ${one.error ? "bad" : "good"}`}>${one.error ?? one.finish ?? one.status ?? "–"}</span>`,
          ],
          ["in", (one) => one.prompt_tokens ?? "–", "number"],
          ["out", (one) => one.completion_tokens ?? "–", "number"],
          ["TTFT", (one) => seconds(one.ttft_ms == null ? null : one.ttft_ms / 1000), "number"],
          ["duration", (one) => seconds(one.duration_ms / 1000), "number"],
        ]} />`
      }
    </section>
    ${shown && html`<${Trace} id=${shown} nameOf=${nameOf} close=${() => setShown(null)} />`}`;
}

function Filter({ field: { name, schema, description }, value, set }) {
  const { type, minimum, maximum } = schema.anyOf?.[0] ?? schema;
  const changed = (event) => set(name, event.target.value);
  if (type === "boolean")
    return html`<${Field} label=${words(name)}><select name=${name} title=${description} value=${value} onChange=${changed}><option value="">all</option><option
        value="true">yes</option><option value="false">no</option></select><//>`;
  return html`<${Field} label=${words(name)}><input name=${name} title=${description} type=${type === "string" ? "search" : "number"} min=${minimum}
      max=${maximum} step="any" placeholder=${type === "string" ? "all" : String(schema.default ?? "all")} value=${value} onChange=${changed} /><//>`;
}

/** In the order in which they began, each followed by the stages that are part of it: [depth, stage]. */
function ordered(stages) {
  const parts = new Map();
  stages.forEach((stage, place) => {
    const parent = stage.parent !== null && stage.parent < place ? stage.parent : null; // whatever was sent, this ends
    parts.set(parent, [...(parts.get(parent) ?? []), place]);
  });
  const below = (parent, depth) =>
    (parts.get(parent) ?? [])
      .sort((one, other) => stages[one].begin_ms - stages[other].begin_ms)
      .flatMap((place) => [[depth, stages[place]], ...below(place, depth + 1)]);
  return below(null, 0);
}

function Trace({ id, nameOf, close }) {
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    call(`${PATH}/${encodeURIComponent(id)}`).then(setFound, setError);
  }, [id]);
  const { stages, id: _, key_id: key, tenant, ...others } = found ?? { stages: [] };
  const facts = { caller: nameOf(key, tenant), ...others };
  const total = facts.duration_ms || 1;
  const share = (ms) => Math.min(Math.max(ms / total, 0), 1);
  const bar = (depth, name, begin, duration, kind, note) => html`
    <tr><th scope="row" style=${{ paddingLeft: `${18 + 14 * depth}px` }}>${name}</th>
      <td><span class="track" role="img" aria-label=${`from ${seconds(begin / 1000)} for ${seconds(duration / 1000)}`}><i class=${kind}
          style=${{ marginLeft: `${100 * share(begin)}%`, width: `${100 * Math.min(share(duration), 1 - share(begin))}%` }}></i></span></td>
      <td class="number">${seconds(duration / 1000)}</td><td><span class="wrap muted">${note}</span></td></tr>`;
  const noteOf = ({ error: ended, attributes }) =>
    [ended, ...Object.entries(attributes).map((each) => each.join(" "))].filter(Boolean).join("  ");
  return html`
    <${Dialog} title=${id} close=${close} isWide>
      <${ErrorBox} error=${error} />
      ${
        found &&
        html`
        <dl class="facts">${Object.entries(facts).map(([name, value]) => html`<div><dt>${words(name)}</dt><dd>${String(value)}</dd></div>`)}</dl>
        <div class="scroll" role="region" aria-label="Stages" tabindex="0"><table class="trace"><tbody>
          ${bar(0, "request", 0, facts.duration_ms, "", "")}
          ${ordered(stages).map(([depth, stage]) => bar(depth, stage.name, stage.begin_ms, stage.duration_ms, stage.error ? "failed" : stage.name.split(" ")[0], noteOf(stage)))}
        </tbody></table></div>`
      }
    <//>`;
}
