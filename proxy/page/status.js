/** Live status: a frame a second of what `triton-openai top` shows, and charts of the last hour. */
import { html, ErrorBox, Meter, Notice, Table, number, seconds, whole, useEffect, useRef, useState } from "./html.js";
import { keys, watch } from "./api.js";
import { Chart } from "./chart.js";

const HOUR_S = 3600,
  MOST_POINTS = 4400;
const TILES = [
  ["Generated tokens", "tok/s", number, "completion_tokens_per_s"],
  ["Prompt tokens", "tok/s", number, "prompt_tokens_per_s"],
  ["Requests", "a second", number, "requests_per_s"],
  ["First token", "p50, p99", seconds, "ttft_p50_s", "ttft_p99_s"],
  ["Running, waiting", "requests", number, "running", "waiting"],
  ["Failures", "a second", number, "failures_per_s"],
];

const UNITS = { number, seconds, failures: (value) => html`<span class=${value ? "bad" : ""}>${number(value)}</span>` };

export function Status({ about, askForKey }) {
  const [frame, setFrame] = useState(null);
  const [state, setState] = useState({ name: "connecting" });
  const [hello, setHello] = useState(null);
  const series = useRef({ at: [] });

  const hasKey = Boolean(keys.admin) || about?.needs_key === false;
  useEffect(() => {
    if (!hasKey) return undefined;
    const onEvent = (event) => {
      if (event.type === "hello") {
        series.current = event.series;
        setHello(event);
        return;
      }
      const all = series.current;
      for (const name of Object.keys(all)) {
        all[name].push(event.totals[name]);
        if (all[name].length > MOST_POINTS) all[name].shift();
      }
      setFrame(event);
    };
    let abort;
    const begin = () => {
      abort = new AbortController();
      watch({ signal: abort.signal, onEvent, onState: setState });
    };
    const end = () => abort.abort();
    // a page that the browser keeps for its back button would hold the connection
    const back = (event) => event.persisted && begin();
    begin();
    addEventListener("pagehide", end);
    addEventListener("pageshow", back);
    return () => {
      end();
      removeEventListener("pagehide", end);
      removeEventListener("pageshow", back);
    };
  }, [hasKey]);

  if (about?.needs_key && !hasKey)
    return html`<${Notice} title="Status is for operators" action=${["Enter a key", askForKey]}>Enter a key of the scope <b>metrics</b> or <b>admin</b>.<//>`;
  if (state.name === "refused") {
    return html`<${ErrorBox} error=${state.error}><p>Status needs a key of the scope <b>metrics</b> or <b>admin</b>.</p><button
        type="button" onClick=${askForKey}>Enter another key</button><//>`;
  }
  if (!frame)
    return html`<p class="empty" role="status">${state.name === "waiting" ? "The server does not answer. Trying again…" : "Waiting for the first frame…"}</p>`;
  const isOperator = hello.is_operator && frame.deployments;
  const figures = (kind) => hello.columns[kind].map(({ name, heading, unit }) => [heading, (one) => UNITS[unit](one[name]), "number"]);
  return html`
    <div class="bar">
      <p role="status" class=${`state ${state.name}`}><span class="dot on"></span>${state.name === "live" ? "Live" : `Connection lost. Trying again in ${Math.ceil(state.pauseMs / 1000)} s; these are the last figures.`}</p>
      <p><span class=${`badge ${frame.is_ready ? "good" : "bad"}`}>${frame.is_ready ? "ready" : "not ready"}</span></p>
      <p class="muted">Event loop late by ${seconds(frame.loop_lag_p99_s)} (p99)</p>
    </div>
    <div class="tiles">${TILES.map((tile) => html`<${Tile} key=${tile[0]} tile=${tile} frame=${frame} all=${series.current} />`)}</div>
    <div class="panels">
      <${Panel} title="Models" wide><${Table} label="Models" rows=${frame.models} id=${(one) => one.model}
          empty="No model has had a request yet." columns=${[
        ["model", (one) => one.model],
        ...figures("models"),
      ]} /><//>
      ${isOperator && html`<${Operated} frame=${frame} />`}
      <${Panel} title="Tenants"><${Table} label="Tenants" rows=${frame.tenants} id=${(one) => one.tenant}
          empty="No tenant has sent a request yet." columns=${[
        ["tenant", (one) => one.tenant],
        ...figures("tenants"),
      ]} /><//>
      ${frame.batches.length > 0 && html`<${Panel} title="Batches"><${Table} label="Batches" rows=${frame.batches} id=${(one) => one.batches}
          columns=${[["batches", (one) => one.batches], ...figures("batches")]} /><//>`}
      <${Panel} title="Errors"><${Table} label="Errors" rows=${frame.errors} id=${(one) => `${one.model} ${one.code}`}
          empty="None since the start." columns=${[
        ["code", (one) => (isOperator ? html`<a href=${`#requests?${new URLSearchParams({ error: one.code, model: one.model ?? "" })}`}>${one.code}</a>` : one.code)],
        ["model", (one) => one.model || "–"],
        ["since the start", (one) => whole(one.total), "number"],
      ]} /><//>
      ${!isOperator && html`<p class="note">Running requests, endpoints, deployments and queues are for operators: with a key of the scope <b>admin</b>, or without keys, with the setting <b>ADMIN=on</b>.</p>`}
    </div>`;
}

function Tile({ tile: [title, unit, format, first, second], frame, all }) {
  const [point, setPoint] = useState(null);
  const names = ["at", first, second].filter(Boolean);
  const value = (name) => format(point === null ? frame.totals[name] : all[name][point]);
  const at = point !== null && new Date(all.at[point] * 1000).toLocaleTimeString("en-GB");
  return html`
    <section class="tile">
      <h2>${title} <small>${at || unit}</small></h2>
      <p class="figure">${value(first)}${second && html`<span>${value(second)}</span>`}</p>
      <${Chart} label=${`${title} over the last hour: ${value(first)} now`} span=${HOUR_S} format=${format} onPoint=${setPoint}
          series=${names.map((name) => [...all[name]])} />
    </section>`;
}

function Panel({ title, wide, children }) {
  return html`<section class=${wide ? "panel wide" : "panel"}><h2>${title}</h2>${children}</section>`;
}

function Operated({ frame }) {
  return html`
    <${Panel} title="Running requests" wide><${Table} label="Running requests" rows=${frame.running} id=${(one) => one.request_id}
        empty="None now." columns=${[
      ["request", (one) => html`<span class="cut" title=${one.request_id}>${one.request_id}</span>`],
      ["model", (one) => one.model ?? "–"],
      ["tenant", (one) => one.tenant ?? "–"],
      ["stage", (one) => (one.queue_position ? `queue, place ${one.queue_position}` : one.ttft_s != null ? "decode" : (one.stage ?? "–"))],
      ["time", (one) => html`<${Stages} request=${one} longest=${frame.running[0].duration_ms} />`],
      ["TTFT", (one) => seconds(one.ttft_s), "number"],
      ["in", (one) => one.prompt_tokens ?? "–", "number"],
      ["out", (one) => one.completion_tokens ?? "–", "number"],
      ["age", (one) => seconds(one.duration_ms / 1000), "number"],
    ]} /><//>
    <${Panel} title="Endpoints" wide><${Table} label="Endpoints" rows=${frame.endpoints} id=${(one) => `${one.pool} ${one.address}`}
        columns=${[
      ["endpoint", (one) => one.address],
      ["pool", (one) => one.pool],
      [
        "state",
        (one) => html`<span class=${`badge ${one.state === "ready" ? "good" : "bad"}`} title=${one.reason ?? ""}>${one.state}</span>`,
      ],
      ["rows", (one) => number(one.load.running), "number"],
      ["waiting", (one) => number(one.load.waiting), "number"],
      ["KV cache", (one) => html`<${Meter} share=${one.load.kv_in_use} />`, "number"],
      ["streams", (one) => one.streams, "number"],
      ["tok/s", (one) => number(one.tokens_per_s), "number"],
    ]} /><//>
    <${Panel} title="Queue by tenant"><${Table} label="Queue by tenant" empty="Nothing runs or waits."
        rows=${frame.queues.flatMap((one) => (one.tenants.length ? one.tenants.map((each) => ({ ...one, ...each })) : [one]))} id=${(one) => `${one.queue} ${one.tenant}`} columns=${[
      ["queue", (one) => one.queue],
      ["tenant", (one) => one.tenant ?? "–"],
      ["running", (one) => number(one.running), "number"],
      ["waiting", (one) => number(one.waiting), "number"],
      ["rows", (one) => number(one.capacity), "number"],
      ["share", (one) => html`<${Meter} share=${one.share} />`, "number"],
    ]} /><//>
    <${Panel} title="Deployments"><${Table} label="Deployments" rows=${frame.deployments} id=${(one) => `${one.model} ${one.name}`}
        columns=${[
      ["model", (one) => one.model],
      ["deployment", (one) => one.name],
      ["pool", (one) => one.pool],
      ["weight", (one) => number(one.weight), "number"],
      ["share", (one) => html`<${Meter} share=${one.share} />`, "number"],
    ]} /><//>`;
}

/** The stages so far as one bar, whose length is the request's age. */
function Stages({ request, longest }) {
  const stages = Object.entries(request.stages_ms).filter(([, ms]) => ms > 0);
  const text = stages.map(([name, ms]) => `${name} ${seconds(ms / 1000)}`).join(", ");
  const width = `${Math.max((100 * request.duration_ms) / longest, 4)}%`;
  return html`
    <span class="stages" role="img" aria-label=${text} title=${text}>
      <span style=${{ width }}>${stages.map(([name, ms]) => html`<i class=${name.split(" ")[0]}
          style=${{ flexGrow: String(ms) }}></i>`)}</span>
    </span>`;
}
