// What became of a request: asked for until it is over, and told as the commands tell it. It outlives the page that
// made it, so that who looks elsewhere meanwhile finds it again.

import { el, fill } from "./dom.js";
import { count } from "./format.js";
import { get } from "./api.js";

const again = 1000;
const unmoved = 600; // looks without progress before it is given up: ten minutes

const advice = {
  "died again": "Those that died again are open dead letters: fix the cause, then replay them once more.",
  "stayed behind": "Those that stayed behind were not sent, because an earlier event of their key died again. They are open dead letters: replay them with that one, or alone to give it up.",
  parked: "The relay goes on trying those that are parked: see Parked.",
};

const came = (r, state) => (r.outcomes || []).filter((o) => o.state === state).reduce((n, o) => n + o.events, 0);
const isOver = (r) => r.finished_at !== null && r.waiting === 0;

// sentence tells the request in one line.
function sentence(r, verb) {
  if (r.error) return "Refused: " + r.error;
  if (r.started_at === null) return "Queued. The active relay takes it up within seconds; without one, the next that starts.";
  const so = isOver(r) ? "" : " so far";
  if (r.kind !== "replay") return count(r.done) + " of " + count(r.total) + " " + verb + so;
  const parts = [count(came(r, "published")) + " of " + count(r.total) + " published"];
  for (const state of ["parked", "died again", "stayed behind", "discarded"]) {
    if (came(r, state)) parts.push(count(came(r, state)) + " " + state);
  }
  return parts.join(", ") + so;
}

// differs says why it is not as many as were asked for, if that is so.
function differs(r, asked) {
  if (asked === undefined || r.total === null || r.total === asked || r.error) return "";
  const why = r.total < asked
    ? "the others were replayed, discarded, tried again or published by someone else at the same time, and were left alone."
    : "the others were being recorded while it was counted.";
  return count(asked) + (asked === 1 ? " was" : " were") + " asked for, " + count(r.total) + (r.total === 1 ? " is" : " are") + " concerned: " + why;
}

// together is the requests as one: what each came to, added up.
function together(all) {
  if (all.length === 1) return all[0];
  const sum = (name) => all.reduce((n, r) => n + (r[name] || 0), 0);
  const outcomes = new Map();
  for (const o of all.flatMap((r) => r.outcomes || [])) {
    const key = JSON.stringify([o.state, o.topic, o.code]);
    outcomes.set(key, { ...o, events: o.events + (outcomes.get(key) || { events: 0 }).events });
  }
  return {
    ...all[0], total: all.some((r) => r.total === null) ? null : sum("total"), done: sum("done"), waiting: sum("waiting"), outcomes: [...outcomes.values()],
    error: all.map((r) => r.error).find(Boolean), started_at: all.map((r) => r.started_at).find(Boolean) || null,
    finished_at: all.every((r) => r.finished_at !== null) ? all.at(-1).finished_at : null,
  };
}

function show(node, r, verb, asked, ids) {
  const open = (r.outcomes || []).filter((o) => o.state !== "published");
  const bad = r.error || came(r, "died again") > 0;
  node.hidden = false;
  node.dataset.tone = bad ? "bad" : isOver(r) ? "good" : "warn";
  fill(node,
    el("header", {}, el("h2", {}, r.kind[0].toUpperCase() + r.kind.slice(1) + (ids.length === 1 ? ", request " : ", requests ") + ids.join(", ")), el("span", { class: "grow" }),
      el("button", { type: "button", class: "plain", onclick: () => { node.hidden = true; node.dataset.request = ""; } }, "Dismiss")),
    el("p", { class: "strong", role: "status" }, sentence(r, verb)),
    r.total > 0 && !isOver(r) && el("progress", { max: r.total, value: Math.max(0, r.done - r.waiting), "aria-label": "how far it is" }),
    el("p", { class: "differs" }, differs(r, asked)),
    open.length > 0 && el("div", { class: "scroll" }, el("table", { class: "rows" },
      el("thead", {}, el("tr", {}, el("th", {}, "events"), el("th", {}, "state"), el("th", {}, "topic"), el("th", { class: "reason" }, "reason"))),
      el("tbody", {}, open.map((o) => el("tr", {}, el("td", { class: "num" }, count(o.events)), el("td", {}, o.state), el("td", { class: "code" }, o.topic || "none"),
        el("td", {}, o.code ? [el("span", { class: "tag" }, o.code), " ", o.reason] : "not tried yet")))))),
    Object.keys(advice).filter((state) => came(r, state)).map((state) => el("p", { class: "soft" }, advice[state])));
}

// Outcome is a card that shows what was asked for last: a request, or one for each of several outboxes.
export class Outcome {
  constructor() {
    this.node = el("section", { class: "card outcome", hidden: true });
  }

  // follow shows the requests until they are over. Verb is what is done to events, of another kind than a replay; asked
  // how many were meant.
  async follow(ids, verb, changed, asked) {
    const mine = ids.join(" ");
    const latest = new Map();
    this.node.dataset.request = mine;
    let seen = "";
    for (let still = 0; still < unmoved; still++) {
      let r;
      try {
        for (const id of ids) if (!latest.has(id) || !isOver(latest.get(id))) latest.set(id, await get("/api/v1/requests/" + id));
        r = together([...latest.values()]);
      } catch (error) {
        if (error.status === 401 || error.status === 404) return;
      }
      if (this.node.dataset.request !== mine) return; // another one is shown, or it was dismissed
      const now = JSON.stringify(r);
      if (r && now !== seen) {
        seen = now;
        still = 0;
        show(this.node, r, verb, asked, ids);
        if (changed) changed();
      }
      if (r && isOver(r)) return;
      await new Promise((resolve) => setTimeout(resolve, again));
    }
  }
}
