// Dead letters: what was given up, why, what it holds, and what can be done.

import { el, empty, fill, toast } from "./dom.js";
import { ago, clock, count } from "./format.js";
import { get, parameters } from "./api.js";
import { Choice } from "./choice.js";
import { chosen, command, copy } from "./copy.js";
import { ask, modal, post } from "./dialog.js";
import { ofCode } from "./runbooks.js";
import { List, filters } from "./list.js";
import { flag, keyOf, Outbox } from "./outboxes.js";
import { Outcome } from "./outcome.js";
import { indented, payload, text } from "./payload.js";

const fields = [["id", "event id"], ["key", "message key"], ["type", "event type"], ["topic", "topic"], ["aggregate", "aggregate: TYPE/ID"], ["position", "position, such as 0/16B3748"],
  ["class", "class: permanent"], ["code", "reason: TOPIC_LIMIT"], ["newer_than", "died within: 24h"], ["older_than", "died before: 7d"]];
const usual = 6; // fields that are shown at once; the others are in use less often
const states = [["open", "Open"], ["replayed", "Replayed"], ["discarded", "Discarded"]];

const outcome = new Outcome();

// merge is the fields of an edit of many, and sends them until all are edited: an answer is about a part of them.
function merge() {
  const field = (id) => el("textarea", { id, rows: 3, spellcheck: false, class: "code", placeholder: '{"currency": "EUR", "typo": null}' });
  const payloads = field("merge-payload"), headers = field("merge-headers");
  const tombstone = el("input", { type: "checkbox", id: "merge-tombstone" });
  return {
    fields: [el("label", { class: "field" }, "Merge into the payloads", payloads), el("label", { class: "field" }, "Merge into the headers", headers),
      el("p", { class: "hint" }, "JSON merge patches: a member takes the place of the one of its name, null removes it. An empty field changes nothing."),
      el("label", { class: "check" }, tombstone, "Make tombstones of them: no payload")],
    send: async (body) => {
      const texts = {};
      for (const [name, from] of [["merge_payload", payloads], ["merge_headers", headers]]) {
        if (from.value.trim() === "") continue;
        try {
          JSON.parse(from.value);
        } catch (error) {
          throw new Error("What is to be merged is not JSON: " + error.message);
        }
        texts[name] = from.value;
      }
      const all = { edited: 0, refused: [], requests: [] };
      for (let after = {}; ;) {
        let step;
        try {
          step = await post("/api/v1/dlq/edit", { ...body, ...after, tombstone: tombstone.checked }, texts);
        } catch (error) {
          if (all.edited > 0) error.message = count(all.edited) + " are edited, the others are not: " + error.message;
          throw error;
        }
        all.edited += step.edited;
        all.refused.push(...step.refused);
        all.requests.push(...step.requests);
        if (step.next === null) return all;
        after = { after: step.next };
      }
    },
  };
}

const actions = [
  {
    kind: "replay", verb: "Replay", path: "/api/v1/dlq/replay", line: "cdc-relay dlq replay", thing: "dead letter", one: "event", class: "main",
    text: "It is published again under the same id, marked with x-outbox-replay. Later events of its key may have been published before it.",
    many: "They are published again under the same ids, each key in its order, marked with x-outbox-replay. Later events of their keys may have been published before them.",
    none: "No dead letter that could be replayed matches.",
  },
  {
    kind: "edit", verb: "Edit", counted: "replay", thing: "dead letter", one: "event", form: merge,
    text: "It is published again with what is merged into it, under the same id, to the same topic and key. What was there before is kept, with your note. Its row in the outbox stays as it is.",
    many: "They are published again with what is merged into them, under the same ids, to the same topics and keys. What was there before is kept, with your note. Their rows in the outbox stay as they are.",
    none: "No dead letter that could be edited matches.",
  },
  {
    kind: "discard", verb: "Discard", path: "/api/v1/dlq/discard", line: "cdc-relay dlq discard", thing: "dead letter", one: "event", class: "danger",
    text: "It is never published. It stays in the table, marked as discarded, with your note.",
    many: "They are never published. They stay in the table, marked as discarded, with your note.",
    none: "No dead letter that could be discarded matches.",
  },
];

// Given is what the address of the page says to filter by, as a link of another page does.
export function dead(given) {
  let state = "open";
  const inputs = {};
  for (const [name, text] of fields) {
    inputs[name] = el("input", { type: "search", id: "filter-" + name, placeholder: text, "aria-label": text, value: given.get(name) || "", onchange: () => again() });
  }
  const filter = () => Object.fromEntries(fields.map(([name]) => [name, inputs[name].value.trim()]));
  const outbox = new Outbox(given.get("outbox"), () => { reasons.seen = ""; again(); reasons.load(); });
  const of = () => ({ outbox: outbox.value() });
  const choice = new Choice({
    actions, filter, more: of, ready: () => outbox.ready(),
    after: (n, { edited, refused = [], requests }) => {
      if (edited !== undefined) toast(count(edited) + " edited." + (refused.length ? " " + count(refused.length) + " cannot be: " + refused[0].id + ": " + refused[0].why : ""), refused.length ? "bad" : "good");
      if (requests.length > 0) outcome.follow(requests, "discarded", () => list.load(), edited === undefined ? n : undefined);
      if (detail.open) detail.close();
      list.load();
    },
  });
  function again() {
    choice.clear();
    list.pages = 1;
    list.seen = "";
    list.load();
  }
  const list = new List({
    path: () => "/api/v1/dlq?limit=50&state=" + state + parameters({ ...filter(), ...of() }),
    shown: (items) => { outbox.take(items); choice.show(state === "open" ? items : []); },
    lost: () => choice.hide(),
    missing: "This relay's API does not list dead letters. They are in the table of dead letters, outbox_events_dlq.",
    none: () => (outbox.value() !== "" || fields.some(([name]) => inputs[name].value.trim() !== "")
      ? empty("None of these", "No dead letter matches the filter.")
      : state === "open" ? empty("No dead letters", "An event that the broker refuses permanently is kept here, with its payload and the reason, until it is replayed or discarded.")
      : empty("None", "No dead letter has been " + state + " yet.")),
    head: () => [{ unseen: "choose", class: "tick" }, ...outbox.head(), { text: "event" }, { text: "reason", class: "reason" }, { text: "when" }],
    row: (item) => el("tr", {},
      state === "open" ? choice.tick(item, "event " + item.id) : el("td", { class: "tick" }),
      outbox.cell(item),
      el("td", {}, el("button", { type: "button", class: "link strong", "data-key": "show " + keyOf(item), onclick: () => show(item) }, item.event_type || item.id),
        el("div", { class: "soft code" }, el("bdi", {}, item.key === null ? "no key" : item.key), " → ", el("bdi", {}, item.topic || "no topic"))),
      el("td", {}, el("span", { class: "tag" }, item.code || item.class), " ", el("span", { class: "clip" }, item.last_error),
        (item.replaying || item.resolved_by) && el("div", { class: "soft" }, item.replaying ? "being replayed" : state + " by " + item.resolved_by + (item.note ? ": " + item.note : ""))),
      el("td", { class: "num", title: clock(item.dead_at) }, ago(item.dead_at))),
  });
  // By reason: a flood of one kind is a line. A line shows its group, and what is done to all that match is done to it.
  const reasons = new List({
    path: () => "/api/v1/dlq/reasons?state=" + state + parameters({ ...filter(), ...of(), code: "", class: "" }),
    none: () => null,
    missing: "This relay's API does not count dead letters by reason.",
    head: () => [{ text: "dead letters", class: "right" }, { text: "reason", class: "reason" }, { text: "newest" }, { unseen: "show" }],
    row: (item) => el("tr", {},
      el("td", { class: "right num" }, count(item.count)),
      el("td", {}, el("span", { class: "tag" }, item.code || item.class), " ", el("span", { class: "clip" }, item.last_error)),
      el("td", { class: "num", title: clock(item.newest) }, ago(item.newest)),
      el("td", {}, el("button", { type: "button", class: "link", "data-key": "reason " + item.code + " " + item.class, onclick: () => group(item) },
        inputs.code.value === item.code && inputs.class.value === item.class ? "Show all" : "Show these"))),
  });
  function group(item) {
    const shown = inputs.code.value === item.code && inputs.class.value === item.class;
    inputs.code.value = shown ? "" : item.code;
    inputs.class.value = shown ? "" : item.class;
    reasons.seen = "";
    again();
    reasons.load();
  }
  const resolve = (kind, item) => choice.run(actions.find((a) => a.kind === kind), [item]);
  const whole = ({ id, outbox: from = "" }) => get("/api/v1/dlq/" + encodeURIComponent(id) + "?payload=text" + parameters({ outbox: from }));

  // The payload goes to and fro as text: what a browser reads as JSON loses digits of large numbers. What nobody changed
  // is not sent: a field has line breaks of its own, and a payload may be larger than a request.
  async function edit(item) {
    let before, asked;
    try {
      before = await whole(item);
    } catch (error) {
      toast(error.message, "bad");
      return;
    }
    if (before.payload_text === undefined) {
      toast("The payload is no text any more: cdc-relay dlq edit can change it.", "bad");
      return;
    }
    const payloadField = el("textarea", { id: "edit-payload", rows: 10, spellcheck: false, class: "code", value: before.payload_text });
    const headersField = el("textarea", { id: "edit-headers", rows: 4, spellcheck: false, class: "code", value: before.headers ? indented(before.headers_text) : "" });
    const shown = { payload: payloadField.value, headers: headersField.value };
    const breaks = new Set(before.payload_text.match(/\r\n|\r|\n/g));
    const [lineBreak = "\n"] = breaks;
    const done = await ask({
      title: "Edit and replay this event?", action: "Edit and replay", note: true,
      text: "It is published with what stands here, under the same id, to the same topic and key. What was there before is kept, with your note. Its row in the outbox stays as it is.",
      more: [el("label", { class: "field" }, "Payload", payloadField),
        breaks.size > 1 && el("p", { class: "hint" }, "Its line breaks differ. If you change the payload, all become the first one's."), el("label", { class: "field" }, "Headers", headersField)],
      run: async (note) => {
        const body = { note, edits_seen: (before.edits || []).length, ...(item.outbox && { outbox: item.outbox }) };
        if (payloadField.value !== shown.payload) {
          Object.assign(body, { payload: payloadField.value.replaceAll("\n", lineBreak), payload_encoding: "text" });
        }
        if (headersField.value.trim() === "") {
          body.headers = null;
        } else if (headersField.value !== shown.headers) {
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
    outcome.follow([asked.request], "discarded", () => list.load(), 1);
    if (detail.open) detail.close();
    list.load();
  }

  const detail = el("dialog", { class: "detail", "aria-label": "Dead letter" });
  async function show(shown) {
    let item;
    try {
      item = await whole(shown);
    } catch (error) {
      toast(error.message, "bad");
      return;
    }
    const fact = (name, value, more) => value !== null && value !== undefined && value !== "" && [el("dt", {}, name), el("dd", { class: "code" }, String(value), " ", more)];
    const open = !item.replayed_at && !item.discarded_at && !item.replaying;
    fill(detail,
      el("header", {}, el("h2", {}, item.event_type || "Dead letter"), el("button", { type: "button", class: "plain", id: "close-detail", onclick: () => detail.close() }, "Close")),
      el("p", { class: "why" }, el("span", { class: "tag" }, item.code || item.class), " ", item.last_error, " ", copy((item.code || item.class) + ": " + item.last_error, "the reason"), " ", ofCode(item.code)),
      el("dl", {}, fact("id", item.id, copy(item.id, "the id")), fact("outbox", item.outbox), fact("topic", item.topic), fact("partition", item.partition), fact("key", item.key === null ? "(no key)" : item.key, item.key && copy(item.key, "the key")),
        fact("aggregate", item.aggregate_type), fact("position", item.position), fact("attempts", item.attempts), fact("created", item.created_at && clock(item.created_at)),
        fact("died", clock(item.dead_at)), fact("replayed", item.replayed_at && clock(item.replayed_at)), fact("discarded", item.discarded_at && clock(item.discarded_at)),
        fact("by", item.resolved_by), fact("note", item.note), fact("edited", item.edited_at && clock(item.edited_at) + " by " + item.edited_by)),
      el("h3", {}, "Payload"),
      item.payload_hidden ? el("p", { class: "soft" }, "Payloads are not shown: http.show_payloads is false.") : payload(item),
      item.headers && [el("h3", {}, "Headers"), el("pre", { class: "code", tabIndex: 0 }, indented(item.headers_text))],
      (item.edits || []).map((e) => [el("h3", {}, "Before the edit of " + clock(e.edited_at) + " by " + e.edited_by + (e.note ? ": " + e.note : "")),
        el("pre", { class: "code", tabIndex: 0 }, text(e, "former_payload") ?? "none: a tombstone"),
        e.former_headers && el("pre", { class: "code", tabIndex: 0 }, indented(e.former_headers_text))]),
      open && [el("h3", {}, "On the command line"), command(chosen("cdc-relay dlq replay" + flag(item.outbox), { ids: [item.id] }), "the command that replays it")],
      open && el("div", { class: "actions" },
        item.payload_text !== undefined && el("button", { type: "button", id: "edit", onclick: () => edit(item) }, "Edit…"),
        el("button", { type: "button", class: "danger", onclick: () => resolve("discard", item) }, "Discard…"),
        el("button", { type: "button", class: "main", onclick: () => resolve("replay", item) }, "Replay…")));
    if (!detail.open) modal(detail, detail.querySelector("#close-detail"));
  }

  const tabs = el("div", { class: "segments", role: "group", "aria-label": "Which" }, states.map(([name, text]) =>
    el("button", {
      type: "button", "aria-pressed": String(name === state), onclick: (event) => {
        state = name;
        for (const b of tabs.children) b.setAttribute("aria-pressed", String(b === event.currentTarget));
        again();
        reasons.load();
      },
    }, text)));
  return {
    title: "Dead letters",
    node: el("div", { class: "page" }, outcome.node, el("section", { class: "card" },
      el("header", {}, el("h1", {}, "Dead letters"), tabs),
      el("div", { class: "reasons" }, reasons.node),
      filters([outbox.fields, ...fields.map(([name]) => inputs[name])], usual + 1), choice.node, list.node), detail),
    enter: () => { reasons.start(); list.start(); },
    leave: () => { reasons.stop(); list.stop(); },
  };
}
