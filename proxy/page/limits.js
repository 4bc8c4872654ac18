/** What is used of limits: as bars, and all those of a tenant or a key in a dialog. */
import { html, Dialog, ErrorBox, Meter, Table, number, seconds, words, useEffect, useState } from "./html.js";
import { call } from "./api.js";

const NEAR = 0.8; // of a budget: from here on it is marked

let read = new Map(); // by query, so that a table and a dialog ask once
export const forgetLimits = () => {
  read = new Map();
};

/** owner: {tenant} or {key}. Read again when `record` is another, and without one each time. */
function useLimits(owner, record) {
  const [[limits, error], setFound] = useState([null, null]);
  const query = String(new URLSearchParams(owner));
  useEffect(() => {
    if (!record || !read.has(query)) read.set(query, call(`admin/v1/limits?${query}`));
    read.get(query).then(
      ({ data }) => setFound([data, null]),
      (problem) => setFound([null, problem]),
    );
  }, [query, record]);
  return [limits, error];
}

const amount = (value) => (value > 0 && value < 1 ? String(Number(value.toPrecision(3))) : number(value));

const Used = ({ one }) => {
  const share = one.used / one.most;
  return html`<span class=${share >= NEAR ? "bad" : undefined}><${Meter} share=${Math.min(share, 1)} mark=${NEAR} text=${`${amount(one.used)} of ${amount(one.most)}`} /></span>`;
};

/** The budgets of the month of a tenant or a key, as bars. */
export function Budgets({ owner, record }) {
  const [limits, error] = useLimits(owner, record);
  if (error) return "–";
  const own = (limits ?? []).filter((each) => !each.model && each.limit.startsWith("monthly"));
  return own.map((one) => html`<div title=${words(one.limit)}><${Used} one=${one} /></div>`);
}

export function LimitsDialog({ owner, name, close }) {
  const [limits, error] = useLimits(owner);
  return html`
    <${Dialog} title=${`Limits of ${name}`} close=${close} isWide>
      <${ErrorBox} error=${error} />
      ${
        limits &&
        html`<${Table} label="Limits" rows=${limits} empty="It has no limits." columns=${[
          ["of", (one) => (one.model ? `model ${one.model}` : one.key ? "key" : "tenant")],
          ["limit", (one) => words(one.limit)],
          ["used", (one) => html`<${Used} one=${one} />`, "number"],
          ["whole again in", (one) => seconds(one.reset_s), "number"],
        ]} />`
      }
    <//>`;
}
