// Keys that wait, with the reasons in words.

import { el, empty } from "./dom.js";
import { ago, clock, count, until } from "./format.js";
import { parameters } from "./api.js";
import { Choice } from "./choice.js";
import { chosen, command, copy } from "./copy.js";
import { List, filters } from "./list.js";
import { flag, keyOf, Outbox } from "./outboxes.js";
import { Outcome } from "./outcome.js";
import { runbook } from "./runbooks.js";

const fields = [["id", "event id"], ["key", "message key"], ["topic", "topic"], ["type", "event type"], ["aggregate", "aggregate: TYPE/ID"],
  ["class", "class: transient, blocked"], ["position", "position, such as 0/16B3748"], ["newer_than", "parked within: 24h"], ["older_than", "parked before: 7d"]];
const usual = 6;

const actions = [{
  kind: "retry", verb: "Retry", path: "/api/v1/retry", line: "cdc-relay retry now", thing: "parked event", one: "key now", class: "main",
  text: "The first event of the key becomes due at once; those behind it follow when it succeeds. What waits until its topic recovers is looked at all the time, and is left alone.",
  many: "The first event of each key becomes due at once; those behind it follow when it succeeds. What waits until its topic recovers is looked at all the time, and is left alone.",
  none: "None that matches can be made due: what waits until its topic recovers is looked at all the time.",
}];

function reason(item) {
  if (item.waits || (!item.next_retry_at && item.class === "transient")) return "its topic or partition is unavailable; sent when it recovers";
  if (item.class === "blocked") return "waiting behind an earlier event of the same key";
  if (item.replay) return "a dead letter that is being replayed";
  return "the broker refused it; it will be retried";
}

function queue(n) {
  return n === 1 ? "1 event" : count(n) + " events";
}

const outcome = new Outcome();

// Given is what the address of the page says to filter by.
export function parked(given) {
  const inputs = {};
  for (const [name, text] of fields) {
    inputs[name] = el("input", { type: "search", id: "filter-" + name, placeholder: text, "aria-label": text, value: given.get(name) || "", onchange: () => again() });
  }
  const filter = () => Object.fromEntries(fields.map(([name]) => [name, inputs[name].value.trim()]));
  const outbox = new Outbox(given.get("outbox"), () => again());
  const of = () => ({ outbox: outbox.value() });
  const choice = new Choice({
    actions, filter, more: of, ready: () => outbox.ready(),
    after: (n, { requests }) => {
      outcome.follow(requests, "made due", () => list.load(), n);
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
    path: () => "/api/v1/parked?limit=50" + parameters({ ...filter(), ...of() }),
    shown: (items) => { outbox.take(items); choice.show(items); },
    lost: () => choice.hide(),
    missing: "This relay's API does not list parked events. The queues are in the table cdc_relay_parked.",
    none: () => (outbox.value() !== "" || fields.some(([name]) => inputs[name].value.trim() !== "")
      ? empty("None of these", "No key whose first parked event matches the filter.")
      : empty("Nothing is parked", "Every event goes straight through. When a topic or a partition is unavailable, its events wait here, in order, while everything else flows.")),
    head: () => [{ unseen: "choose", class: "tick" }, ...outbox.head(), { text: "key" }, { text: "queue" }, { text: "reason", class: "reason" }, { text: "next attempt" }, { unseen: "action" }],
    row: (item) => el("tr", {},
      choice.tick(item, item.key === null ? "event " + item.id : "key " + item.key),
      outbox.cell(item),
      el("td", {}, el("div", { class: "code strong" }, item.key === null ? "(no key)" : item.key), el("div", { class: "soft code" }, item.topic)),
      el("td", { class: "num queue" }, queue(item.events || 1), item.parked_at && el("div", { class: "soft", title: clock(item.parked_at) }, "first parked " + ago(item.parked_at))),
      el("td", {}, reason(item), el("details", {}, el("summary", { "data-key": "why " + keyOf(item) }, "details"),
        item.last_error && el("p", { class: "code small" }, item.last_error, " ", copy(item.last_error, "the last error")),
        el("p", { class: "soft small" }, "first event ", el("span", { class: "code" }, item.id), " ", copy(item.id, "the id"), " · ", el("bdi", {}, item.event_type || item.aggregate_type || ""), " · position " + item.position),
        command(chosen("cdc-relay retry now" + flag(item.outbox), { ids: [item.id] }), "the command that retries it"), runbook("parked", "parked events"))),
      el("td", { class: "num" }, item.next_retry_at ? el("span", { title: clock(item.next_retry_at) }, until(item.next_retry_at)) : "on recovery",
        el("div", { class: "soft" }, item.attempts === 1 ? "1 attempt" : count(item.attempts) + " attempts")),
      el("td", { class: "right" }, el("button", { type: "button", "data-key": "retry " + keyOf(item), onclick: () => choice.run(actions[0], [item]) }, "Retry now"))),
  });
  return {
    title: "Parked",
    node: el("div", { class: "page" }, outcome.node, el("section", { class: "card" },
      el("header", {}, el("h1", {}, "Parked events"), el("span", { class: "hint" }, "keys with waiting events; each queue keeps its order")),
      filters([outbox.fields, ...fields.map(([name]) => inputs[name])], usual + 1), choice.node, list.node)),
    enter: () => list.start(),
    leave: () => list.stop(),
  };
}
