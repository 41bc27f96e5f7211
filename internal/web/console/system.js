// The slot, what happened lately, and the configuration without its secrets.

import { el, empty, fill, write } from "./dom.js";
import { ago, bytes, clock, count, rate, seconds, span } from "./format.js";
import { get } from "./api.js";

const walWords = {
  reserved: "within max_wal_size, as usual",
  extended: "more than max_wal_size is kept, within the limit if there is one",
  unreserved: "beyond the limit: it may be lost at the next checkpoint",
  lost: "lost: Postgres has invalidated the slot, most often because WAL that it still needed was removed",
};

const noteWords = {
  role: { starting: "starting", standby: "standing by: another relay holds the slot", catch_up: "publishing rows that are older than the slot", active: "streaming", halted: "halted", stopping: "stopping" },
  restart: { connection: "no session with Postgres; trying again", silent: "Postgres did not answer for wal_sender_timeout; connecting again", server_shutdown: "Postgres shut down; connecting again", lease_lost: "another relay took over" },
};

// serverWords say what the server's side of the stream is at.
const serverWords = {
  caught_up: "has worked through the WAL",
  sending: "sends events",
  decoding: "works through WAL without events for this relay, or through a large transaction before its end; later events wait for the server, not for the relay",
  blocked: "could go on; the relay or the network takes nothing",
};

// server says it, as far as it can be told.
function server(w) {
  if (!w) return "not known to this process";
  const text = serverWords[w.state] || "unknown";
  const left = w.state === "caught_up" ? "" : "; " + bytes(w.behind_bytes) + " to go, the oldest for " + seconds(w.behind_seconds) + (w.wait_event ? ", now in " + w.wait_event : "");
  return text + left + (w.spilled_transactions > 0 ? "; " + count(w.spilled_transactions) + " transactions larger than logical_decoding_work_mem so far, " + bytes(w.spilled_bytes) + " of them in files" : "");
}

// marks says how far the rows of the outbox are marked or deleted, which comes after publishing.
function marks(s, point) {
  if (s.mirror_lag_events === null) return "not known to this process";
  const now = point ? rate(point.marked) + " rows per second" : "";
  if (s.mirror_lag_events === 0) return "nothing waits" + (point && point.marked > 0 ? "; " + now : "");
  return count(s.mirror_lag_events) + " published rows wait to be marked or deleted, the oldest for " + seconds(s.mirror_lag_seconds) + (now ? "; " + now : "");
}

export function system() {
  const facts = {};
  const fact = (name, text) => [el("dt", {}, text), facts[name] = el("dd", {}, "–")];
  const gauge = el("div", { class: "gauge tall", hidden: true }, el("i")); // until there is something to show
  const slotBox = el("section", { class: "card" }, el("header", {}, el("h2", {}, "Slot and write-ahead log"), el("span", { class: "hint", id: "slot-name" })),
    gauge, el("dl", {}, fact("state", "state"), fact("retained", "kept for the slot"), fact("safe", "until the limit"), fact("confirmed", "confirmed"), fact("restart", "kept from"), fact("end", "end of WAL"), fact("server", "the server")));
  const process = el("section", { class: "card" }, el("header", {}, el("h2", {}, "Process")),
    el("dl", {}, fact("role", "role"), fact("version", "version"), fact("up", "up for"), fact("epoch", "epoch"), fact("broker", "broker"), fact("marks", "marks"), fact("error", "last error")));
  const notes = el("ol", { class: "notes" });
  const rows = el("tbody");
  const changed = el("input", { type: "checkbox", id: "only-changed", checked: true, onchange: () => showConfig() });
  let settings = [];
  let noted = -1;

  function showConfig() {
    const shown = settings.filter((s) => !changed.checked || !s.default);
    fill(rows, shown.map((s) => el("tr", { class: s.default ? "" : "changed" }, el("td", { class: "code" }, s.key), el("td", { class: "code" }, s.value || "–"), el("td", { class: "soft" }, s.help))));
  }

  async function load() {
    try {
      settings = (await get("/api/v1/config")).items;
      showConfig();
    } catch (error) {
      fill(rows, el("tr", {}, el("td", {}, error.message)));
    }
  }

  async function loadNotes() {
    try {
      const { items } = await get("/api/v1/notes");
      fill(notes, items.length ? items.map((n) => el("li", { "data-kind": n.kind },
        el("time", { dateTime: n.at, title: clock(n.at) }, ago(n.at)),
        el("div", {}, el("strong", {}, n.kind === "halt" ? "halted (" + n.code + ")" : (noteWords[n.kind] || {})[n.code] || n.code), n.text && el("p", { class: "soft" }, n.text))))
        : empty("Nothing has happened yet", "Changes of role, halts and restarts of the stream appear here."));
    } catch (error) {
      fill(notes, el("li", {}, error.message));
    }
  }

  return {
    title: "System",
    node: el("div", { class: "page" }, el("h1", { class: "unseen" }, "System"),
      el("div", { class: "pair" }, slotBox, process),
      el("section", { class: "card" }, el("header", {}, el("h2", {}, "Recent events"), el("span", { class: "hint" }, "roles, halts and restarts of this process")), notes),
      el("section", { class: "card" }, el("header", {}, el("h2", {}, "Configuration"), el("span", { class: "hint" }, "without secrets"), el("span", { class: "grow" }),
        el("label", { class: "check", for: "only-changed" }, changed, "only changed keys")),
      el("div", { class: "scroll" }, el("table", { class: "rows config" }, el("thead", {}, el("tr", {}, el("th", {}, "key"), el("th", {}, "value"), el("th", {}, "meaning"))), rows)))),
    enter: load,
    frame(f) {
      const s = f.status;
      const w = f.slot;
      write(slotBox.querySelector("#slot-name"), s.slot);
      if (w) {
        write(facts.state, (w.active ? "active" : "not active") + (w.wal_status ? " · " + (walWords[w.wal_status] || w.wal_status) : ""));
        write(facts.retained, bytes(w.retained_wal_bytes));
        write(facts.safe, w.safe_wal_bytes === null ? "no limit (max_slot_wal_keep_size is -1)" : bytes(w.safe_wal_bytes));
        write(facts.confirmed, w.confirmed_lsn);
        write(facts.restart, w.restart_lsn);
        write(facts.end, w.wal_end_lsn);
        const share = w.safe_wal_bytes === null ? 0 : w.retained_wal_bytes / Math.max(1, w.retained_wal_bytes + w.safe_wal_bytes);
        gauge.hidden = w.safe_wal_bytes === null;
        gauge.firstChild.style.width = Math.min(100, share * 100).toFixed(1) + "%";
        gauge.dataset.tone = share > 0.8 ? "bad" : share > 0.5 ? "warn" : "quiet";
      } else {
        write(facts.state, "not known to this process");
        gauge.hidden = true;
      }
      write(facts.server, server(s.walsender));
      write(facts.role, s.role + " since " + ago(s.role_since));
      write(facts.version, s.version);
      write(facts.up, span((Date.now() - new Date(s.started_at)) / 1000));
      write(facts.epoch, s.epoch === null ? "–" : String(s.epoch));
      write(facts.broker, s.broker);
      write(facts.marks, marks(s, f.point));
      write(facts.error, s.last_error ? s.last_error + " (" + ago(s.last_error_at) + (s.last_error_over ? "; over)" : ")") : "none");
      if (f.noted !== noted) {
        noted = f.noted;
        loadNotes();
      }
    },
  };
}
