/** Markdown as elements: marked reads it, and nothing that a model writes becomes HTML. It loads nothing. */
import { html, CopyButton, useEffect, useMemo, useRef, useState } from "./html.js";
import { Lexer } from "./vendor/marked.js";

const WINDOW = 8000; // characters that are read at once; a longer table or list is cut at a line
const PARAGRAPH = 4000; // a longer paragraph is cut at a line: the browser lays out anew the last part only
const MOST_MARKS = 250; // of emphasis in one paragraph, for which the library's time grows with the square
const REST = 5; // times as long as the last reading took, until the next one
const FENCE = /^(?:(`{3,})[^`\n]*|(~{3,})[^\n]*)$/m;
// lists and quotes in one another, which the library reads once a level
const DEEP = /^(?:[ \t]{32,}(?:[-+*]|\d{1,9}[.)])[ \t]|(?:[ \t]*(?:>|(?:[-+*]|\d{1,9}[.)])[ \t])){9,})/m;

const plain = (raw) => ({ type: "plain", raw, text: raw.trim() });

/** The library's tree of a text without a fence at its margin. What it could not read in time is plain text. */
function lex(text) {
  const found = [];
  for (let rest = text; rest; ) {
    const deep = DEEP.exec(rest)?.index ?? rest.length;
    const gap = /\n\n(?=\S)/.exec(rest.slice(deep));
    const end = gap ? deep + gap.index + 2 : rest.length;
    found.push(...parsed(rest.slice(0, deep)));
    if (end > deep) found.push(plain(rest.slice(deep, end)));
    rest = rest.slice(end);
  }
  return found;
}

function parsed(text) {
  if (!text) return [];
  const lexer = new Lexer({ gfm: true });
  const blocks = lexer.blockTokens(text, []);
  for (const { src, tokens } of lexer.inlineQueue) {
    if (src.split(/[*_~]/, MOST_MARKS).length < MOST_MARKS) lexer.inlineTokens(src, tokens);
    else tokens.push({ type: "text", raw: src, text: src });
  }
  return blocks;
}

/** What is read next: a block of code at the margin to its end, or what stands before one. */
function segment(text) {
  const fence = FENCE.exec(text);
  if (fence?.index === 0) {
    const mark = fence[1] ?? fence[2];
    const close = new RegExp(`\\n {0,3}${mark[0]}{${Math.min(mark.length, 99)},}[ \\t]*(?:\\n|$)`).exec(text);
    return { part: close ? text.slice(0, close.index + close[0].length) : text, isCode: true };
  }
  const most = text.slice(0, fence?.index);
  if (most.length <= WINDOW) return { part: most };
  return { part: most.slice(0, most.lastIndexOf("\n", WINDOW) + 1 || WINDOW), isCut: true };
}

/** A text that still grows, without what its next characters may turn into something else, and with what is open closed. */
function settled(text) {
  const lines = text.split("\n");
  let bars = 0;
  while (
    lines
      .at(-1 - bars)
      ?.trimStart()
      .startsWith("|")
  )
    bars++;
  if (bars && bars < 3) return lines.slice(0, -bars).join("\n"); // the head of a table
  let line = lines.pop();
  if (/^[-+*=_#|:`~\d.)>\s]*$/.test(line)) return lines.join("\n");
  line = line.replace(/!?\[[^\][\n]{0,200}(?:\](?:\([^()\s]{0,2000})?)?$/, "").replace(/[*_`~]+$/, "");
  for (const mark of ["`", "**", "~~"]) if (line.split(mark).length % 2 === 0) line += mark;
  return [...lines, line].join("\n");
}

/** The blocks of a text that grows: those that cannot change any more are read once. */
class Blocks {
  constructor() {
    Object.assign(this, { fixed: [], open: [], length: 0, readAt: -Infinity, tookMs: 0 });
  }

  get all() {
    return [...this.fixed, ...this.open];
  }

  get restMs() {
    return this.readAt + REST * this.tookMs - performance.now();
  }

  read(given, isRunning) {
    const begin = performance.now();
    const text = given.replaceAll("\r", "");
    this.open = [];
    while (this.length < text.length) {
      const rest = text.slice(this.length);
      const { part, isCode, isCut } = segment(rest);
      const isOpen = isRunning && part.length === rest.length;
      if (!isOpen) {
        this._fix(isCode ? parsed(part) : lex(part), part.length, isCut);
        continue;
      }
      if (isCode && !part.includes("\n")) break; // its language is not whole
      const tokens = isCode ? parsed(part) : lex(settled(part));
      for (const token of tokens.splice(0, Math.max(tokens.length - 3, 0))) this._fix([token], token.raw.length); // one may be a space
      const [{ type, raw } = {}] = tokens;
      const cut = type === "paragraph" && raw.length > PARAGRAPH ? raw.lastIndexOf("\n") + 1 : 0;
      if (cut && tokens.length === 1) this._fix(parsed(raw.slice(0, cut)), cut, true);
      else {
        this.open = shown(tokens);
        break;
      }
    }
    this.readAt = performance.now();
    this.tookMs = this.readAt - begin;
  }

  _fix(tokens, length, isCut = false) {
    this.fixed.push(...shown(tokens));
    if (isCut && this.fixed.length) this.fixed.at(-1).isCut = true;
    this.length += length;
  }
}

const shown = (tokens) => tokens.filter((each) => each.type !== "space" && each.type !== "def");

export function Markdown({ text, isRunning }) {
  const blocks = useRef();
  const [, again] = useState(0);
  blocks.current ??= new Blocks();
  const waitMs = isRunning ? blocks.current.restMs : 0;
  if (waitMs <= 0) blocks.current.read(text, isRunning);
  useEffect(() => {
    if (waitMs <= 0) return undefined;
    const timer = setTimeout(() => again((count) => count + 1), waitMs);
    return () => clearTimeout(timer);
  });
  return html`<div class="text md">${blocks.current.all.map(
    (token, place, all) => html`<${Block} key=${place} token=${token} isNext=${Boolean(all[place - 1]?.isCut)} />`,
  )}</div>`;
}

/** isNext: continues the paragraph before. */
const Block = ({ token, isNext }) => useMemo(() => block(token, isNext), [token.raw, token.isCut, isNext]);

function block(token, isNext) {
  switch (token.type) {
    case "heading":
      return html`<h3 class=${`h${token.depth}`}>${inline(token.tokens)}</h3>`;
    case "paragraph":
      if (!token.isCut && !isNext) return html`<p>${inline(token.tokens)}</p>`;
      return html`<div class=${isNext && "next"}>${inline(token.tokens, true)}</div>`;
    case "code":
      return html`<${Code} token=${token} />`;
    case "list":
      return html`<${token.ordered ? "ol" : "ul"} start=${token.ordered ? token.start : undefined}>${token.items.map(
        (item) => html`<li class=${item.task ? "task" : undefined}>${item.tokens.map(block)}</li>`,
      )}<//>`;
    case "blockquote":
      return html`<blockquote>${token.tokens.map(block)}</blockquote>`;
    case "table":
      return html`<div class="scroll" role="region" aria-label="Table" tabindex="0"><table>
        <thead><tr>${token.header.map((cell) => html`<th scope="col" class=${cell.align}>${inline(cell.tokens)}</th>`)}</tr></thead>
        <tbody>${token.rows.map((row) => html`<tr>${row.map((cell) => html`<td class=${cell.align}>${inline(cell.tokens)}</td>`)}</tr>`)}</tbody>
      </table></div>`;
    case "hr":
      return html`<hr />`;
    case "space":
    case "def":
      return null;
    case "text":
    case "checkbox":
      return inline([token]);
    default: // html, and what was not read
      return html`<div>${token.text.trimEnd()}</div>`;
  }
}

const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', nbsp: "\u00a0", "#39": "'" };
const text = (raw) => raw.replace(/&(amp|lt|gt|quot|nbsp|#39);/g, (_, name) => ENTITIES[name]);

/** isCut: the block that follows ends the line. */
const inline = (tokens, isCut) =>
  tokens.map((token, place) => {
    switch (token.type) {
      case "strong":
      case "em":
      case "del":
        return html`<${token.type}>${inline(token.tokens)}<//>`;
      case "codespan":
        return html`<code>${token.text}</code>`;
      case "br":
        return html`<br />`;
      case "checkbox":
        return token.checked ? "☑ " : "☐ ";
      case "link":
      case "image": // named, never loaded
        return html`<${Link} href=${token.href}>${token.type === "image" ? `Image: ${token.text || token.href}` : inline(token.tokens)}<//>`;
      case "text":
        if (token.tokens) return inline(token.tokens, isCut);
        return isCut && place === tokens.length - 1 ? text(token.text).replace(/\n$/, "") : text(token.text);
      default: // escaped characters, and HTML as text
        return token.text ?? token.raw;
    }
  });

/** Other schemes and paths of this server are text. */
function Link({ href, children }) {
  const isWeb = /^(?:https?:\/\/|mailto:)/i.test(href) && URL.canParse(href);
  return isWeb ? html`<a href=${href} target="_blank" rel="noopener noreferrer nofollow">${children}</a>` : html`<span>${children}</span>`;
}

function Code({ token }) {
  const name = token.lang?.split(/\s/, 1)[0] || "text";
  const parts = useMemo(() => lines(token.text), [token.text]);
  return html`
    <figure class="code">
      <figcaption class="row"><span>${name}</span><${CopyButton} text=${token.text} label="Copy code" /></figcaption>
      <pre tabindex="0" aria-label=${`Code: ${name}`}><code>${parts.map((part) => html`<span>${part}</span>`)}</code></pre>
    </figure>`;
}

/** Parts that end with a line, of which only the last one changes while the code grows. */
function lines(code) {
  const found = [];
  for (let at = 0, end; at < code.length; at = end) {
    const cut = code.indexOf("\n", at + PARAGRAPH);
    end = cut < 0 ? code.length : cut + 1;
    found.push(code.slice(at, end));
  }
  return found;
}
