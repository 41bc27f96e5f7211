// What the page asks of the relay. Who is logged in has a cookie, which the browser sends by itself and no script reads.

export class Refused extends Error {
  constructor(status, text, told) {
    super(text);
    this.status = status;
    this.told = told; // by the relay, and not by a path that it does not have
  }
}

// relay is the relay that the page is about, of several in one process; null: there is one.
export const relay = new URLSearchParams(location.search).get("relay");

// here is the path of the page's relay.
const here = (path) => (relay === null ? path : path + (path.includes("?") ? "&" : "?") + "relay=" + encodeURIComponent(relay));

async function checked(response) {
  if (response.ok) return response;
  let text = response.statusText || "HTTP " + response.status;
  let told = false;
  try {
    const body = await response.json();
    text = body.error || text;
    told = Boolean(body.error);
  } catch { /* it was no JSON */ }
  throw new Refused(response.status, text, told);
}

export async function get(path, signal) {
  const response = await checked(await fetch(here(path), { cache: "no-store", signal }));
  return response.json();
}

// post sends the body, and as further members of it texts that are JSON: what a browser reads as JSON loses digits.
export async function post(path, body, texts = {}) {
  const members = Object.entries(texts).map(([name, text]) => "," + JSON.stringify(name) + ":" + text);
  const response = await checked(await fetch(here(path), {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: members.length ? JSON.stringify(body).slice(0, -1) + members.join("") + "}" : JSON.stringify(body),
  }));
  return response.json();
}

export async function remove(path) {
  const response = await checked(await fetch(here(path), { method: "DELETE" }));
  return response.json();
}

// parameters is what of the values is not empty, as a part of an address.
export function parameters(values) {
  return Object.entries(values).filter(([, text]) => text !== "").map(([name, text]) => "&" + name + "=" + encodeURIComponent(text)).join("");
}

// follow reads server-sent events until the stream ends. EventSource hides why it was refused, so this reads them itself.
export async function follow(path, each, signal) {
  const response = await checked(await fetch(here(path), { cache: "no-store", signal }));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    let end;
    while ((end = rest.indexOf("\n\n")) >= 0) {
      const message = rest.slice(0, end);
      rest = rest.slice(end + 2);
      const data = message.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (data) each(JSON.parse(data));
    }
  }
}
