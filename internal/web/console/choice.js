// What of a list is chosen for an action: one by one, all that is shown, or all that the filter matches. What matches is
// counted before, and the action is bound to that count: what comes meanwhile is not meant.

import { el, fill, toast } from "./dom.js";
import { count } from "./format.js";
import { get, parameters } from "./api.js";
import { ask, post } from "./dialog.js";
import { chosen as commandOf, command } from "./copy.js";
import { flag, keyOf } from "./outboxes.js";

const commandsShown = 3; // of those that do the same, one for each outbox

const things = (n, thing) => count(n) + " " + thing + (n === 1 ? "" : "s");

export class Choice {
  // Actions are {kind, verb, path, line, thing, one, class, text, many, none}, and where more is to be said {counted,
  // form}: the kind that is counted, and what makes the fields and sends what they hold; filter gives what the list is filtered by; after is
  // called with the number that was asked for and the answer. More, where it is given, is what an action says beside
  // what is chosen, and flags is the same for its command; counts is where matches are counted. More is asked once, when
  // an action begins: what the page shows by the time somebody confirms is not what was counted. Ready reports whether
  // an action on all that match can be counted; if not, it has said why.
  constructor({ actions, filter, after, counts = () => "/api/v1/count?", more = () => ({}), flags = () => "", ready = () => true }) {
    Object.assign(this, { actions, filter, after, counts, more, flags, ready });
    this.keys = new Set(); // of the items that are chosen: see keyOf
    this.shown = [];
    this.all = el("input", { type: "checkbox", id: "choose-all", "data-key": "choose all", onchange: () => this.takeAll() });
    this.label = el("span", {});
    this.some = actions.map((a) => el("button", { type: "button", class: a.class, "data-key": a.kind + " chosen", onclick: () => this.run(a, this.shown.filter((item) => this.keys.has(keyOf(item)))) }));
    this.every = actions.map((a) => el("button", { type: "button", "data-key": a.kind + " matching", onclick: () => this.runMatching(a) }, a.verb + " all that match…"));
    this.node = el("div", { class: "bulk", role: "group", "aria-label": "Actions", hidden: true },
      el("label", { class: "check", for: "choose-all" }, this.all, this.label), this.some, el("span", { class: "grow" }), this.every);
    this.tell();
  }

  // tick is the cell with the box of an item.
  tick(item, name) {
    const key = keyOf(item);
    return el("td", { class: "tick" }, el("input", {
      type: "checkbox", "aria-label": "choose " + name, "data-key": "tick " + key, "data-id": item.id, checked: this.keys.has(key),
      onchange: (event) => { if (event.target.checked) this.keys.add(key); else this.keys.delete(key); this.tell(); },
    }));
  }

  // show says what the list shows now. What is not shown any more is not chosen any more.
  show(items) {
    this.shown = items;
    const shown = new Set(items.map(keyOf));
    for (const key of this.keys) if (!shown.has(key)) this.keys.delete(key);
    this.tell();
  }

  clear() {
    this.keys.clear();
    this.tell();
  }

  // hide is for a list that cannot be read: nobody sees what an action would concern. What is chosen stays so.
  hide() {
    this.node.hidden = true;
  }

  takeAll() {
    const take = this.all.checked;
    this.keys = new Set(take ? this.shown.map(keyOf) : []);
    for (const box of document.querySelectorAll(".tick input[data-id]")) box.checked = take;
    this.tell();
  }

  tell() {
    const n = this.keys.size;
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
    if (!this.ready()) return;
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
    [{ filter: { ...given, all: words.length === 0, until: counted.until } }], given);
  }

  // run has it done to items. Of several outboxes each is asked for by itself.
  async run(action, items, more = this.more()) {
    const parts = new Map();
    for (const { outbox = "", id } of items) parts.set(outbox, [...(parts.get(outbox) || []), id]);
    const bodies = [...parts].map(([outbox, ids]) => ({ ids, ...(outbox && { outbox }) }));
    return this.confirm(action, more, items.length, bodies.length > 1 ? "They are of " + count(bodies.length) + " outboxes. " : "", bodies,
      items.length <= 20 && bodies.length <= commandsShown ? {} : null);
  }

  // confirm asks, and has it done to what more and each of the bodies choose; shown is what a command would choose, if
  // there is one, besides the ids.
  async confirm(action, more, n, said, bodies, shown) {
    const of = more.consumer || (bodies.length === 1 ? bodies[0].outbox || more.outbox : "");
    const what = action.verb + " " + (n === 1 && !said ? "this " + action.one : things(n, action.thing));
    const form = action.form ? action.form() : { fields: [], send: (whole) => post(action.path, whole) };
    const lines = shown && action.line
      ? bodies.map((body) => commandOf(action.line + flag(body.outbox || more.outbox) + this.flags(more), { ids: body.ids, ...shown })) : [];
    const left = [...bodies];
    const answers = [];
    const done = await ask({
      title: what + (of ? " of " + of : "") + "?", action: action.verb, note: true, danger: action.class === "danger",
      heading: [what, of && [" of ", el("bdi", {}, of)], "?"],
      text: said + (n === 1 ? action.text : action.many), more: [form.fields, lines.map((line) => command(line, "the command that does the same"))],
      run: async (note) => {
        for (; left.length > 0; left.shift()) { // what is asked for is not asked for again after an error
          try {
            answers.push(await form.send({ ...more, ...left[0], note }));
          } catch (error) {
            if (answers.length > 0) error.message = "Done for " + count(answers.length) + " of " + count(bodies.length) + " outboxes. " + left[0].outbox + ": " + error.message;
            throw error;
          }
        }
      },
    });
    if (answers.length === 0) return false;
    const asked = together(answers);
    if (asked.edited === undefined && asked.requests) toast(action.verb + " requested.");
    this.clear();
    this.after(done ? n : undefined, asked, action);
    return done;
  }
}

// together is the answers for several outboxes as one.
function together(answers) {
  const all = answers.map((a) => (a.request === undefined ? a : { ...a, requests: [a.request] }));
  if (all.length === 1) return all[0];
  const whole = { requests: all.flatMap((a) => a.requests) };
  if (all[0].edited === undefined) return whole;
  return { ...whole, edited: all.reduce((n, a) => n + a.edited, 0), refused: all.flatMap((a) => a.refused) };
}
