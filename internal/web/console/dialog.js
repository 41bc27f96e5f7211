// Questions to the person: a confirmation, with name and token where nobody is logged in yet.

import { el } from "./dom.js";
import { post, Refused } from "./api.js";
import { forget, logIn, who } from "./session.js";

// modal shows a dialog that keeps the focus. The browser gives it back to where it was; where that is gone, what has
// taken its place gets it.
export function modal(dialog, first) {
  const from = document.activeElement;
  const key = from && from.dataset ? from.dataset.key : undefined;
  dialog.addEventListener("close", () => {
    const now = document.activeElement;
    if (now && now !== document.body && !dialog.contains(now)) return;
    const same = key && [...document.querySelectorAll("[data-key]")].find((n) => n.dataset.key === key && !n.hidden);
    (same || document.getElementById("main")).focus({ preventScroll: true });
  }, { once: true });
  dialog.showModal();
  if (first) first.focus();
}

// loginPart is the fields of a login.
function loginPart() {
  const name = el("input", { id: "ask-name", type: "text", maxLength: 80, autocomplete: "username", placeholder: "stands beside what you change" });
  const token = el("input", { id: "ask-token", type: "password", autocomplete: "current-password", placeholder: "what http.token_file holds" });
  const node = el("div", { hidden: who() !== null },
    el("label", { class: "field" }, "Token", token), el("label", { class: "field" }, "Your name", name),
    el("p", { class: "hint" }, "It opens a session in this browser for 12 hours."));
  return {
    node,
    first: () => (token.value.trim() === "" ? token : name),
    open: async () => { await logIn(token.value.trim(), name.value.trim()); token.value = ""; node.hidden = true; },
    again: () => { node.hidden = false; token.value = ""; token.focus(); },
  };
}

// ask opens a dialog over the page and resolves with true after the action has succeeded, false when it was given up.
// Heading is the title where it holds more than text.
export function ask({ title, heading = title, text, action, danger = false, note = false, must = false, more = [], run = () => {} }) {
  return new Promise((resolve) => {
    const problem = el("p", { class: "problem", role: "alert" });
    const noteField = note ? el("input", { id: "ask-note", type: "text", maxLength: 500, autocomplete: "off", placeholder: "why, for those who look later" }) : null;
    const login = loginPart();
    const go = el("button", { type: "submit", class: danger ? "danger" : "main" }, action);
    const close = (done) => { dialog.close(); dialog.remove(); resolve(done); };
    const form = el("form", {
      method: "dialog",
      onsubmit: async (event) => {
        event.preventDefault();
        go.disabled = true;
        problem.textContent = "";
        try {
          if (!login.node.hidden) await login.open();
          await run(noteField ? noteField.value.trim() : "");
          close(true);
        } catch (error) {
          go.disabled = false;
          problem.textContent = error.message;
          if (error instanceof Refused && error.status === 401) {
            forget();
            login.again();
          } else {
            (login.node.hidden ? go : login.first()).focus();
          }
        }
      },
    },
    el("h2", {}, heading), text && el("p", {}, text), more,
    note && el("label", { class: "field" }, "Note", noteField), login.node, problem,
    el("div", { class: "actions" }, !must && el("button", { type: "button", onclick: () => close(false) }, "Cancel"), go));
    const dialog = el("dialog", { class: "ask", "aria-label": title, oncancel: (event) => { event.preventDefault(); if (!must) close(false); } }, form);
    document.body.append(dialog);
    modal(dialog, noteField || (login.node.hidden ? go : login.first()));
  });
}

export { post };
