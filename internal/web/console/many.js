// The first page of a process with several relays: one line for each, those that need a look first.

import { el, empty, fill, toast, write } from "./dom.js";
import { count, seconds } from "./format.js";
import { ask } from "./dialog.js";
import { List } from "./list.js";
import { logOut, look, onChange, who } from "./session.js";

const by = (id) => document.getElementById(id);

try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* a private window has none */ }

// tone is green only for what works and has nothing to wait for.
function tone(s) {
  if (!s.ready) return s.role === "starting" || s.role === "catch_up" ? "warn" : "bad";
  if (s.state === "degraded" || s.state === "paused" || s.degraded.length) return "warn";
  return s.role === "active" ? "good" : "quiet";
}

const order = { bad: 0, warn: 1, good: 2, quiet: 3 };

// name leads to the console of a relay; one that does not run has none.
function name(s) {
  if (!s.slot) return el("span", { class: "strong name" }, s.relay);
  return el("a", { class: "name", href: "/?relay=" + encodeURIComponent(s.relay), "data-key": s.relay }, s.relay);
}

function row(s) {
  const whys = [...s.reasons, ...s.degraded.map((d) => d.text)];
  return el("tr", {}, el("td", {}, name(s)),
    el("td", {}, el("span", { class: "pill", "data-tone": tone(s) }, s.state.replaceAll("_", " "))),
    el("td", { class: "right num" }, s.rates ? count(s.rates.published_per_second) : "–"),
    el("td", { class: "right num" }, count(s.backlog)),
    el("td", { class: "right num" }, seconds(s.oldest_pending_age_seconds)),
    el("td", { class: "right num" }, count(s.parked_events)),
    el("td", { class: "right num" }, count(s.dead_letters)),
    el("td", { class: "reason small" }, whys.slice(0, 2).map((why) => el("p", { class: "clip", title: why }, why)),
      whys.length > 2 && el("p", { class: "soft" }, "and " + (whys.length - 2) + " more")));
}

const list = new List({
  path: () => "/api/v1/status",
  head: () => [{ text: "Relay" }, { text: "State" }, { text: "Events/s", class: "right" }, { text: "Backlog", class: "right" },
    { text: "Oldest", class: "right" }, { text: "Parked", class: "right" }, { text: "Dead letters", class: "right" }, { text: "Needs a look", class: "reason" }],
  row,
  none: () => empty("No relay", "The directory of --config-dir has no *.yaml file yet."),
  shown: (items) => {
    items.sort((a, b) => order[tone(a)] - order[tone(b)] || (a.relay < b.relay ? -1 : 1));
    const bad = items.filter((s) => tone(s) === "bad").length;
    write(by("sum"), items.length + " relays" + (bad ? ", " + bad + " not ready" : ""));
    by("sum").dataset.tone = bad ? "bad" : "good";
    by("feed").dataset.state = "live";
    write(by("feed"), "live");
  },
  lost: () => {
    by("feed").dataset.state = "waiting";
    write(by("feed"), "no answer; retrying");
  },
});

onChange((person, changes) => {
  by("session").hidden = !changes;
  fill(by("session"), person === null ? "Log in" : [el("span", { class: "name" }, person), el("span", {}, " · Log out")]);
});
by("session").addEventListener("click", async () => {
  if (who() === null) {
    await ask({ title: "Log in", action: "Log in", text: "With the token of this process, for reading and for what changes something." });
  } else {
    await logOut();
    toast("Logged out in this browser.");
  }
  list.load();
});

fill(by("main"), el("div", { class: "page" }, el("section", { class: "card" }, el("header", {}, el("h1", {}, "Relays")), list.node)));
look();
list.start();
