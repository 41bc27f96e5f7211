// A list that is asked for again while it is looked at, page by page.

import { el, fill, empty } from "./dom.js";
import { get } from "./api.js";

const again = 4000;

export class List {
  constructor({ path, row, head, none, missing }) {
    Object.assign(this, { path, row, head, none, missing });
    this.node = el("div", { class: "list" });
    this.pages = 1;
    this.seen = "";
  }

  start() {
    this.stopped = false;
    this.load();
  }

  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
  }

  // load asks for all the pages that are shown.
  async load() {
    clearTimeout(this.timer);
    try {
      let items = [];
      let next = "";
      for (let page = 0; page < this.pages; page++) {
        const answer = await get(this.path() + (next ? "&after=" + encodeURIComponent(next) : ""));
        items = items.concat(answer.items || []);
        next = answer.next || "";
        if (!next) break;
      }
      this.show(items, next);
    } catch (error) {
      this.seen = "";
      const gone = error.status === 404;
      fill(this.node, empty(gone ? "Not to be had here" : "The list cannot be read", gone ? this.missing : error.message));
    }
    if (!this.stopped) this.timer = setTimeout(() => this.load(), again);
  }

  show(items, next) {
    const seen = JSON.stringify([items, next]);
    if (seen === this.seen) return;
    this.seen = seen;
    this.items = items;
    if (!items.length) {
      fill(this.node, this.none());
      return;
    }
    const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.key : undefined;
    fill(this.node,
      el("div", { class: "scroll" }, el("table", { class: "rows" },
        el("thead", {}, el("tr", {}, this.head().map((h) => el("th", { class: h.class || "" }, h.text)))),
        el("tbody", {}, items.map((item) => this.row(item))))),
      next && el("button", { type: "button", onclick: () => { this.pages++; this.load(); } }, "Show more"));
    if (focused) {
      const same = [...this.node.querySelectorAll("[data-key]")].find((n) => n.dataset.key === focused);
      if (same) same.focus();
    }
  }
}
