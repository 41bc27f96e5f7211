// What of a list is chosen for an action: one by one, all that is shown, or all that the filter matches. What matches is
// counted before, and the action is bound to that count: what comes meanwhile is not meant.

import { el, fill, toast } from "./dom.js";
import { count } from "./format.js";
import { get, parameters } from "./api.js";
import { ask, post } from "./dialog.js";
import { chosen as commandOf, command } from "./copy.js";

const things = (n, thing) => count(n) + " " + thing + (n === 1 ? "" : "s");

export class Choice {
  // Actions are {kind, verb, path, line, thing, one, class, text, many, none}, and where more is to be said {counted,
  // form}: the kind that is counted, and what makes the fields and sends what they hold; filter gives what the list is filtered by; after is
  // called with the number that was asked for and the answer. More, where it is given, is what an action says beside
  // what is chosen, and flags is the same for its command; counts is where matches are counted. More is asked once, when
  // an action begins: what the page shows by the time somebody confirms is not what was counted.
  constructor({ actions, filter, after, counts = () => "/api/v1/count?", more = () => ({}), flags = () => "" }) {
    Object.assign(this, { actions, filter, after, counts, more, flags });
    this.ids = new Set();
    this.shown = [];
    this.all = el("input", { type: "checkbox", id: "choose-all", "data-key": "choose all", onchange: () => this.takeAll() });
    this.label = el("span", {});
    this.some = actions.map((a) => el("button", { type: "button", class: a.class, "data-key": a.kind + " chosen", onclick: () => this.run(a, [...this.ids]) }));
    this.every = actions.map((a) => el("button", { type: "button", "data-key": a.kind + " matching", onclick: () => this.runMatching(a) }, a.verb + " all that match…"));
    this.node = el("div", { class: "bulk", role: "group", "aria-label": "Actions", hidden: true },
      el("label", { class: "check", for: "choose-all" }, this.all, this.label), this.some, el("span", { class: "grow" }), this.every);
    this.tell();
  }

  // tick is the cell with the box of an item.
  tick(item, name) {
    return el("td", { class: "tick" }, el("input", {
      type: "checkbox", "aria-label": "choose " + name, "data-key": "tick " + item.id, "data-id": item.id, checked: this.ids.has(item.id),
      onchange: (event) => { if (event.target.checked) this.ids.add(item.id); else this.ids.delete(item.id); this.tell(); },
    }));
  }

  // show says what the list shows now. What is not shown any more is not chosen any more.
  show(items) {
    this.shown = items.map((item) => item.id);
    for (const id of this.ids) if (!this.shown.includes(id)) this.ids.delete(id);
    this.tell();
  }

  clear() {
    this.ids.clear();
    this.tell();
  }

  // hide is for a list that cannot be read: nobody sees what an action would concern. What is chosen stays so.
  hide() {
    this.node.hidden = true;
  }

  takeAll() {
    const take = this.all.checked;
    this.ids = new Set(take ? this.shown : []);
    for (const box of document.querySelectorAll(".tick input[data-id]")) box.checked = take;
    this.tell();
  }

  tell() {
    const n = this.ids.size;
    this.node.hidden = this.shown.length === 0;
    this.all.checked = n > 0 && n === this.shown.length;
    this.all.indeterminate = n > 0 && n < this.shown.length;
    fill(this.label, n ? count(n) + " chosen" : "all " + count(this.shown.length) + " shown");
    this.actions.forEach((a, i) => {
      if (!n && document.activeElement === this.some[i]) this.all.focus(); // it goes, and the focus stays here
      this.some[i].hidden = n === 0;
      fill(this.some[i], a.verb + " " + count(n));
    });
  }

  async runMatching(action) {
    const more = this.more();
    const given = { ...this.filter() };
    let counted;
    try {
      counted = await get(this.counts() + "kind=" + (action.counted || action.kind) + parameters({ ...more, ...given }));
    } catch (error) {
      toast(error.message, "bad");
      return;
    }
    if (counted.count === 0) {
      toast(action.none);
      return;
    }
    for (const name of Object.keys(given)) if (given[name] === "") delete given[name];
    const words = Object.entries(given).map(([name, text]) => name.replaceAll("_", " ") + " " + text);
    if (given.id) { given.ids = [given.id]; delete given.id; }
    await this.confirm(action, more, counted.count, things(counted.count, action.thing) + (counted.count === 1 ? " matches " : " match ") +
      (words.length ? "the filter (" + words.join(", ") + ")" : "without a filter") + ". What comes after this count is left alone. ",
    { filter: { ...given, all: words.length === 0, until: counted.until } }, given);
  }

  async run(action, ids, more = this.more()) {
    return this.confirm(action, more, ids.length, "", { ids }, ids.length <= 20 ? { ids } : null);
  }

  // confirm asks, and has it done to what more and body choose; shown is what its command would choose, if it has one.
  async confirm(action, more, n, said, body, shown) {
    const what = action.verb + " " + (n === 1 && !said ? "this " + action.one : things(n, action.thing));
    const form = action.form ? action.form() : { fields: [], send: (whole) => post(action.path, whole) };
    const line = shown && action.line ? commandOf(action.line + this.flags(more), shown) : "";
    let asked;
    const done = await ask({
      title: what + (more.consumer ? " of " + more.consumer : "") + "?", action: action.verb, note: true, danger: action.class === "danger",
      heading: [what, more.consumer && [" of ", el("bdi", {}, more.consumer)], "?"],
      text: said + (n === 1 ? action.text : action.many), more: [form.fields, line && command(line, "the command that does the same")],
      run: async (note) => { asked = await form.send({ ...more, ...body, note }); },
    });
    if (!done) return false;
    if (asked.request !== undefined) toast(action.verb + " requested.");
    this.clear();
    this.after(n, asked, action);
    return true;
  }
}
