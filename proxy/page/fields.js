/** Inputs for a body of the administration, and its values, by the schema that the API's document has of it. */
import { html, Field, Fragment, words, useState } from "./html.js";

/** [name, what it is, its schema without null]. */
const fieldsOf = (schemas, { properties }) =>
  Object.entries(properties).map(([name, given]) => {
    const own = { ...given, ...(given.anyOf?.[0] ?? {}) };
    const of = own.items?.$ref?.split("/").at(-1);
    if (own.$ref) return [name, "limits", own];
    if (own.type === "object") return [name, "models", own];
    if (of) return [name, "choices", { ...own, choices: schemas[of].enum }];
    if (own.type === "array") return [name, "list", own];
    return [name, own.format ?? own.type, own];
  });
export const isNumber = (kind) => kind === "integer" || kind === "number";
/** The numbers and switches of a body, for the columns of a table. */
export const plainOf = (schemas, body) => fieldsOf(schemas, body).filter(([, kind]) => isNumber(kind) || kind === "boolean");

/** values: of the record that is changed. texts: suggestions by field. */
export function Inputs({ schemas, body, values = {}, texts = {}, prefix = "" }) {
  return fieldsOf(schemas, body).map(([name, kind, field]) => {
    const { description: hint, minimum, maximum, maxLength, pattern } = field;
    const own = prefix + name,
      value = values[name];
    const isRequired = body.required?.includes(name);
    switch (kind) {
      case "boolean":
        return html`<label class="check" title=${hint}><input type="checkbox" name=${own} defaultChecked=${value ?? field.default} />${words(name)}</label>`;
      case "limits":
        return html`<${Limits} name=${name} prefix=${prefix} ...${{ schemas, values: value }} />`;
      case "models":
        return html`<${OfModels} name=${own} ...${{ schemas, values: value, models: texts.model ?? [] }} />`;
      case "choices":
        return html`<fieldset><legend>${words(name)}</legend>${field.choices.map(
          (each) => html`<label class="check"><input type="checkbox" name=${own} value=${each}
            defaultChecked=${(value ?? field.default ?? []).includes(each)} />${each}</label>`,
        )}</fieldset>`;
      case "list":
        return html`<${Field} label=${words(name)} hint=${`${hint} Separated by commas.`}><input name=${own} defaultValue=${(value ?? []).join(", ")} /><//>`;
      case "date-time":
        return html`<${Field} label=${`${words(name)} (UTC)`} hint=${hint}><input name=${own} type="datetime-local" defaultValue=${value?.slice(0, 16) ?? ""} /><//>`;
      case "string":
        return html`<${Field} label=${words(name)} hint=${hint}><input name=${own} ...${{ maxLength, pattern: pattern?.replaceAll("-]", "\\-]") }}
            required=${isRequired} defaultValue=${value ?? ""} list=${texts[name] && `of-${own}`} autocomplete="off" />${
              texts[name] && html`<datalist id=${`of-${own}`}>${texts[name].map((each) => html`<option value=${each} />`)}</datalist>`
            }<//>`;
      default:
        return html`<${Field} label=${words(name)} hint=${hint}><input name=${own} type="number" min=${minimum} max=${maximum} step="any"
            placeholder="none" defaultValue=${value ?? ""} /><//>`;
    }
  });
}

const Limits = ({ schemas, name, prefix, values }) => html`
  <details><summary>${words(name)}</summary><div class="pairs"><${Inputs} schemas=${schemas} body=${schemas.LimitsBody} values=${values}
      prefix=${prefix} /></div></details>`;

/** Limits of single models, which are added and removed here. */
function OfModels({ schemas, name, values = {}, models }) {
  const [shown, setShown] = useState(Object.keys(values));
  const add = ({ target }) => {
    if (target.value && !shown.includes(target.value)) setShown([...shown, target.value]);
    target.value = "";
  };
  return html`<details><summary>Limits of single models</summary>
    ${shown.map(
      (model) => html`<${Fragment} key=${model}>
        <input type="hidden" name=${name} value=${model} />
        <div class="row between"><b>${model}</b><button type="button" class="quiet small" aria-label=${`Remove the limits of ${model}`}
            onClick=${() => setShown(shown.filter((each) => each !== model))}>Remove</button></div>
        <div class="pairs"><${Inputs} schemas=${schemas} body=${schemas.LimitsBody} values=${values[model]} prefix=${`${model}/`} /></div>
      <//>`,
    )}
    <${Field} label="Add a model" hint="Its public name."><input list="all-models" autocomplete="off" onChange=${add} /><datalist id="all-models">${models.map((each) => html`<option value=${each} />`)}</datalist><//>
  </details>`;
}

/** The body that a form of these inputs says. values: of the record that is changed; models that it lost are null. */
export const entered = (form, schemas, body, values = {}, prefix = "") =>
  Object.fromEntries(
    fieldsOf(schemas, body).map(([name, kind]) => {
      const own = prefix + name,
        text = form.get(own);
      switch (kind) {
        case "boolean":
          return [name, form.has(own)];
        case "limits":
          return [name, entered(form, schemas, schemas.LimitsBody, {}, prefix)];
        case "models": {
          const limits = form.getAll(own).map((model) => [model, entered(form, schemas, schemas.LimitsBody, {}, `${model}/`)]);
          return [
            name,
            { ...Object.fromEntries(Object.keys(values[name] ?? {}).map((each) => [each, null])), ...Object.fromEntries(limits) },
          ];
        }
        case "choices":
          return [name, form.getAll(own)];
        case "list":
          return [
            name,
            text
              .split(",")
              .map((each) => each.trim())
              .filter(Boolean),
          ];
        case "date-time":
          if (text === values[name]?.slice(0, 16)) return [name, values[name]]; // has its seconds
          return [name, text ? `${text}:00Z` : null];
        case "string":
          return [name, text.trim()];
        default:
          return [name, text ? Number(text) : null];
      }
    }),
  );
