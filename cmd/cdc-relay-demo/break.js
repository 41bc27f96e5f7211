// The demo's part of the console: buttons that break the demo's servers and its relay, and what became of them.

import { el, fill, toast, write } from "./dom.js";
import { get, post, Refused } from "./api.js";
import { ask } from "./dialog.js";

const every = 1000; // ms between two looks
const everything = { name: "all", label: "All in turn" };

const buttons = el("div", { class: "bulk" });
const state = el("p", { class: "hint", role: "status" });
const last = el("ol", { class: "notes" });
const earlier = el("ol", { class: "notes", tabIndex: 0, "aria-label": "Earlier" });
const before = el("details", { hidden: true }, el("summary", {}, "Earlier"), earlier);
const body = el("div", { id: "break-body" }, buttons, state, last, before);
const toggle = el("button", { type: "button", class: "plain", id: "break-toggle", "aria-controls": "break-body", onclick: () => show(body.hidden) });
const card = el("section", { class: "card", id: "break", hidden: true, "aria-labelledby": "break-title" },
  el("header", {}, el("h2", { id: "break-title" }, "Break it"), el("span", { class: "hint" }, "demo only"), el("span", { class: "grow" }), toggle), body);

function show(open) {
  body.hidden = !open;
  write(toggle, open ? "Hide" : "Show");
  toggle.setAttribute("aria-expanded", String(open));
}

let playing = "";
let incidents = [];
let drawn = "";

// lock lets no second incident begin while one lasts.
function lock(name) {
  playing = name;
  for (const b of buttons.children) b.disabled = name !== "";
  const now = incidents.find((i) => i.name === name);
  write(state, now ? now.label + " …" : "Each takes some seconds, and ends with a count of what arrived.");
}

async function press(incident) {
  if (playing) return;
  const send = () => post("/api/v1/demo/break", { incident: incident.name });
  try {
    await send();
    lock(incident.name);
  } catch (error) {
    if (!(error instanceof Refused)) toast("The relay does not answer: press it again when it does.", "bad");
    else if (error.status !== 401) toast(error.message, "bad");
    else if (await ask({ title: incident.label + "?", action: "Break it", run: send })) lock(incident.name);
  }
}

function entry(t) {
  return el("li", { "data-kind": t.failed ? "halt" : t.over ? undefined : "restart" },
    el("time", { dateTime: t.at }, new Date(t.at).toLocaleTimeString()),
    el("div", {}, el("p", { class: "strong" }, t.happens), el("p", {}, t.over || "It lasts …")));
}

function draw(scene) {
  card.hidden = false;
  incidents = [everything, ...scene.incidents];
  if (!buttons.children.length) {
    fill(buttons, incidents.map((i) => el("button", { type: "button", class: i === everything ? "main" : undefined, "data-break": i.name, onclick: () => press(i) }, i.label)));
  }
  lock(scene.playing);
  const told = JSON.stringify(scene.told);
  if (told === drawn) return;
  drawn = told;
  const [newest, ...rest] = [...scene.told].reverse();
  fill(last, newest && entry(newest));
  fill(earlier, rest.map(entry));
  before.hidden = rest.length === 0;
}

async function look() {
  try {
    draw(await get("/api/v1/demo", AbortSignal.timeout(5 * every)));
  } catch (error) {
    if (error instanceof Refused && error.status === 401) card.hidden = true;
    else write(state, "The relay does not answer, and this list comes from it: it goes on when the relay does.");
  }
}

async function lookForever() {
  for (;;) {
    await look();
    await new Promise((resolve) => setTimeout(resolve, every));
  }
}

show(!matchMedia("(max-width: 480px)").matches);
card.style.marginBottom = "20px";
document.querySelector("nav.tabs").after(card);
lookForever();
