// Buttons that copy, and the commands that do what the page does.

import { el, toast } from "./dom.js";

// old copies where the browser has no clipboard for pages, which is without TLS on an address that is not this machine's.
function old(text) {
  const field = el("textarea", { value: text, readOnly: true, class: "unseen", "aria-hidden": "true" });
  const from = document.activeElement;
  (document.querySelector("dialog[open]:last-of-type") || document.body).append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  if (from) from.focus({ preventScroll: true });
  if (!done) throw new Error("the browser refused");
}

// copy is a button for a text; what says which one it is.
export function copy(text, what) {
  const button = el("button", {
    type: "button", class: "copy", "aria-label": "Copy " + what, title: "Copy " + what, "data-key": "copy " + what + " " + text, "data-copy": text,
    onclick: async () => {
      try {
        if (navigator.clipboard) await navigator.clipboard.writeText(text);
        else old(text);
        button.dataset.done = "yes";
        toast("Copied: " + what);
        setTimeout(() => { delete button.dataset.done; }, 2000);
      } catch (error) {
        toast("Not copied: " + error.message, "bad");
      }
    },
  });
  return button;
}

// command is a line for a shell with a button that copies it.
export function command(line, what) {
  return el("div", { class: "command" }, el("code", { class: "code" }, line), copy(line, what));
}

// word is a text as one word of a shell. What cannot be seen is written by its number: pasted as it is it could act on
// the terminal.
export function word(text) {
  if (/\p{C}/u.test(text)) {
    return "$'" + [...text].map((c) => {
      if (c === "'" || c === "\\") return "\\" + c;
      if (!/\p{C}/u.test(c)) return c;
      const n = c.codePointAt(0);
      return n > 0xffff ? "\\U" + n.toString(16).padStart(8, "0") : "\\u" + n.toString(16).padStart(4, "0");
    }).join("") + "'";
  }
  return /^[\w@%+=:,./-]+$/.test(text) ? text : "'" + text.replaceAll("'", "'\\''") + "'";
}

const flags = { key: "--key", type: "--type", class: "--class", code: "--code", topic: "--topic", aggregate: "--aggregate", position: "--position", older_than: "--older-than", newer_than: "--newer-than" };

// chosen is a command with what a filter, or ids, choose.
export function chosen(line, filter) {
  const words = Object.keys(flags).filter((name) => filter[name]).map((name) => flags[name] + "=" + word(filter[name]));
  const ids = (filter.ids || []).map(word);
  if (ids.some((id) => id.startsWith("-"))) ids.unshift("--");
  return [line, ...(words.length + ids.length ? [...words, ...ids] : ["--all"])].join(" ");
}
