// Dead letters: what was given up, why, what it holds, and what can be done.

import { el, empty, fill, toast } from "./dom.js";
import { ago, clock, count } from "./format.js";
import { get } from "./api.js";
import { ask, post } from "./dialog.js";
import { List } from "./list.js";
import { Outcome } from "./outcome.js";

const states = [["open", "Open"], ["replayed", "Replayed"], ["discarded", "Discarded"]];

const outcome = new Outcome();

export function dead() {
  let state = "open";
  const chosen = new Set();
  const list = new List({
    path: () => "/api/v1/dlq?limit=50&state=" + state,
    missing: "This relay's API does not list dead letters. They are in the table of dead letters, outbox_events_dlq.",
    none: () => (state === "open"
      ? empty("No dead letters", "An event that the broker refuses for good is kept here, with its payload and the reason, until it is replayed or discarded.")
      : empty("None", "No dead letter has been " + state + " yet.")),
    head: () => [{ text: "", class: "tick" }, { text: "event" }, { text: "reason", class: "reason" }, { text: "when" }],
    row: (item) => el("tr", {},
      el("td", { class: "tick" }, state === "open" && el("input", {
        type: "checkbox", "aria-label": "choose event " + item.id, "data-key": "tick " + item.id, checked: chosen.has(item.id),
        onchange: (event) => { if (event.target.checked) chosen.add(item.id); else chosen.delete(item.id); tell(); },
      })),
      el("td", {}, el("button", { type: "button", class: "link strong", "data-key": "show " + item.id, onclick: () => show(item.id) }, item.event_type || item.id),
        el("div", { class: "soft code" }, (item.key === null ? "no key" : item.key) + " → " + (item.topic || "no topic"))),
      el("td", {}, el("span", { class: "tag" }, item.code || item.class), " ", el("span", { class: "clip" }, item.last_error),
        (item.replaying || item.resolved_by) && el("div", { class: "soft" }, item.replaying ? "being replayed" : state + " by " + item.resolved_by + (item.note ? ": " + item.note : ""))),
      el("td", { class: "num", title: clock(item.dead_at) }, ago(item.dead_at))),
  });
  const replayChosen = el("button", { type: "button", class: "main", onclick: () => resolve("replay", [...chosen]) });
  const discardChosen = el("button", { type: "button", class: "danger", onclick: () => resolve("discard", [...chosen]) });
  const bulk = el("div", { class: "bulk", hidden: true }, replayChosen, discardChosen);
  function tell() {
    bulk.hidden = chosen.size === 0;
    fill(replayChosen, "Replay " + count(chosen.size));
    fill(discardChosen, "Discard " + count(chosen.size));
  }

  async function resolve(what, ids) {
    let asked;
    const events = ids.length === 1 ? "this event" : "these " + count(ids.length) + " events";
    const done = await ask(what === "replay"
      ? {
        title: "Replay " + events + "?", action: "Replay", note: true,
        text: "It is published again under the same id, marked with x-outbox-replay. Later events of its key may have been published before it.",
        run: async (note) => { asked = await post("/api/v1/dlq/replay", { ids, note }); },
      }
      : {
        title: "Discard " + events + "?", action: "Discard", note: true, danger: true,
        text: "It is never published. It stays in the table, marked as discarded, with your note.",
        run: async (note) => { asked = await post("/api/v1/dlq/discard", { ids, note }); },
      });
    if (!done) return;
    toast((what === "replay" ? "Replay" : "Discard") + " requested.");
    outcome.follow(asked.request, "discarded", () => list.load());
    chosen.clear();
    tell();
    if (detail.open) detail.close();
    list.load();
  }

  const detail = el("dialog", { class: "detail", "aria-label": "Dead letter" });
  async function show(id) {
    let item;
    try {
      item = await get("/api/v1/dlq/" + encodeURIComponent(id));
    } catch (error) {
      toast(error.message, "bad");
      return;
    }
    const fact = (name, value) => value !== null && value !== undefined && value !== "" && [el("dt", {}, name), el("dd", { class: "code" }, String(value))];
    const open = !item.replayed_at && !item.discarded_at && !item.replaying;
    fill(detail,
      el("header", {}, el("h2", {}, item.event_type || "Dead letter"), el("button", { type: "button", class: "plain", onclick: () => detail.close() }, "Close")),
      el("p", { class: "why" }, el("span", { class: "tag" }, item.code || item.class), " ", item.last_error),
      el("dl", {}, fact("id", item.id), fact("topic", item.topic), fact("partition", item.partition), fact("key", item.key === null ? "(no key)" : item.key),
        fact("aggregate", item.aggregate_type), fact("position", item.position), fact("attempts", item.attempts), fact("created", item.created_at && clock(item.created_at)),
        fact("died", clock(item.dead_at)), fact("replayed", item.replayed_at && clock(item.replayed_at)), fact("discarded", item.discarded_at && clock(item.discarded_at)),
        fact("by", item.resolved_by), fact("note", item.note)),
      el("h3", {}, "Payload"),
      item.payload_hidden ? el("p", { class: "soft" }, "Payloads are not shown: http.show_payloads is false.") : payload(item),
      item.headers && [el("h3", {}, "Headers"), el("pre", { class: "code", tabIndex: 0 }, pretty(item.headers))],
      open && el("div", { class: "actions" },
        el("button", { type: "button", class: "danger", onclick: () => resolve("discard", [item.id]) }, "Discard…"),
        el("button", { type: "button", class: "main", onclick: () => resolve("replay", [item.id]) }, "Replay…")));
    detail.showModal();
  }

  const tabs = el("div", { class: "segments", role: "group", "aria-label": "Which" }, states.map(([name, text]) =>
    el("button", {
      type: "button", "aria-pressed": String(name === state), onclick: (event) => {
        state = name;
        chosen.clear();
        tell();
        for (const b of tabs.children) b.setAttribute("aria-pressed", String(b === event.currentTarget));
        list.pages = 1;
        list.seen = "";
        list.load();
      },
    }, text)));
  return {
    title: "Dead letters",
    node: el("div", { class: "page" }, outcome.node, el("section", { class: "card" },
      el("header", {}, el("h1", {}, "Dead letters"), tabs, el("span", { class: "grow" }), bulk), list.node), detail),
    enter: () => list.start(),
    leave: () => list.stop(),
  };
}

function payload(item) {
  if (item.payload_encoding === "null" || item.payload === undefined || item.payload === null) return el("p", { class: "soft" }, "None: a tombstone.");
  return el("pre", { class: "code", tabIndex: 0, id: "payload" }, item.payload_encoding === "json" ? pretty(item.payload) : item.payload);
}

function pretty(value) {
  return JSON.stringify(value, null, 2);
}
