// Which page of the docs says what to do. The pages are those of this very version, served by the relay.

import { el } from "./dom.js";

const pages = {
  "alarm": "/docs/alerts#outboxalarmopen",
  "topic": "/docs/alerts#outboxkeysparked",
  "mirror": "/docs/alerts#outboxmirrorbehind",
  "transaction": "/docs/alerts#cdcoldtransaction",
  "throttled": "/docs/operations#problems-that-dont-halt-the-relay",
  "paused": "/docs/operations#pause",
  "not ready": "/docs/operations#problems-that-dont-halt-the-relay",
  "parked": "/docs/events#parked-events",
  "inbox": "/docs/inbox#what-fails",
  "dead letter": "/docs/events#dead-letters",
  "invalid": "/docs/messages#what-a-format-cannot-carry",
};

// runbook is a link to the page about something; about says it to those who hear the link alone.
export function runbook(of, about = of) {
  return el("a", { class: "runbook", href: pages[of] || pages["not ready"] }, "Runbook", el("span", { class: "unseen" }, ": " + about));
}

// ofCode is the one about the reason of a dead letter.
export const ofCode = (code) => runbook(/^INVALID_/.test(code || "") ? "invalid" : "dead letter", "dead letters" + (code ? " with " + code : ""));
