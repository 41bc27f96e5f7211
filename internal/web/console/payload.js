// What a message carries, as it is shown: as the text that it is. A number that a browser has read loses digits.

import { el } from "./dom.js";

const deepest = 32; // levels: what is deeper stands no further to the right

// indented breaks JSON that the relay has found valid into lines. Texts and numbers are copied, never read.
export function indented(json) {
  let depth = 0;
  let out = "";
  let last = "";
  const line = () => { out += "\n" + "  ".repeat(Math.min(depth, deepest)); };
  for (let i = 0; i < json.length; i++) {
    const c = json[i];
    if (" \t\r\n".includes(c)) continue;
    const opened = last === "{" || last === "[";
    const closes = c === "}" || c === "]";
    if (closes) depth--;
    if (last === "," || opened !== closes) line();
    out += c === ":" ? ": " : c;
    if (c === "{" || c === "[") depth++;
    if (c === '"') {
      const from = i + 1;
      for (i = from; i < json.length && json[i] !== '"'; i++) if (json[i] === "\\") i++;
      out += json.slice(from, i + 1);
    }
    last = c;
  }
  return out;
}

// text is what one of the payloads of an answer to payload=text is shown as: undefined for a tombstone, and base64 for
// what is no text.
export function text(item, name = "payload") {
  if (item[name + "_encoding"] === "null") return undefined;
  const own = item[name + "_text"];
  if (own === undefined) return typeof item[name] === "string" ? item[name] : JSON.stringify(item[name]);
  return item[name + "_encoding"] === "json" ? indented(own) : own;
}

// payload is an element that shows the payload of an answer to payload=text.
export function payload(item) {
  const shown = text(item);
  if (shown === undefined) return el("p", { class: "soft" }, "None: a tombstone.");
  return el("pre", { class: "code", tabIndex: 0, id: "payload" }, shown);
}
