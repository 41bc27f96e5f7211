// The frame of the console: which page is shown, the connection to the relay, alarms, the theme.

import { el, fill, toast, write } from "./dom.js";
import { follow, get, hasToken, setToken, Refused } from "./api.js";
import { count } from "./format.js";
import { ask, post } from "./dialog.js";
import { overview } from "./overview.js";
import { parked } from "./parked.js";
import { dead } from "./dead.js";
import { find } from "./find.js";
import { system } from "./system.js";

const pages = { overview, parked, "dead-letters": dead, find, system };
const kept = 900; // points: a quarter of an hour
const roles = {
  starting: ["starting", "warn"], standby: ["standby", "quiet"], catch_up: ["catching up", "warn"], active: ["active", "good"], halted: ["halted", "bad"], stopping: ["stopping", "warn"],
};

let page;
let last;
let points = [];
const by = (id) => document.getElementById(id);

function open() {
  const name = location.hash.replace("#/", "") in pages ? location.hash.replace("#/", "") : "overview";
  if (page && page.leave) page.leave();
  page = pages[name]();
  document.title = page.title + " · cdc-relay";
  fill(by("main"), page.node);
  for (const link of document.querySelectorAll(".tabs a")) {
    if (link.getAttribute("href") === "#/" + name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (page.enter) page.enter();
  if (last && page.frame) page.frame(last, points);
}

function badge(id, n, what) {
  by(id).hidden = !n;
  write(by(id), count(n));
  by(id).setAttribute("aria-label", count(n) + " " + what);
}

function show(f) {
  last = f;
  if (f.point && (!points.length || points[points.length - 1].at < f.point.at)) {
    points.push(f.point);
    if (points.length > kept) points.shift();
  }
  const s = f.status;
  const [name, tone] = pill(s);
  write(by("role"), name);
  by("role").dataset.tone = tone;
  write(by("service"), s.service);
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
  if (tone === "good" && s.broker !== "ok") return [name + ", broker in trouble", "warn"];
  if (s.state === "degraded") return [name + ", degraded", "warn"];
  return [name, tone];
}

// What is wrong, in three parts: each is drawn anew only when it says something else, so that a button stays where it
// is while a text beside it counts seconds.
const parts = { halt: "", lost: "", others: "" };
function part(name, said, draw) {
  const text = JSON.stringify(said);
  if (parts[name] === text) return;
  parts[name] = text;
  fill(by("alarms-" + name), draw());
}

function alarms(s) {
  const box = (tone, ...children) => el("div", { class: "alarm", "data-tone": tone }, ...children);
  part("halt", s.halt, () => s.halt && box("bad", el("h2", {}, "Halted: " + s.halt.reason),
    el("p", {}, el("strong", {}, "At risk: "), s.halt.risk),
    el("p", {}, el("strong", {}, "What to do: "), s.halt.remedy, " ", el("a", { href: s.halt.runbook }, "Runbook"))));
  part("lost", s.alarms || [], () => (s.alarms || []).map((a) => {
    const repair = a.repair ? ["run ", el("code", {}, a.repair), ": it names every event that the topic has lost, and publishes those again. Then "] : [];
    return box("bad", el("h2", {}, "Alarm: " + a.kind.replaceAll("_", " ") + ", topic " + a.topic),
      el("p", {}, a.text, a.count > 1 ? " Seen " + a.count + " times since " + new Date(a.first_seen_at).toLocaleString() + "." : ""),
      el("p", {}, el("strong", {}, "What to do: "), ...repair, "acknowledge it here, or by ", el("code", {}, "cdc-relay alarms ack " + a.id), ". ",
        el("a", { href: "/docs/alerts#outboxalarmopen" }, "Runbook")),
      a.id > 0 && el("div", { class: "actions" }, el("button", { type: "button", "data-key": "acknowledge " + a.id, onclick: () => acknowledge(a) }, "Acknowledge…")));
  }));
  const others = s.reasons.filter((r) => !s.halt || !r.startsWith("halted ("));
  const degraded = s.degraded.filter((d) => d.reason !== "alarm"); // those stand above
  part("others", [s.ready, others, degraded], () => [
    others.length > 0 && box("warn", el("h2", {}, s.ready ? "Needs a look" : "Not ready"), el("ul", {}, others.map((r) => el("li", {}, r)))),
    degraded.length > 0 && box("warn", el("h2", {}, "Degraded: events flow, and something needs a look"),
      el("ul", {}, degraded.map((d) => el("li", {}, d.text)))),
  ]);
}

async function acknowledge(a) {
  const done = await ask({
    title: "Acknowledge this alarm?", action: "Acknowledge",
    text: "Topic " + a.topic + ": " + a.text + ". It is not shown, counted or alerted on any more; what the topic lost stays lost until it is repaired. If it happens again, that is a new alarm.",
    run: () => post("/api/v1/alarms/ack", { ids: [a.id] }),
  });
  if (done) toast("Acknowledged. The alarm is gone within seconds.");
}

function feed(state, text) {
  by("feed").dataset.state = state;
  write(by("feed"), text);
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function feedForever() {
  for (let pause = 500; ; pause = Math.min(pause * 2, 5000)) {
    try {
      points = (await get("/api/v1/history")).points || [];
      feed("live", "live");
      await follow("/api/v1/stream", (f) => { pause = 500; feed("live", "live"); show(f); });
      feed("waiting", "reconnecting");
    } catch (error) {
      if (error instanceof Refused && error.status === 401) {
        feed("waiting", "needs the token");
        await askToken(hasToken() ? "The relay refused this token. It must be what the file of http.token_file holds." : "");
        pause = 500;
        continue;
      }
      feed("waiting", "no answer; retrying");
    }
    await sleep(pause);
  }
}

// askToken asks for the token, and says why when one was refused before.
function askToken(refusal) {
  return new Promise((resolve) => {
    const field = el("input", { type: "password", autocomplete: "off" });
    const dialog = el("dialog", { class: "ask", "aria-label": "Log in", oncancel: (event) => event.preventDefault() }, el("form", {
      method: "dialog",
      onsubmit: (event) => { event.preventDefault(); setToken(field.value.trim()); dialog.close(); dialog.remove(); resolve(); },
    }, el("h2", {}, "This relay needs its token"), el("label", { class: "field" }, "Token", field), el("p", { class: "problem", role: "alert" }, refusal),
    el("div", { class: "actions" }, el("button", { type: "submit", class: "main" }, "Log in"))));
    document.body.append(dialog);
    dialog.showModal();
    field.focus();
  });
}

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
addEventListener("hashchange", () => { if (!location.hash.startsWith("#/")) return; open(); by("main").focus({ preventScroll: true }); scrollTo(0, 0); });
addEventListener("unhandledrejection", (event) => toast(String(event.reason), "bad"));

theme(chosen);
open();
feedForever();
