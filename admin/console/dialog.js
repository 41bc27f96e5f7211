// Questions to the person: a confirmation, with the token if it is not known yet.

import { el } from "./dom.js";
import { hasToken, post, setToken, Refused } from "./api.js";

// ask opens a dialog over the page and resolves with true after the action has succeeded, false when it was given up.
export function ask({ title, text, action, danger = false, note = false, more = [], run }) {
  return new Promise((resolve) => {
    const problem = el("p", { class: "problem", role: "alert" });
    const noteField = note ? el("input", { id: "ask-note", type: "text", maxLength: 500, autocomplete: "off", placeholder: "why, for whoever looks later" }) : null;
    const tokenField = el("input", { id: "ask-token", type: "password", autocomplete: "off", placeholder: "what http.token_file holds" });
    const tokenPart = el("label", { class: "field", hidden: hasToken() }, "Token", tokenField,
      el("span", { class: "hint" }, "Kept in this page's memory until it is closed or reloaded."));
    const go = el("button", { type: "submit", class: danger ? "danger" : "main" }, action);
    const close = (done) => { dialog.close(); dialog.remove(); resolve(done); };
    const form = el("form", {
      method: "dialog",
      onsubmit: async (event) => {
        event.preventDefault();
        if (!tokenPart.hidden) setToken(tokenField.value.trim());
        go.disabled = true;
        problem.textContent = "";
        try {
          await run(noteField ? noteField.value.trim() : "");
          close(true);
        } catch (error) {
          go.disabled = false;
          problem.textContent = error.message;
          if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
            setToken("");
            tokenPart.hidden = false;
            tokenField.value = "";
            tokenField.focus();
          }
        }
      },
    },
    el("h2", {}, title), el("p", {}, text), more,
    note && el("label", { class: "field" }, "Note", noteField), tokenPart, problem,
    el("div", { class: "actions" }, el("button", { type: "button", onclick: () => close(false) }, "Cancel"), go));
    const dialog = el("dialog", { class: "ask", "aria-label": title, oncancel: (event) => { event.preventDefault(); close(false); } }, form);
    document.body.append(dialog);
    dialog.showModal();
    (noteField || (tokenPart.hidden ? go : tokenField)).focus();
  });
}

export { post };
