// What consumers hold back: dead letters and parked events in their inbox, why, what they carry, and what can be done.

import { el, empty, fill, toast } from "./dom.js";
import { ago, clock, count, until } from "./format.js";
import { get, parameters } from "./api.js";
import { Choice } from "./choice.js";
import { chosen, command, copy, word } from "./copy.js";
import { modal } from "./dialog.js";
import { List, filters } from "./list.js";
import { payload } from "./payload.js";
import { runbook } from "./runbooks.js";

const fields = [["id", "event id"], ["key", "message key"], ["type", "event type"], ["topic", "topic"], ["class", "class: permanent, exhausted"],
  ["newer_than", "since at most: 24h"], ["older_than", "for at least: 7d"]];
const usual = 5;
const states = [["dead", "Dead"], ["parked", "Parked"], ["replayed", "Replayed"], ["discarded", "Discarded"]];
const none = {
  dead: ["No dead letters", "An event that a handler refuses permanently is kept here, with its payload and the reason, until it is replayed or discarded."],
  parked: ["Nothing is parked", "Every event had its effect. One that fails waits here, in order with what follows of its key, while everything else goes on."],
  replayed: ["None", "No dead letter has been replayed yet."],
  discarded: ["None", "No event has been discarded yet."],
};
const classes = {
  permanent: "the handler said that it never works", exhausted: "the last attempt failed", process: "it ended its process", discarded: "it was given up by hand",
  transient: "it failed, and is tried again", replay: "a dead letter that is tried again",
};

// Given is what the address of the page says to show: a consumer, a state, and filters.
export function inbox(given) {
  let consumer = given.get("consumer") || "";
  let state = states.some(([name]) => name === given.get("state")) ? given.get("state") : "dead";
  const inputs = {};
  for (const [name, text] of fields) {
    inputs[name] = el("input", { type: "search", id: "filter-" + name, placeholder: text, "aria-label": text, value: given.get(name) || "", onchange: () => again() });
  }
  const filter = () => Object.fromEntries(fields.map(([name]) => [name, inputs[name].value.trim()]));
  const flags = (of) => " --consumer=" + word(of.consumer) + (of.state === "parked" ? " --state=parked" : "");
  const act = (kind, more) => ({ kind, path: "/api/v1/inbox/" + kind, line: "cdc-relay inbox " + kind, one: "event", ...more });
  const actions = {
    dead: [
      act("replay", { verb: "Replay", thing: "dead letter", class: "main", none: "No dead letter that could be replayed matches.",
        text: "The consumer handles it again within seconds, once. Later events of its key may have had their effects before it.",
        many: "The consumer handles them again within seconds, each once, each key in its order. Later events of their keys may have had their effects before them." }),
      act("discard", { verb: "Discard", thing: "dead letter", class: "danger", none: "No dead letter that could be discarded matches.",
        text: "It never has its effect. It stays in the table, marked as discarded, with your note.",
        many: "They never have their effects. They stay in the table, marked as discarded, with your note." }),
    ],
    parked: [
      act("replay", { verb: "Try now", thing: "parked event", class: "main", none: "No parked event matches.",
        text: "It becomes due at once, with those of its key in front of it. Those behind it follow when it succeeds.",
        many: "They become due at once, with those of their keys in front of them. Those behind them follow when they succeed." }),
      act("discard", { verb: "Discard", thing: "parked event", class: "danger", none: "No parked event matches.",
        text: "It never has its effect; what waits behind it goes on. It is kept among the discarded, with your note.",
        many: "They never have their effects; what waits behind them goes on. They are kept among the discarded, with your note." }),
    ],
  };
  const done = { replay: "replayed", discard: "discarded" };
  const choices = {};
  for (const which of Object.keys(actions)) {
    choices[which] = new Choice({
      actions: actions[which], filter, counts: () => "/api/v1/inbox/count?", more: () => ({ consumer, state: which }), flags,
      after: (n, answer, action) => {
        const left = n - answer.done;
        toast(count(answer.done) + " of " + count(n) + " " + done[action.kind] + (left > 0 ? "; the others were handled, replayed or discarded in the meantime" : "") + ".");
        if (detail.open) detail.close();
        list.load();
        all.load();
      },
    });
  }
  const bulk = el("div", {});
  function again() {
    for (const choice of Object.values(choices)) choice.clear();
    list.pages = 1;
    list.seen = "";
    for (const b of tabs.children) b.setAttribute("aria-pressed", String(b.dataset.key === "state " + state));
    fill(bulk, choices[state] && choices[state].node);
    if (consumer) list.load();
    else list.stop();
  }

  // anew is for another list, of which nothing is known yet: what was shown when it was looked at last is not meant.
  function anew() {
    for (const choice of Object.values(choices)) choice.show([]);
    again();
  }

  // turnTo shows what a consumer holds back, and nothing any more of the one before: the same event may be in both.
  function turnTo(name) {
    consumer = name;
    list.of = name;
    list.stopped = all.stopped;
    events.hidden = !name;
    fill(title, "Events of ", el("bdi", {}, name));
    fill(list.node);
    anew();
  }

  const all = new List({
    path: () => "/api/v1/inbox?",
    shown: (items) => {
      const name = items.some((item) => item.name === consumer) ? consumer : items.length ? items[0].name : "";
      if (list.of !== name) turnTo(name);
    },
    none: () => empty("No consumer yet", "The inbox is there, and no consumer has handled anything with it."),
    head: () => [{ text: "consumer" }, { text: "parked" }, { text: "dead letters" }, { text: "progress" }],
    row: (item) => el("tr", {},
      el("td", {}, el("button", { type: "button", class: "link strong", "data-key": "consumer " + item.name, "aria-pressed": String(item.name === consumer), onclick: () => { turnTo(item.name); all.seen = ""; all.load(); } }, el("bdi", {}, item.name)),
        item.name === consumer && el("span", { class: "soft" }, " · shown below")),
      el("td", { class: "num" }, item.parked_events ? count(item.parked_events) + (item.parked_events === 1 ? " event of " : " events of ") + count(item.parked_keys) + (item.parked_keys === 1 ? " key" : " keys") : "none parked",
        item.parked_since && el("div", { class: "soft", title: clock(item.parked_since) }, "the first " + ago(item.parked_since))),
      el("td", { class: "num" }, item.dead_letters ? count(item.dead_letters) + " open" : "none dead"),
      el("td", { class: "num" }, item.progress_at ? el("span", { title: clock(item.progress_at) }, "offsets " + ago(item.progress_at)) : "no offsets", el("div", { class: "soft" }, count(item.partitions) + (item.partitions === 1 ? " partition" : " partitions")))),
  });

  const next = (item) => item.held ? "when a person decides" : item.next_retry_at ? el("span", { title: clock(item.next_retry_at) }, until(item.next_retry_at)) : "behind another";
  const list = new List({
    path: () => "/api/v1/inbox/events?limit=50" + parameters({ consumer, state, ...filter() }),
    shown: (items) => { if (choices[state]) choices[state].show(items); },
    none: () => (fields.some(([name]) => inputs[name].value.trim() !== "") ? empty("None of these", "No event that is " + state + " matches the filter.") : empty(...none[state])),
    head: () => [{ unseen: "choose", class: "tick" }, { text: "event" }, { text: "reason", class: "reason" }, { text: state === "parked" ? "next attempt" : "when" }],
    row: (item) => el("tr", {},
      choices[state] ? choices[state].tick(item, "event " + item.id) : el("td", { class: "tick" }),
      el("td", {}, el("button", { type: "button", class: "link strong", "data-key": "show " + item.id, onclick: () => show(item.id) }, item.event_type || item.id),
        el("div", { class: "soft code" }, el("bdi", {}, item.key === null ? "no key" : item.key), " ← ", el("bdi", {}, item.topic)),
        item.events > 1 && el("div", { class: "soft" }, count(item.events - 1) + " of its key behind it")),
      el("td", {}, el("span", { class: "tag" }, item.class), " ", el("span", { class: "clip" }, item.last_error),
        item.resolved_by && el("div", { class: "soft" }, el("bdi", {}, state + " by " + item.resolved_by + (item.note ? ": " + item.note : "")))),
      el("td", { class: "num" }, state === "parked" ? next(item) : el("span", { title: clock(item.at) }, ago(item.at)), el("div", { class: "soft" }, item.attempts === 1 ? "1 attempt" : count(item.attempts) + " attempts"))),
  });

  const detail = el("dialog", { class: "detail", "aria-label": "Event of a consumer" });
  async function show(id) {
    const of = consumer; // the dialog stays about this one
    let item;
    try {
      item = await get("/api/v1/inbox/events/" + encodeURIComponent(id) + "?payload=text&consumer=" + encodeURIComponent(of));
    } catch (error) {
      toast(error.message, "bad");
      return;
    }
    const fact = (name, value, more) => value !== null && value !== undefined && value !== "" && [el("dt", {}, name), el("dd", { class: "code" }, String(value), " ", more)];
    const own = actions[item.state] || [];
    const more = { consumer: of, state: item.state };
    fill(detail,
      el("header", {}, el("h2", {}, item.event_type || "Event"), el("button", { type: "button", class: "plain", id: "close-detail", onclick: () => detail.close() }, "Close")),
      el("p", { class: "why" }, el("span", { class: "tag" }, item.class), " ", item.last_error, " ", copy(item.class + ": " + item.last_error, "the reason"), " ", runbook("inbox", "events of consumers")),
      el("dl", {}, fact("state", item.state + (classes[item.class] ? ": " + classes[item.class] : "")), fact("id", item.id, copy(item.id, "the id")), fact("source", item.source),
        fact("topic", item.topic), fact("place", "partition " + item.partition + ", offset " + item.offset), fact("key", item.key === null ? "(no key)" : item.key, item.key && copy(item.key, "the key")),
        fact("attempts", item.attempts), fact("sent", item.sent_at && clock(item.sent_at)), fact(item.state === "parked" ? "parked" : "died", clock(item.at)),
        item.state === "parked" && [el("dt", {}, "next"), el("dd", {}, next(item))], fact("replayed", item.replayed_at && clock(item.replayed_at)),
        fact("discarded", item.discarded_at && clock(item.discarded_at)), fact("by", item.resolved_by), fact("note", item.note)),
      el("h3", {}, "Payload"),
      item.payload_hidden ? el("p", { class: "soft" }, "Payloads are not shown: http.show_payloads is false.") : payload(item),
      item.headers && item.headers.length > 0 && [el("h3", {}, "Headers"), el("pre", { class: "code", tabIndex: 0 }, item.headers.map((h) => h.name + ": " + h.value).join("\n"))],
      own.length > 0 && [el("h3", {}, "On the command line"), command(chosen(own[0].line + flags(more), { ids: [item.id] }), "the command that does it"),
        el("div", { class: "actions" }, own.toReversed().map((a) => el("button", { type: "button", class: a.class, "data-key": a.kind + " this", onclick: () => choices[item.state].run(a, [item], more) }, a.verb + "…")))]);
    if (!detail.open) modal(detail, detail.querySelector("#close-detail"));
  }

  const tabs = el("div", { class: "segments", role: "group", "aria-label": "Which" }, states.map(([name, text]) =>
    el("button", { type: "button", "data-key": "state " + name, "aria-pressed": String(name === state), onclick: () => { state = name; anew(); } }, text)));
  const title = el("h2", {});
  const events = el("section", { class: "card", hidden: true }, el("header", {}, title, tabs), filters(fields.map(([name]) => inputs[name]), usual), bulk, list.node);
  return {
    title: "Inbox",
    node: el("div", { class: "page" }, el("section", { class: "card" },
      el("header", {}, el("h1", {}, "Consumers"), el("span", { class: "hint" }, "what their inbox holds back; the effects of everything else are done")), all.node), events, detail),
    enter: () => all.start(),
    leave: () => { all.stop(); list.stop(); },
  };
}
