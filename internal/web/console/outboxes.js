// The outboxes of a slot that has several. Their events may have the same ids, so a row, and what is done to it, names
// its outbox: by schema and table, as the API does.

import { el, toast } from "./dom.js";
import { get } from "./api.js";
import { word } from "./copy.js";

let several; // a promise: whether the relay has outbox.tables; undefined before it is asked for

function hasSeveral() {
  several = several || get("/api/v1/config").then(({ items }) => items.some((s) => s.key === "outbox.tables" && s.value !== ""))
    .catch(() => { several = undefined; return false; }); // the next page asks again
  return several;
}

// keyOf tells the items of a list apart.
export const keyOf = (item) => (item.outbox ? JSON.stringify([item.outbox, item.id]) : item.id);

// flag names an outbox in a command.
export const flag = (outbox) => (outbox ? " --outbox=" + word(outbox) : "");

// Outbox is the field that chooses one; it is not there where the slot has one only.
export class Outbox {
  // Changed is called when another one is chosen; chosen is the one that the page's address names.
  constructor(chosen, changed) {
    this.changed = changed;
    this.known = new Set();
    this.names = el("datalist", { id: "outboxes" });
    this.input = el("input", { type: "search", id: "filter-outbox", list: "outboxes", placeholder: "outbox", "aria-label": "outbox", autocomplete: "off", spellcheck: false,
      value: chosen || "", hidden: !chosen, onchange: () => changed() });
    this.fields = [this.input, this.names];
    hasSeveral().then((are) => { if (are) this.input.hidden = false; });
  }

  value() {
    return this.input.value.trim();
  }

  // take notes the outboxes of items, and offers them.
  take(items) {
    for (const { outbox } of items) {
      if (!outbox) continue;
      this.input.hidden = false;
      if (this.known.has(outbox)) continue;
      this.known.add(outbox);
      this.names.append(el("option", { value: outbox }));
    }
  }

  // ready reports whether an action on all that match knows its outbox; if not, it has said so.
  ready() {
    if (this.input.hidden || this.value() !== "") return true;
    toast("Choose an outbox first: events of several may have the same ids.", "bad");
    this.input.focus();
    return false;
  }

  // cell is the cell of the column, in lists of several outboxes; a press shows those of its outbox.
  cell(item) {
    if (this.known.size === 0) return null;
    return el("td", {}, el("button", { type: "button", class: "link", "data-key": "outbox of " + keyOf(item), "aria-label": "only outbox " + item.outbox, onclick: () => {
      this.input.value = item.outbox;
      this.changed();
    } }, el("bdi", {}, item.outbox)));
  }

  head() {
    return this.known.size === 0 ? [] : [{ text: "outbox" }];
  }
}
