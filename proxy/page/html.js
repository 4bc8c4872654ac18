/** preact and htm, as the other modules use them, and what all views show alike. */
import { h } from "./vendor/preact.js";
import { useEffect, useRef, useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";

export { render, Fragment } from "./vendor/preact.js";
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/hooks.js";
export const html = htm.bind(h);

/** An error in full: message, parameter, code and the id under which the log has it. */
export function ErrorBox({ error, children }) {
  if (!error) return null;
  const facts = [
    ["status", error.status],
    ["code", error.code],
    ["param", error.param],
    ["request", error.requestId],
  ];
  return html`
    <div class="error" role="alert">
      <p>${error.message}</p>
      <dl>${facts
        .filter(([, value]) => value)
        .map(
          ([name, value]) => html`
        <div><dt>${name}</dt><dd>${value}</dd></div>`,
        )}</dl>
      ${children}
    </div>`;
}

/** A dialog with a form; `save` gets the form's values, and closes it unless it throws. Without an action it only shows something.
 *  The focus goes back to where it was. */
export function Dialog({ title, action, save, close, isWide, children }) {
  const dialog = useRef();
  const [error, setError] = useState(null);
  useEffect(() => {
    const opener = document.activeElement;
    dialog.current.showModal();
    return () => setTimeout(() => (opener.isConnected && opener !== document.body ? opener : document.querySelector("main")).focus());
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    try {
      await save(new FormData(event.target));
      dialog.current?.close();
    } catch (problem) {
      setError(problem);
    }
  };
  return html`
    <dialog ref=${dialog} class=${isWide && "wide"} onClose=${close} aria-labelledby="dialog-title">
      <form onSubmit=${submit}>
        <h2 id="dialog-title">${title}</h2>
        ${children}
        <${ErrorBox} error=${error} />
        <div class="row end">
          <button type="button" class="quiet" onClick=${() => dialog.current.close()}>${action ? "Cancel" : "Close"}</button>
          ${action && html`<button class="primary">${action}</button>`}
        </div>
      </form>
    </dialog>`;
}

/** What a view needs before it can show anything. action: [label, what it does]. */
export function Notice({ title, action, children }) {
  return html`<section class="notice"><h2>${title}</h2><p>${children}</p>${
    action &&
    html`<button type="button" class="primary"
      onClick=${action[1]}>${action[0]}</button>`
  }</section>`;
}

export function Field({ label, hint, error, children }) {
  return html`
    <label class=${error ? "field wrong" : "field"}>
      <span>${label}</span>${children}
      ${error ? html`<small role="alert">${error}</small>` : hint && html`<small>${hint}</small>`}
    </label>`;
}

const PAGE = 25; // rows

/** columns: [heading, cell(row), "number" for right-aligned ones]. */
export function Table({ label, columns, rows, empty = "None.", id }) {
  const [first, setFirst] = useState(0);
  const begin = first < rows.length ? first : 0;
  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  return html`
    <div class="scroll" role="region" aria-label=${label} tabindex="0">
      <table>
        <thead><tr>${columns.map(([name, , kind]) => html`<th scope="col" class=${kind}>${name}</th>`)}</tr></thead>
        <tbody>${rows.slice(begin, begin + PAGE).map(
          (row) => html`
          <tr key=${id?.(row)}>${columns.map(([, cell, kind]) => html`<td class=${kind}>${cell(row)}</td>`)}</tr>`,
        )}
        </tbody>
      </table>
    </div>
    ${
      rows.length > PAGE &&
      html`<div class="row end pages"><span>${begin + 1}–${Math.min(begin + PAGE, rows.length)} of ${whole(rows.length)}</span>
        <button type="button" class="quiet small" aria-label=${`${label}: page before`} disabled=${!begin} onClick=${() => setFirst(begin - PAGE)}>‹</button>
        <button type="button" class="quiet small" aria-label=${`${label}: next page`} disabled=${begin + PAGE >= rows.length}
            onClick=${() => setFirst(begin + PAGE)}>›</button></div>`
    }`;
}

/** A part of a view with its heading, its button and its dialog. */
export function Section({ title, action, onAction, children }) {
  return html`<section class="panel wide"><div class="row between"><h2>${title}</h2>${
    action &&
    html`<button type="button"
      class="primary" onClick=${onAction}>${action}</button>`
  }</div>${children}</section>`;
}

/** mark: a share at which the bar has a line. */
export const Meter = ({ share, mark, text }) =>
  share == null
    ? "–"
    : html`<span class="meter"><span style=${{ width: `${Math.round(share * 100)}%` }}></span>${mark && html`<i style=${{ left: `${mark * 100}%` }}></i>`}</span>${text ?? percent(share)}`;

export function CopyButton({ text, label = "Copy" }) {
  const copy = async (event) => {
    const button = event.currentTarget;
    await navigator.clipboard.writeText(text).then(
      () => (button.textContent = "Copied"),
      () => (button.textContent = "Not allowed"),
    );
    setTimeout(() => (button.textContent = label), 1500);
  };
  return html`<button type="button" class="quiet" onClick=${copy}>${label}</button>`;
}

/** Two or three digits, and a unit from a thousand on. */
export function number(value) {
  if (value == null || Number.isNaN(value)) return "–";
  for (const unit of ["", "k", "M"]) {
    if (Math.abs(value) < 999.5)
      return (
        (value && Math.abs(value) < 0.995 ? value.toPrecision(1) : value.toFixed(Math.abs(value) < 99.95 ? 1 : 0)).replace(/\.0$/, "") +
        unit
      );
    value /= 1000;
  }
  return `${value.toFixed(1)}G`;
}

export function seconds(value) {
  if (value == null) return "–";
  if (value === 0) return "0";
  if (value < 1) return `${(value * 1000).toFixed(value < 0.0995 ? 1 : 0)} ms`;
  if (value < 99.5) return `${value.toFixed(1)} s`;
  const [unit, name] = [
    [60, "min"],
    [3600, "h"],
    [86_400, "days"],
  ].findLast(([each], place) => !place || value >= 2 * each);
  return `${Math.round(value / unit)} ${name}`;
}

export const percent = (share) => (share == null ? "–" : `${Math.round(share * 100)} %`);
export const whole = (count) => count.toLocaleString("en");
export const day = (date) => date.toISOString().slice(0, 10);
export const moment = (text) => (text ? text.slice(0, 16).replace("T", " ") : "–");
export const words = (name) => name.replaceAll("_", " ");
