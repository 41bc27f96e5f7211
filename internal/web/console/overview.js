// What flows, as a picture with live numbers, and the last quarter of an hour as plots.

import { el, fill, toast, write } from "./dom.js";
import { bytes, count, rate, seconds, span } from "./format.js";
import { Plot } from "./plots.js";
import { ask, post } from "./dialog.js";
import { command } from "./copy.js";

function stage(name, title, what) {
  const big = el("b", { class: "big", id: "now-" + name }, "–");
  const unit = el("span", { class: "unit" });
  const lines = [el("p", { class: "line" }), el("p", { class: "line soft" })];
  const node = el("li", { class: "stage", "data-stage": name }, el("h2", { title: what }, title), el("div", { class: "number" }, big, unit), lines);
  return { node, show: (number, of, first, second) => { write(big, number); write(unit, of); write(lines[0], first); write(lines[1], second); } };
}

function side(name, title, link) {
  const big = el("b", { class: "big", id: "now-" + name }, "–");
  const line = el("p", { class: "line" });
  const node = el("a", { class: "side", href: link, "data-tone": "quiet" }, el("h2", {}, title), el("div", { class: "number" }, big), line);
  return { node, show: (number, tone, text) => { write(big, number); write(line, text); node.dataset.tone = tone; } };
}

// Writers of one aggregate that overlapped: see docs/emit.md.
const interleaved = (i) => i && i.total > 0 ? ", " + count(i.total) + " interleaved" : "";
const pairs = (i) => i && i.total > 0
  ? "Writers of one aggregate overlapped, inserted first and committed last:\n" +
    i.last.map((p) => p.aggregate_type + "/" + p.aggregate_id + ": " + p.event + " behind " + p.before).join("\n") + "\nSee docs/emit.md."
  : "";

const at = (lsn) => (lsn === null ? "no position yet" : "WAL " + lsn);

function parkedWords(s) {
  if (s.parked_events === null) return "not known to this process";
  if (s.held_keys > 0) {
    const waits = s.oldest_pending_age_seconds > 0 && s.parked_events > 0 ? "; the oldest for " + seconds(s.oldest_pending_age_seconds) : "";
    return "in " + count(s.held_keys) + (s.held_keys === 1 ? " key" : " keys") + waits;
  }
  return s.parked_events > 0 ? "without a key" : "no key is waiting";
}

function deadWords(n) {
  if (n === null) return "not known to this process";
  return n === 0 ? "none is open" : n === 1 ? "open: decide what becomes of it" : "open: decide what becomes of them";
}

async function pause() {
  let asked;
  const done = await ask({
    title: "Pause the relay?", action: "Pause", note: true,
    text: "It stays paused, even across restarts, until someone resumes it. Events already read are sent, parked events are retried, and Postgres keeps its WAL: up to wal.budget, or all of it if that is 0.",
    more: [command("cdc-relay pause", "the command that does the same")],
    run: async (note) => { asked = await post("/api/v1/pause", { note }); },
  });
  if (done) toast("Pause requested, as request " + asked.request + ". The page shows when it holds.");
}

export function overview() {
  const stream = stage("stream", "Stream", "What Postgres sends: committed rows of the outbox, from the write-ahead log");
  const flight = stage("flight", "In flight", "In memory: being sent, or waiting for its outcome to be recorded");
  const settled = stage("settled", "Settled", "Outcomes that are recorded in Postgres");
  const confirmed = stage("confirmed", "Confirmed", "Postgres may drop the write-ahead log up to here");
  const window_ = el("div", { class: "gauge" }, el("i"));
  flight.node.append(window_);
  const flow = el("ol", { class: "flow", "data-flows": "no" },
    stream.node, el("li", { class: "pipe", "aria-hidden": "true" }), flight.node, el("li", { class: "pipe", "aria-hidden": "true" }),
    settled.node, el("li", { class: "pipe", "aria-hidden": "true" }), confirmed.node);
  const parked = side("parked", "Parked", "#/parked");
  const dead = side("dead", "Dead letters", "#/dead-letters");
  const broker = side("broker", "Broker", "#/system");
  const slot = side("slot", "WAL kept", "#/system");

  const plots = [
    new Plot({
      title: "Throughput", hint: "events per second", format: rate, least: 10,
      lines: [
        { name: "received", style: "a", fill: true, value: (p) => p.received },
        { name: "published", style: "b", value: (p) => p.published },
        { name: "dead", style: "d", value: (p) => p.dead },
      ],
    }),
    new Plot({
      title: "Latency", hint: "from the WAL to the broker's acknowledgement, logarithmic", format: seconds, logarithmic: true,
      lines: [
        { name: "p50", style: "a", value: (p) => p.relay_p50 },
        { name: "p95", style: "b", value: (p) => p.relay_p95 },
        { name: "p99", style: "c", value: (p) => p.relay_p99 },
      ],
    }),
    new Plot({
      title: "Lag", hint: "age of the oldest event without an outcome, parked events included", format: seconds, least: 1,
      lines: [{ name: "lag", style: "a", fill: true, value: (p) => p.lag_seconds }],
    }),
    new Plot({
      title: "Backlog", hint: "committed events without an outcome", format: count, least: 10,
      lines: [
        { name: "backlog", style: "a", fill: true, value: (p) => p.backlog },
        { name: "in flight", style: "b", value: (p) => p.in_flight },
      ],
    }),
  ];
  const topics = el("tbody");
  const more = el("p", { class: "soft" });
  const pausing = el("button", { type: "button", id: "pause", "data-key": "pause", hidden: true, onclick: pause }, "Pause…");
  const node = el("div", { class: "page" },
    el("h1", { class: "unseen" }, "Overview"),
    el("section", { class: "card pipeline", "aria-label": "The pipeline" }, flow, el("div", { class: "sides" }, parked.node, dead.node, broker.node, slot.node),
      el("div", { class: "actions" }, pausing)),
    el("div", { class: "plots" }, plots.map((p) => p.node)),
    el("section", { class: "card" }, el("header", {}, el("h2", {}, "Topics"), el("span", { class: "hint" }, "acknowledged by the broker")),
      el("div", { class: "scroll" }, el("table", { class: "topics" },
        el("thead", {}, el("tr", {}, el("th", {}, "topic"), el("th", { class: "right" }, "per second"), el("th", { class: "wide" }, el("span", { class: "unseen" }, "share")), el("th", { class: "right" }, "since the start"))),
        topics)), more));

  function showTopics(list, others) {
    const most = Math.max(1, ...list.map((t) => t.per_second));
    fill(topics, list.length
      ? list.map((t) => el("tr", {}, el("td", { class: "code" }, t.topic), el("td", { class: "right num" }, rate(t.per_second)),
        el("td", { class: "wide" }, el("meter", { class: "bar", min: 0, max: most, value: t.per_second, "aria-label": "share of the busiest" })),
        el("td", { class: "right num" }, count(t.total))))
      : el("tr", {}, el("td", { colSpan: 4, class: "soft" }, "Nothing was published since this process started.")));
    write(more, others ? "and " + count(others) + " quieter topics" : "");
  }

  return {
    node,
    title: "Overview",
    frame(f, points) {
      const s = f.status;
      const p = f.point || {};
      const away = Boolean(s.paused) || (s.role !== "active" && s.role !== "catch_up");
      if (away && document.activeElement === pausing) document.getElementById("main").focus({ preventScroll: true });
      pausing.hidden = away;
      flow.dataset.stopped = s.broker !== "ok" || s.role === "halted" || s.paused ? "yes" : "no";
      flow.dataset.flows = p.received > 0 || p.settled > 0 ? (Math.max(p.received, p.settled) > 500 ? "fast" : "slow") : "no";
      stream.show(rate(p.received), "/s", count(s.events_received_total) + " received" + interleaved(s.interleaved), at(s.received_lsn));
      stream.node.title = pairs(s.interleaved);
      flight.show(count(s.in_flight_events), "", bytes(s.in_flight_bytes) + " in memory", count(s.unrecorded_events) + " sent, not yet recorded");
      const share = Math.max(s.in_flight_events / Math.max(f.window_events, 1), s.in_flight_bytes / Math.max(f.window_bytes, 1));
      window_.firstChild.style.width = Math.min(100, share * 100).toFixed(1) + "%";
      window_.dataset.tone = share > 0.9 ? "warn" : "quiet";
      window_.title = (share * 100).toFixed(0) + " % of limits.in_flight_events or in_flight_bytes";
      settled.show(rate(p.settled), "/s", count(s.events_settled_total) + " recorded", s.looking_up ? "looking up redelivered events" : "in the journal");
      confirmed.show(seconds(s.replication_lag_seconds), s.replication_lag_seconds === null ? "" : " behind",
        s.replication_lag_bytes === null ? "not known" : bytes(s.replication_lag_bytes) + " of WAL to go", at(s.confirmed_lsn));
      parked.show(count(s.parked_events), s.parked_events > 0 || s.held_keys > 0 ? "warn" : "quiet", parkedWords(s));
      dead.show(count(s.dead_letters), s.dead_letters > 0 ? "bad" : "quiet", deadWords(s.dead_letters));
      const well = s.broker === "ok";
      broker.show(well ? "OK" : s.broker.split(":")[0], well ? "quiet" : "warn", well ? "accepts events" : s.broker.split(": ").slice(1).join(": "));
      const w = f.slot;
      broker.node.title = s.broker;
      slot.show(w ? bytes(w.retained_wal_bytes) : "–", w && (w.wal_status === "unreserved" || w.wal_status === "lost") ? "bad" : w && w.wal_status === "extended" ? "warn" : "quiet",
        (!w ? "not known to this process" : w.safe_wal_bytes === null ? "no limit is set" : bytes(w.safe_wal_bytes) + " until the limit") +
        (s.spooled_events > 0 ? "; " + count(s.spooled_events) + " events are spooled" : ""));
      for (const plot of plots) plot.show(points);
      showTopics(f.topics || [], f.other_topics);
      node.querySelector(".pipeline").setAttribute("aria-label", "The pipeline: up for " + span((Date.now() - new Date(s.started_at)) / 1000));
    },
    redraw() { for (const plot of plots) { plot.destroy(); } },
    leave() { for (const plot of plots) plot.destroy(); },
  };
}
