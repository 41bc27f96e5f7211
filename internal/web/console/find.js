// Where an event is, in words: one that is named, or those of an aggregate or of a message key.

import { el, empty, fill } from "./dom.js";
import { get, parameters } from "./api.js";
import { copy } from "./copy.js";
import { Outbox } from "./outboxes.js";

const tones = { published: "good", baseline: "quiet", marked: "quiet", in_flight: "good", waiting: "warn", parked: "warn", dead: "bad", discarded: "quiet", unknown: "quiet" };

// query is what the text asks for: a key, or TYPE/ID of an aggregate, or ids.
function query(text, by) {
  if (by === "key") return "key=" + encodeURIComponent(text);
  if (text.includes("/")) return "aggregate=" + encodeURIComponent(text);
  return text.split(/[\s,;]+/).filter(Boolean).map((id) => "id=" + encodeURIComponent(id)).join("&");
}

function kind(item) {
  const from = item.row || item.parked || item.dead;
  return from ? [from.event_type, [from.aggregate_type, from.aggregate_id].filter(Boolean).join("/")].filter(Boolean).join(" of ") : "";
}

function card(item) {
  const first = item.parked && item.parked.behind || item.id; // queues are listed by their first event
  return el("li", { class: "found" },
    el("div", {}, el("span", { class: "pill", "data-tone": tones[item.state] || "quiet" }, item.state.replaceAll("_", " ")), " ",
      el("span", { class: "code strong" }, item.id), " ", copy(item.id, "the id"), " ", item.outbox && [el("bdi", { class: "soft" }, item.outbox), " "], el("bdi", { class: "soft" }, kind(item))),
    el("p", {}, item.says), (item.state === "dead" || item.state === "parked") && el("p", {}, el("a", { href: (item.state === "dead" ? "#/dead-letters?id=" + encodeURIComponent(item.id) : "#/parked?id=" + encodeURIComponent(first)) + parameters({ outbox: item.outbox || "" }) },
      item.state === "dead" ? "Look at it, replay or discard it" : "Look at its queue", el("span", { class: "unseen" }, ": " + item.id))), item.do && el("p", {}, el("strong", {}, "What to do: "), item.do));
}

export function find() {
  const field = el("input", { id: "find-text", type: "search", autocomplete: "off", spellcheck: false, placeholder: "019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01, or order/42" });
  const by = el("select", { id: "find-by", "aria-label": "Look for" }, el("option", { value: "id" }, "Id, or TYPE/ID"), el("option", { value: "key" }, "Message key"));
  const outbox = new Outbox("", () => {});
  const answer = el("div", { id: "found", "aria-live": "polite" });
  async function look() {
    const text = field.value.trim();
    if (!text) return;
    if (!outbox.ready()) return;
    try {
      const items = (await get("/api/v1/find?" + query(text, by.value) + parameters({ outbox: outbox.value() }))).items || [];
      fill(answer, items.length ? el("ul", { class: "founds" }, items.map(card)) : empty(by.value === "key" ? "No event of this key" : "No event of this aggregate", "Neither the table nor what is parked or dead has one."));
    } catch (error) {
      fill(answer, empty("This cannot be looked for", error.message));
    }
  }
  return {
    title: "Find",
    node: el("div", { class: "page" }, el("section", { class: "card" },
      el("header", {}, el("h1", {}, "Where is my event?"), el("span", { class: "hint" }, "by ids of events, by TYPE/ID of an aggregate, or by message key")),
      el("form", { class: "find", onsubmit: (event) => { event.preventDefault(); look(); } },
        el("label", { class: "unseen", for: "find-text" }, "Ids of events, TYPE/ID of an aggregate, or a key"), outbox.fields, by, field, el("button", { type: "submit", class: "main" }, "Find")), answer)),
    enter: () => field.focus(),
  };
}
