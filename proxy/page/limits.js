/** What is used of limits: as bars, and all those of a tenant in a dialog. */
import { html, Dialog, ErrorBox, Meter, Table, number, seconds, words, useEffect, useState } from "./html.js";
import { call } from "./api.js";

const NEAR = 0.8; // of a budget: from here on it is marked

let read = new Map(); // by tenant, so that the rows of a table ask once
export const forgetLimits = () => {
  read = new Map();
};
const limitsOf = (tenant) => {
  if (!read.has(tenant))
    read.set(
      tenant,
      call(`admin/v1/limits?tenant=${encodeURIComponent(tenant)}`).then((answer) => answer.data),
    );
  return read.get(tenant);
};

function useLimits(tenant, when) {
  const [[limits, error], setFound] = useState([null, null]);
  useEffect(() => {
    limitsOf(tenant).then(
      (found) => setFound([found, null]),
      (problem) => setFound([null, problem]),
    );
  }, [tenant, when]);
  return [limits, error];
}

const amount = (value) => (value > 0 && value < 1 ? String(Number(value.toPrecision(3))) : number(value));

const Used = ({ one }) => {
  const share = one.used / one.most;
  return html`<span class=${share >= NEAR ? "bad" : undefined}><${Meter} share=${Math.min(share, 1)} mark=${NEAR} text=${`${amount(one.used)} of ${amount(one.most)}`} /></span>`;
};

/** The budgets of the month of a tenant or a key, as bars. */
export function Budgets({ record, tenant, keyId = null }) {
  const [limits, error] = useLimits(tenant, record);
  if (error) return "–";
  const own = (limits ?? []).filter((each) => each.key === keyId && !each.model && each.limit.startsWith("monthly"));
  return own.map((one) => html`<div title=${words(one.limit)}><${Used} one=${one} /></div>`);
}

export function LimitsDialog({ tenant, keyId, nameOf, close }) {
  const [limits, error] = useLimits(tenant, tenant);
  const shown = limits?.filter((each) => !keyId || each.key === keyId);
  return html`
    <${Dialog} title=${`Limits of ${keyId ? nameOf(keyId) : tenant}`} close=${close} isWide>
      <${ErrorBox} error=${error} />
      ${
        shown &&
        html`<${Table} label="Limits" rows=${shown} empty="It has no limits." columns=${[
          ["of", (one) => (one.key ? nameOf(one.key) : one.model ? `model ${one.model}` : "tenant")],
          ["limit", (one) => words(one.limit)],
          ["used", (one) => html`<${Used} one=${one} />`, "number"],
          ["whole again in", (one) => seconds(one.reset_s), "number"],
        ]} />`
      }
    <//>`;
}
