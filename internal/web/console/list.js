// A list that is asked for again while it is looked at, page by page.

import { el, fill, empty } from "./dom.js";
import { get } from "./api.js";

const again = 4000;

export class List {
  // shown, where it is given, is called with the items before they are drawn, and lost when they cannot be read.
  constructor({ path, row, head, none, missing, shown = () => {}, lost = () => {} }) {
    Object.assign(this, { path, row, head, none, missing, shown, lost });
    this.node = el("div", { class: "list" });
    this.pages = 1;
    this.seen = "";
    this.turn = 0; // of the newest load
  }

  start() {
    this.stopped = false;
    this.load();
  }

  stop() {
    this.stopped = true;
    this.turn++;
    clearTimeout(this.timer);
  }

  // load asks for all the pages that are shown. Of loads that run at once the newest counts, whichever ends last: the
  // others were asked with another filter, or before something was done. All pages of a load answer one question.
  async load() {
    clearTimeout(this.timer);
    const turn = ++this.turn;
    const path = this.path();
    try {
      let items = [];
      let next = "";
      for (let page = 0; page < this.pages; page++) {
        const answer = await get(path + (next ? "&after=" + encodeURIComponent(next) : ""));
        if (turn !== this.turn) return;
        items = items.concat(answer.items || []);
        next = answer.next || "";
        if (!next) break;
      }
      this.show(items, next);
    } catch (error) {
      if (turn !== this.turn) return;
      this.seen = "";
      this.lost(); // and not shown([]): nobody knows that there are none
      const gone = error.status === 404 && !error.told;
      fill(this.node, empty(gone ? "Not to be had here" : "The list cannot be read", gone && this.missing || error.message));
    }
    if (!this.stopped) this.timer = setTimeout(() => this.load(), again);
  }

  show(items, next) {
    const seen = JSON.stringify([items, next]);
    if (seen === this.seen) return;
    this.seen = seen;
    this.items = items;
    const inside = this.node.contains(document.activeElement);
    const focused = inside ? document.activeElement.dataset.key : undefined;
    this.shown(items);
    if (!items.length) {
      fill(this.node, this.none());
      if (inside) document.getElementById("main").focus({ preventScroll: true });
      return;
    }
    fill(this.node,
      el("div", { class: "scroll" }, el("table", { class: "rows" },
        el("thead", {}, el("tr", {}, this.head().map((h) => el("th", { class: h.class || "" }, h.unseen ? el("span", { class: "unseen" }, h.unseen) : h.text)))),
        el("tbody", {}, items.map((item) => this.row(item))))),
      next && el("button", { type: "button", "data-key": "show more", onclick: () => { this.pages++; this.load(); } }, "Show more"));
    if (inside) { // where it was, or, if that is gone, at the beginning
      const places = [...this.node.querySelectorAll("[data-key]")];
      const place = places.find((n) => n.dataset.key === focused) || places[0];
      if (place) place.focus({ preventScroll: true });
    }
  }
}

// filters is the fields by which a list is filtered; those behind the first few are shown when somebody wants them, or
// when one is in use.
export function filters(inputs, usual) {
  const more = inputs.slice(usual);
  return el("div", { class: "filters", role: "search", "aria-label": "Filter" }, inputs.slice(0, usual),
    more.length > 0 && el("details", { open: more.some((input) => input.value !== "") }, el("summary", {}, "More"), el("div", { class: "filters" }, more)));
}
