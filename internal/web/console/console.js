// The frame of the console: which page is shown, the connection to the relay, alarms, the theme.

import { el, fill, toast, write } from "./dom.js";
import { follow, get, Refused, relay } from "./api.js";
import { clock, count } from "./format.js";
import { ask, post } from "./dialog.js";
import { forget, logOut, look, onChange, who } from "./session.js";
import { command, copy } from "./copy.js";
import { runbook } from "./runbooks.js";
import { overview } from "./overview.js";
import { parked } from "./parked.js";
import { dead } from "./dead.js";
import { inbox } from "./inbox.js";
import { find } from "./find.js";
import { system } from "./system.js";

const pages = { overview, parked, "dead-letters": dead, inbox, find, system };
const kept = 900; // points: a quarter of an hour
const roles = {
  starting: ["starting", "warn"], standby: ["standby", "quiet"], catch_up: ["catching up", "warn"], active: ["active", "good"], halted: ["halted", "bad"], stopping: ["stopping", "warn"],
};

const silent = 5000; // ms without a frame after which what is shown is old
const broken = 10000; // after which the connection is given up, as one to a frozen process is

let page;
let last;
let heard = null; // when the last frame came; null while none is expected
let feeding = new AbortController();
let points = [];
const by = (id) => document.getElementById(id);

function open() {
  const [wanted, given] = location.hash.replace("#/", "").split("?");
  const name = Object.hasOwn(pages, wanted) ? wanted : "overview";
  if (page && page.leave) page.leave();
  page = pages[name](new URLSearchParams(given));
  title();
  fill(by("main"), page.node);
  for (const link of document.querySelectorAll(".tabs a")) {
    if (link.getAttribute("href") === "#/" + name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (page.enter) page.enter();
  if (last && page.frame) page.frame(last, points);
}

const late = () => heard !== null && Date.now() - heard > silent;

function title() {
  document.title = (late() ? "No answer · " : "") + page.title + " · cdc-relay";
}

// watch shows that the values are old as soon as they are: a relay that is gone says nothing about it.
function watch() {
  const root = document.documentElement;
  if (!late()) {
    if (root.dataset.late === undefined) return;
    delete root.dataset.late;
    part("silence", null, () => null);
    title();
    return;
  }
  if (Date.now() - heard > broken) feeding.abort();
  if (root.dataset.late !== undefined) return;
  root.dataset.late = "yes";
  feed("waiting", "no answer");
  const since = new Date(heard).toLocaleTimeString();
  write(by("role"), "no answer since " + since);
  by("role").dataset.tone = "bad";
  part("silence", heard, () => el("div", { class: "alarm", "data-tone": "bad" }, el("h2", {}, "No answer from the relay since " + since),
    el("p", {}, "Everything below is from then. The process may have ended or be frozen, or the way to it is cut: events may wait, or another relay may publish them. ",
      el("strong", {}, "What to do: "), "run ", el("code", {}, "cdc-relay status"), " ", copy("cdc-relay status", "the command"), " on the relay's machine, and look at the process and its log. This page retries by itself.")));
  title();
}

function badge(id, n, what) {
  by(id).hidden = !n;
  write(by(id), count(n));
  by(id).setAttribute("aria-label", count(n) + " " + what);
}

function show(f) {
  last = f;
  heard = Date.now();
  watch();
  if (f.point && (!points.length || points[points.length - 1].at < f.point.at)) {
    points.push(f.point);
    if (points.length > kept) points.shift();
  }
  const s = f.status;
  const [name, tone] = pill(s);
  write(by("role"), name);
  by("role").dataset.tone = tone;
  write(by("service"), relay === null ? s.service : relay);
  badge("count-parked", s.parked_events, "parked events");
  badge("count-dead", s.dead_letters, "dead letters");
  alarms(s);
  if (page && page.frame) page.frame(f, points);
}

// pill is the state in a word or two; green is only what works and has nothing to wait for.
function pill(s) {
  const [name, tone] = roles[s.role] || [s.role, "quiet"];
  if (s.paused && s.role === "active") return ["paused", "warn"];
  if (tone === "good" && !s.ready) return [name + ", not ready", "bad"];
  if (tone === "good" && s.broker !== "ok" && !s.broker.startsWith("throttled")) return [name + ", broker in trouble", "warn"];
  if (s.state === "degraded") return [name + ", degraded", "warn"];
  return [name, tone];
}

// What is wrong, in three parts: each is drawn anew only when it says something else, so that a button stays where it
// is while a text beside it counts seconds.
const parts = { silence: "null", halt: "", paused: "", lost: "", others: "" };
function part(name, said, draw) {
  const text = JSON.stringify(said);
  if (parts[name] === text) return;
  parts[name] = text;
  const box = by("alarms-" + name);
  const inside = box.contains(document.activeElement);
  const key = inside ? document.activeElement.dataset.key : undefined;
  fill(box, draw());
  if (inside) ([...box.querySelectorAll("[data-key]")].find((n) => n.dataset.key === key) || by("main")).focus({ preventScroll: true });
}

function alarms(s) {
  const box = (tone, ...children) => el("div", { class: "alarm", "data-tone": tone }, ...children);
  part("halt", s.halt, () => s.halt && box("bad", el("h2", {}, "Halted: " + s.halt.reason),
    el("p", {}, el("strong", {}, "At risk: "), s.halt.risk, " ", copy(s.halt.reason + "\nAt risk: " + s.halt.risk + "\nWhat to do: " + s.halt.remedy, "the halt")),
    el("p", {}, el("strong", {}, "What to do: "), s.halt.remedy, " ", el("a", { href: s.halt.runbook }, "Runbook"))));
  part("paused", s.paused, () => s.paused && box("warn", el("h2", {}, "Paused by " + s.paused.by),
    el("p", {}, "Since " + clock(s.paused.since) + (s.paused.note ? ": " + s.paused.note : "") + ". The relay consumes nothing; Postgres keeps its WAL: up to wal.budget, or all of it if that is 0. ", runbook("paused", "pause")),
    el("div", { class: "actions" }, el("button", { type: "button", id: "resume", "data-key": "resume", onclick: resume }, "Resume…"))));
  part("lost", s.alarms || [], () => (s.alarms || []).map((a) => {
    const repair = a.repair ? ["run ", el("code", {}, a.repair), " ", copy(a.repair, "the repair"), a.repair.includes(" --outbox ") ? ", for each outbox" : "", ": it names every event that the topic has lost, and publishes those again. Then "] : [];
    return box("bad", el("h2", {}, "Alarm: " + a.kind.replaceAll("_", " ") + ", topic " + a.topic),
      el("p", {}, a.text, a.count > 1 ? ". Seen " + a.count + " times since " + new Date(a.first_seen_at).toLocaleString() + "." : ""),
      el("p", {}, el("strong", {}, "What to do: "), ...repair, a.id > 0 ? ["acknowledge it here, or by ", el("code", {}, "cdc-relay alarms ack " + a.id), " ", copy("cdc-relay alarms ack " + a.id, "the command that acknowledges it")] : "acknowledge it here", ". ",
        runbook("alarm", "alarms")),
      a.id > 0 && el("div", { class: "actions" }, el("button", { type: "button", "data-key": "acknowledge " + a.id, onclick: () => acknowledge(a) }, "Acknowledge…")));
  }));
  const others = s.reasons.filter((r) => !(s.halt && r.startsWith("halted (")) && !(s.paused && r.startsWith("paused ")));
  const degraded = s.degraded.filter((d) => d.reason !== "alarm"); // those stand above
  part("others", [s.ready, others, degraded], () => [
    others.length > 0 && box("warn", el("h2", {}, s.ready ? "Needs a look" : "Not ready"), el("ul", {}, others.map((r) => el("li", {}, r, " ", copy(r, "the reason")))), el("p", {}, runbook("not ready", "problems that don't halt the relay"))),
    degraded.length > 0 && box("warn", el("h2", {}, "Degraded: events flow, and something needs a look"),
      el("ul", {}, degraded.map((d) => el("li", {}, d.text, " ", copy(d.text, "the reason"), " ", runbook(d.reason))))),
  ]);
}

async function acknowledge(a) {
  const done = await ask({
    title: "Acknowledge this alarm?", action: "Acknowledge", note: true,
    text: "Topic " + a.topic + ": " + a.text + ". It is not shown, counted or alerted on any more; what the topic lost stays lost until it is repaired. If it happens again, that is a new alarm.",
    more: [command("cdc-relay alarms ack " + a.id, "the command that does the same")],
    run: (note) => post("/api/v1/alarms/ack", { ids: [a.id], note }),
  });
  if (done) toast("Acknowledged. The alarm is gone within seconds.");
}

async function resume() {
  let asked;
  const done = await ask({
    title: "Resume the relay?", action: "Resume", note: true, text: "It goes on where it was.",
    more: [command("cdc-relay resume", "the command that does the same")],
    run: async (note) => { asked = await post("/api/v1/resume", { note }); },
  });
  if (done) toast("Resume requested, as request " + asked.request + ".");
}

function feed(state, text) {
  by("feed").dataset.state = state;
  write(by("feed"), text);
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function feedForever() {
  for (let pause = 500; ; pause = Math.min(pause * 2, 5000)) {
    try {
      points = (await get("/api/v1/history", AbortSignal.timeout(broken))).points || [];
      feeding = new AbortController();
      await follow("/api/v1/stream", (f) => { pause = 500; feed("live", "live"); show(f); }, feeding.signal);
      feed("waiting", "reconnecting");
    } catch (error) {
      if (error instanceof Refused && error.status === 401) {
        feed("waiting", "needs the token");
        heard = null;
        watch();
        forget();
        await ask({ title: "This relay needs its token", action: "Log in", must: true });
        pause = 500;
        continue;
      }
      feed("waiting", "no answer; retrying");
    }
    await sleep(pause);
  }
}

onChange((name, changes) => {
  by("session").hidden = !changes;
  fill(by("session"), name === null ? "Log in" : [el("span", { class: "name" }, name), el("span", {}, " · Log out")]);
});
by("session").addEventListener("click", async () => {
  if (who() === null) {
    await ask({ title: "Log in", action: "Log in", text: "With the token of the relay, for what changes something." });
    return;
  }
  await logOut();
  toast("Logged out in this browser.");
});

const themes = ["auto", "light", "dark"];
function theme(name) {
  if (name === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = name;
  write(by("theme-name"), name);
  try { localStorage.setItem("theme", name); } catch { /* a private window forgets it */ }
  if (page && page.redraw) page.redraw();
  if (last && page && page.frame) page.frame(last, points);
}
let chosen = "auto";
try { chosen = localStorage.getItem("theme") || "auto"; } catch { /* a private window has none */ }
if (!themes.includes(chosen)) chosen = "auto";
by("theme").addEventListener("click", () => { chosen = themes[(themes.indexOf(chosen) + 1) % themes.length]; theme(chosen); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme(chosen));
addEventListener("resize", () => { if (last && page && page.frame) page.frame(last, points); });
addEventListener("hashchange", () => { if (!location.hash.startsWith("#/")) return; open(); if (!by("main").contains(document.activeElement)) by("main").focus({ preventScroll: true }); scrollTo(0, 0); });
addEventListener("unhandledrejection", (event) => toast(String(event.reason), "bad"));

theme(chosen);
if (relay !== null) by("all").hidden = false;
look();
open();
setInterval(watch, 1000);
feedForever();
