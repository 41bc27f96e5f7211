// Keys that wait, with the reasons in words.

import { el, empty } from "./dom.js";
import { ago, clock, count, until } from "./format.js";
import { ask, post } from "./dialog.js";
import { List } from "./list.js";
import { Outcome } from "./outcome.js";

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

export function parked() {
  const list = new List({
    path: () => "/api/v1/parked?limit=50",
    missing: "This relay's API does not list parked events. The queues are in the table cdc_relay_parked.",
    none: () => empty("Nothing is parked", "Every event goes straight through. When a topic or a partition is unavailable, its events wait here, in order, while everything else flows."),
    head: () => [{ text: "key" }, { text: "queue" }, { text: "reason", class: "reason" }, { text: "next attempt" }, { text: "" }],
    row: (item) => el("tr", {},
      el("td", {}, el("div", { class: "code strong" }, item.key === null ? "(no key)" : item.key), el("div", { class: "soft code" }, item.topic)),
      el("td", { class: "num queue" }, queue(item.events || 1), item.parked_at && el("div", { class: "soft", title: clock(item.parked_at) }, "first parked " + ago(item.parked_at))),
      el("td", {}, reason(item), item.last_error && el("details", {}, el("summary", { "data-key": "why " + item.id }, "last error"),
        el("p", { class: "code small" }, item.last_error),
        el("p", { class: "soft small" }, "first event " + item.id + " · " + (item.event_type || item.aggregate_type || "") + " · position " + item.position))),
      el("td", { class: "num" }, item.next_retry_at ? el("span", { title: clock(item.next_retry_at) }, until(item.next_retry_at)) : "on recovery",
        el("div", { class: "soft" }, item.attempts === 1 ? "1 attempt" : count(item.attempts) + " attempts")),
      el("td", { class: "right" }, el("button", { type: "button", "data-key": "retry " + item.id, onclick: () => retry(item) }, "Retry now"))),
  });
  async function retry(item) {
    let asked;
    const done = await ask({
      title: "Retry this key now?", action: "Retry now",
      text: "The first event of " + (item.key === null ? "this entry" : "key “" + item.key + "”") + " becomes due at once; those behind it follow when it succeeds. What waits until its topic recovers is looked at all the time, and is left alone.",
      run: async () => { asked = await post("/api/v1/retry", { ids: [item.id] }); },
    });
    if (done) outcome.follow(asked.request, "made due", () => list.load());
    list.load();
  }
  return {
    title: "Parked",
    node: el("div", { class: "page" }, outcome.node, el("section", { class: "card" },
      el("header", {}, el("h1", {}, "Parked events"), el("span", { class: "hint" }, "keys with waiting events; each queue keeps its order")), list.node)),
    enter: () => list.start(),
    leave: () => list.stop(),
  };
}
