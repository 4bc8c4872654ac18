/** Messages of a conversation. All text is text nodes: nothing that a model or a user writes becomes HTML. */
import { html, CopyButton, ErrorBox, number, seconds, useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { Markdown } from "./markdown.js";

const BLOCK = 4000; // characters of one block: the browser lays out anew the last one only

/** Renders again when the answer has changed, once a frame at most. */
function useAnswer(answer) {
  const [, setCount] = useState(0);
  useEffect(() => answer.listen?.(() => setCount((count) => count + 1)), [answer]);
}

/** Text that grows: each frame appends what has come to the last block. */
function Growing({ answer, part }) {
  const element = useRef();
  const state = useRef({ shown: 0, block: null });
  useLayoutEffect(() => {
    const show = () => {
      const text = answer[part];
      let { shown, block } = state.current;
      for (let end; shown < text.length; shown = end) {
        block ??= { element: element.current.appendChild(document.createElement("span")), length: 0 };
        const cut = text.indexOf("\n", shown + Math.max(BLOCK - block.length, 0));
        end = cut < 0 ? text.length : cut + 1;
        block.element.append(text.slice(shown, cut < 0 ? end : cut)); // the block itself ends the line
        block.length += end - shown;
        if (cut >= 0) block = null;
      }
      state.current = { shown, block };
    };
    show();
    return answer.listen?.(show);
  }, [answer]);
  return html`<div class="text" ref=${element}></div>`;
}

/** Tokens tinted by how unlikely they were. A pointer or the arrow keys show the alternatives. */
function Tokens({ tokens }) {
  const [active, setActive] = useState(null);
  const onKeyDown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    setActive((now) => Math.min(Math.max((now ?? -1) + step, 0), tokens.length - 1));
  };
  const of = (event) => event.target.dataset?.token;
  const chosen = active === null ? null : tokens[active];
  return html`
    <div class="tokens" tabindex="0" role="group" aria-label="Tokens by probability. Left and right show alternatives."
        onKeyDown=${onKeyDown} onBlur=${() => setActive(null)} onMouseOver=${(e) => of(e) && setActive(+of(e))} onMouseLeave=${() => setActive(null)}>
      <div class="text">${tokens.map(
        (token, place) => html`<span data-token=${place}
          class=${`t${level(token.logprob)}${place === active ? " active" : ""}`}>${token.token}</span>`,
      )}</div>
      <div class="alternatives" role="status">${
        chosen
          ? html`
        <b>${JSON.stringify(chosen.token)}</b> <span>${chance(chosen.logprob)}</span>
        ${chosen.top_logprobs.filter((each) => each.token !== chosen.token).map((each) => html`<i>${JSON.stringify(each.token)} ${chance(each.logprob)}</i>`)}`
          : html`<i>Point at a token for its alternatives.</i>`
      }</div>
    </div>`;
}

const chance = (logprob) => `${(Math.exp(logprob) * 100).toFixed(1)} %`;
/** 0: all but certain, to 4: below one in ten. */
const level = (logprob) => [0.9, 0.6, 0.3, 0.1].filter((share) => Math.exp(logprob) < share).length;

function Call({ call, result, onResult }) {
  const [text, setText] = useState("");
  return html`
    <div class="call">
      <p><span class="tag">tool call</span> <b>${call.name}</b></p>
      <pre tabindex="0" aria-label=${`Arguments of ${call.name}`}>${pretty(call.arguments)}</pre>
      ${
        onResult &&
        result === undefined &&
        html`
        <form class="row" onSubmit=${(event) => {
          event.preventDefault();
          onResult(call, text);
        }}>
          <input aria-label=${`Result of ${call.name}`} placeholder="Its result, as your program would send it" value=${text}
              onInput=${(e) => setText(e.target.value)} />
          <button>Send result</button>
        </form>`
      }
    </div>`;
}

const pretty = (text) => {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
};

function Figures({ timings, finish, isRunning }) {
  const words = [
    timings.ttftS != null && ["TTFT", seconds(timings.ttftS)],
    timings.perS != null && ["speed", `${number(timings.perS)} tok/s`],
    timings.tokens != null && ["tokens", timings.tokens],
    !isRunning && finish && ["end", finish],
  ].filter(Boolean);
  return html`<dl class="figures">${words.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** answer: a running Answer, or a message of the history. onAgain: asks for another version. */
export function AnswerView({ answer, results, versions, onResult, onAgain }) {
  useAnswer(answer);
  const { isRunning = false, reasoning, calls, tokens, error, finish, timings } = answer;
  const text = answer.text ?? answer.content;
  return html`
    <article class="message assistant" aria-busy=${isRunning}>
      <h2>Assistant ${isRunning && html`<span class="pulse" role="img" aria-label="is writing"></span>`}</h2>
      ${
        reasoning &&
        html`<details class="reasoning" open=${isRunning}><summary>Reasoning</summary><${Growing} answer=${answer}
          part="reasoning" /></details>`
      }
      ${tokens?.length ? html`<${Tokens} tokens=${tokens} />` : html`<${Markdown} text=${text} isRunning=${isRunning} />`}
      ${calls?.map((call) => html`<${Call} call=${call} result=${results?.get(call.id)} onResult=${isRunning ? null : onResult} />`)}
      <${ErrorBox} error=${error}>${onAgain && html`<button type="button" onClick=${onAgain}>Try again</button>`}<//>
      ${timings && html`<${Figures} timings=${timings} finish=${finish} isRunning=${isRunning} />`}
      ${
        !isRunning &&
        html`<div class="row actions">${versions}${text && html`<${CopyButton} text=${text} />`}${
          onAgain && html`<button type="button" class="quiet" onClick=${onAgain}>Regenerate</button>`
        }</div>`
      }
    </article>`;
}

export function GivenView({ message, versions, onEdit }) {
  const name = { user: "You", tool: `Result of ${message.name}`, system: "System" }[message.role];
  const [draft, setDraft] = useState(null);
  const save = (event) => {
    event.preventDefault();
    if (draft.trim()) onEdit(draft);
    setDraft(null);
  };
  if (draft !== null && onEdit)
    return html`
      <form class="message edit" onSubmit=${save}>
        <textarea name="edit" aria-label="Your message" rows="3" value=${draft} ref=${(area) => area !== document.activeElement && area?.focus()}
            onInput=${(e) => setDraft(e.target.value)} onKeyDown=${(event) => event.key === "Escape" && setDraft(null)}></textarea>
        <div class="row end"><button type="button" class="quiet" onClick=${() => setDraft(null)}>Cancel</button><button class="primary">Send</button></div>
      </form>`;
  return html`
    <article class=${`message ${message.role}`}>
      <h2>${name}</h2>
      ${message.image && html`<img src=${message.image} alt="The image that you sent" />`}
      <div class="text">${message.content}</div>
      <div class="row actions">${versions}<${CopyButton} text=${message.content} />${
        onEdit && html`<button type="button" class="quiet" onClick=${() => setDraft(message.content)}>Edit</button>`
      }</div>
    </article>`;
}
