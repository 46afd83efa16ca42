"use strict";
// Untrusted text on the page: control and bidirectional characters are made visible, ANSI colours become CSS
// classes, long lines and long texts are folded. Text becomes text nodes only, never markup.

const FOLD_LINES = 200;
const FOLD_COLUMNS = 2000;
// Amounts by which a folded text is extended at a time.
const MORE_LINES = 10000;
const MORE_COLUMNS = 20000;
// Control characters except newline and tab, and characters that are invisible or change the direction.
const UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]|[\u{e0000}-\u{e007f}]/gu;

function visible(ch) {
  const code = ch.codePointAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  if (code === 0x7f) return "␡";
  return "⟨U+" + code.toString(16).toUpperCase().padStart(4, "0") + "⟩";
}

function safe(text) {
  return String(text).replace(UNSAFE, visible);
}

// An element with attributes and children; texts are made safe.
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : safe(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== "")
    .map((child) => (child instanceof Node ? child : safe(child))));
  return element;
}

const SGR = /\u001b\[([0-9;:]*)m/g;
// Other escape sequences of terminals, which are removed because the page has no cursor.
const ESCAPES = /\u001b(?:\[[0-?]*[ -/]*[@-ln-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[()][0-9A-Za-z]|[=>78cDEHM])/g;

function nextStyle(style, codes) {
  const list = codes === "" ? [0] : codes.split(/[;:]/).map(Number);
  let now = { ...style };
  for (let at = 0; at < list.length; at += 1) {
    const code = list[at];
    if (code === 0) now = {};
    else if (code === 1) now.bold = true;
    else if (code === 2) now.dim = true;
    else if (code === 3) now.italic = true;
    else if (code === 4) now.underline = true;
    else if (code === 22) { delete now.bold; delete now.dim; }
    else if (code === 23) delete now.italic;
    else if (code === 24) delete now.underline;
    else if (code >= 30 && code <= 37) now.ink = code - 30;
    else if (code >= 90 && code <= 97) now.ink = code - 90 + 8;
    else if (code === 39) delete now.ink;
    else if (code >= 40 && code <= 47) now.paper = code - 40;
    else if (code >= 100 && code <= 107) now.paper = code - 100 + 8;
    else if (code === 49) delete now.paper;
    else if (code === 38 || code === 48) {
      // 256 colours: only the first sixteen are supported; others and true colours keep the default.
      if (list[at + 1] === 5) {
        if (list[at + 2] < 16) now[code === 38 ? "ink" : "paper"] = list[at + 2];
        at += 2;
      } else if (list[at + 1] === 2) at += 4;
    }
  }
  return now;
}

function classesOf(style) {
  const names = ["bold", "dim", "italic", "underline"].filter((name) => style[name]);
  if (style.ink !== undefined) names.push("ink" + style.ink);
  if (style.paper !== undefined) names.push("paper" + style.paper);
  return names.join(" ");
}

// Append text to an element, with the matches of the search marked.
function appendText(parent, text, query) {
  const plain = safe(text);
  if (!query) {
    parent.append(plain);
    return;
  }
  const low = plain.toLowerCase();
  let at = 0;
  for (let found = low.length === plain.length ? low.indexOf(query) : -1; found >= 0; found = low.indexOf(query, at)) {
    parent.append(plain.slice(at, found), make("mark", {}, plain.slice(found, found + query.length)));
    at = found + query.length;
  }
  parent.append(plain.slice(at));
}

function appendLine(parent, line, style, query) {
  let at = 0;
  const put = (text) => {
    if (!text) return;
    const names = classesOf(style);
    if (!names) appendText(parent, text, query);
    else {
      const span = make("span", { class: names });
      appendText(span, text, query);
      parent.append(span);
    }
  };
  for (const match of line.matchAll(SGR)) {
    put(line.slice(at, match.index));
    style = nextStyle(style, match[1]);
    at = match.index + match[0].length;
  }
  put(line.slice(at));
  return style;
}

// A block with the output of a program. kind: "" or "diff".
function textBlock(text, query, kind) {
  const block = make("pre", { class: "text " + (kind || ""), tabindex: "0" });
  const lines = String(text).replace(/\r\n/g, "\n").replace(ESCAPES, "").replace(/\n$/, "").split("\n");
  let at = 0;
  let style = {};
  const add = (count) => {
    const fragment = document.createDocumentFragment();
    for (const line of lines.slice(at, at + count)) {
      if (at) fragment.append("\n");
      at += 1;
      const shown = line.slice(line.lastIndexOf("\r", line.length - 2) + 1).replace(/\r$/, "");
      let holder = fragment;
      if (kind === "diff") {
        const sort = /^(\+\+\+|---|diff |index )/.test(line) ? "file" : { "+": "added", "-": "removed", "@": "hunk" }[line[0]];
        holder = make("span", { class: sort });
      }
      const end = shown.length > FOLD_COLUMNS ? cutIndex(shown, FOLD_COLUMNS) : shown.length;
      style = appendLine(holder, shown.slice(0, end), style, query);
      if (end < shown.length) holder.append(longRest(shown, end, style, query));
      if (holder !== fragment) fragment.append(holder);
    }
    block.append(fragment);
  };
  add(FOLD_LINES);
  if (at === lines.length) return block;
  const label = () => lines.length - at > MORE_LINES ? `Show ${MORE_LINES.toLocaleString("en")} more of ${lines.length.toLocaleString("en")} lines`
    : `Show all ${lines.length.toLocaleString("en")} lines`;
  const more = make("button", { type: "button", class: "more" }, label());
  more.addEventListener("click", () => {
    add(MORE_LINES);
    if (at < lines.length) { more.textContent = label(); return; }
    more.remove();
    block.focus();
  });
  return make("div", {}, block, more);
}

// The index at which to cut a line, at most `limit`: not inside an escape sequence or a surrogate pair.
function cutIndex(line, limit) {
  const escape = line.lastIndexOf("\u001b", limit - 1);
  if (escape > limit - 32 && !/^\u001b\[[0-9;:]*m/.test(line.slice(escape, limit))) return escape;
  return /[\ud800-\udbff]/.test(line[limit - 1]) ? limit - 1 : limit;
}

// A button that shows the next part of a long line: browsers need minutes to lay out a line of a million characters.
function longRest(line, from, style, query) {
  const button = make("button", { type: "button", class: "more inline" }, `… ${(line.length - from).toLocaleString("en")} more characters`);
  button.addEventListener("click", () => {
    const part = make("span", {});
    const end = line.length - from > MORE_COLUMNS ? cutIndex(line, from + MORE_COLUMNS) : line.length;
    const next = appendLine(part, line.slice(from, end), style, query);
    if (end < line.length) part.append(longRest(line, end, next, query));
    button.replaceWith(part);
  });
  return button;
}

// The status of a run with a colour; a run that can be resumed has no colour.
function statusBadge(status) {
  const tones = { success: "good", running: "good", failure: "bad", limit: "bad", error: "error", crashed: "error" };
  return make("span", { class: "badge " + (tones[status] || "") }, status);
}

// A value in one line of at most `limit` characters.
function brief(value, limit) {
  let text = typeof value === "string" ? value : JSON.stringify(value);
  if (text === undefined) text = "";
  const first = text.split("\n", 1)[0];
  const cut = first.length > limit ? first.slice(0, limit - 1) + "…" : first;
  return cut.replace(ESCAPES, "").replace(SGR, "") + (first.length < text.trimEnd().length && cut === first ? " …" : "");
}
