// Dead letters: what was given up, why, what it holds, and what can be done.

import { el, empty, fill, toast } from "./dom.js";
import { ago, clock, count } from "./format.js";
import { get } from "./api.js";
import { ask, post } from "./dialog.js";
import { List } from "./list.js";
import { Outcome } from "./outcome.js";

const fields = [["id", "event id"], ["type", "event type"], ["aggregate", "aggregate: TYPE/ID"], ["position", "position, such as 0/16B3748"],
  ["class", "class: permanent"], ["newer_than", "died within: 24h"]];
const states = [["open", "Open"], ["replayed", "Replayed"], ["discarded", "Discarded"]];

const outcome = new Outcome();

export function dead() {
  let state = "open";
  const chosen = new Set();
  const inputs = {};
  for (const [name, text] of fields) {
    inputs[name] = el("input", { type: "search", id: "filter-" + name, placeholder: text, "aria-label": text, onchange: () => again() });
  }
  function again() {
    chosen.clear();
    tell();
    list.pages = 1;
    list.seen = "";
    list.load();
  }
  const list = new List({
    path: () => "/api/v1/dlq?limit=50&state=" + state + fields.map(([name]) => {
      const text = inputs[name].value.trim();
      return text === "" ? "" : "&" + name + "=" + encodeURIComponent(text);
    }).join(""),
    missing: "This relay's API does not list dead letters. They are in the table of dead letters, outbox_events_dlq.",
    none: () => (fields.some(([name]) => inputs[name].value.trim() !== "")
      ? empty("None of these", "No dead letter matches the filter.")
      : state === "open" ? empty("No dead letters", "An event that the broker refuses for good is kept here, with its payload and the reason, until it is replayed or discarded.")
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

  // The payload goes to and fro as text: what a browser reads as JSON loses digits of large numbers.
  async function edit(item) {
    let whole, asked;
    try {
      whole = await get("/api/v1/dlq/" + encodeURIComponent(item.id) + "?payload=text");
    } catch (error) {
      toast(error.message, "bad");
      return;
    }
    const payloadField = el("textarea", { id: "edit-payload", rows: 10, spellcheck: false, class: "code", value: whole.payload_text || "" });
    const headersField = el("textarea", { id: "edit-headers", rows: 4, spellcheck: false, class: "code", value: whole.headers ? pretty(whole.headers) : "" });
    const done = await ask({
      title: "Edit and replay this event?", action: "Edit and replay", note: true,
      text: "It is published with what stands here, under the same id, to the same topic and key. What was there before is kept, with your note. Its row in the outbox stays as it is.",
      more: [el("label", { class: "field" }, "Payload", payloadField), el("label", { class: "field" }, "Headers", headersField)],
      run: async (note) => {
        const body = { note, edits_seen: (whole.edits || []).length, headers: null };
        if (payloadField.value !== "" || whole.payload_encoding !== "null") Object.assign(body, { payload: payloadField.value, payload_encoding: "text" });
        if (headersField.value.trim() !== "") {
          try {
            body.headers = JSON.parse(headersField.value);
          } catch (error) {
            throw new Error("The headers are no JSON: " + error.message);
          }
        }
        asked = await post("/api/v1/dlq/" + encodeURIComponent(item.id) + "/edit", body);
      },
    });
    if (!done) return;
    toast("Edited, and replay requested.");
    outcome.follow(asked.request, "discarded", () => list.load());
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
        fact("by", item.resolved_by), fact("note", item.note), fact("edited", item.edited_at && clock(item.edited_at) + " by " + item.edited_by)),
      el("h3", {}, "Payload"),
      item.payload_hidden ? el("p", { class: "soft" }, "Payloads are not shown: http.show_payloads is false.") : payload(item),
      item.headers && [el("h3", {}, "Headers"), el("pre", { class: "code", tabIndex: 0 }, pretty(item.headers))],
      (item.edits || []).map((e) => [el("h3", {}, "Before the edit of " + clock(e.edited_at) + " by " + e.edited_by + (e.note ? ": " + e.note : "")),
        el("pre", { class: "code", tabIndex: 0 }, e.former_payload_encoding === "json" ? pretty(e.former_payload) : String(e.former_payload ?? "none: a tombstone")),
        e.former_headers && el("pre", { class: "code", tabIndex: 0 }, pretty(e.former_headers))]),
      open && el("div", { class: "actions" },
        !item.payload_hidden && item.payload_encoding !== "base64" && el("button", { type: "button", id: "edit", onclick: () => edit(item) }, "Edit…"),
        el("button", { type: "button", class: "danger", onclick: () => resolve("discard", [item.id]) }, "Discard…"),
        el("button", { type: "button", class: "main", onclick: () => resolve("replay", [item.id]) }, "Replay…")));
    detail.showModal();
  }

  const tabs = el("div", { class: "segments", role: "group", "aria-label": "Which" }, states.map(([name, text]) =>
    el("button", {
      type: "button", "aria-pressed": String(name === state), onclick: (event) => {
        state = name;
        for (const b of tabs.children) b.setAttribute("aria-pressed", String(b === event.currentTarget));
        again();
      },
    }, text)));
  return {
    title: "Dead letters",
    node: el("div", { class: "page" }, outcome.node, el("section", { class: "card" },
      el("header", {}, el("h1", {}, "Dead letters"), tabs, el("span", { class: "grow" }), bulk),
      el("div", { class: "filters", role: "search", "aria-label": "Filter" }, Object.values(inputs)), list.node), detail),
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
