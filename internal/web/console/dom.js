// Elements from code. Texts become text nodes, never HTML: what a row carries cannot act on the page.

export function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "class") node.className = value;
    else if (key in node && key !== "list" && key !== "role") node[key] = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  add(node, children);
  return node;
}

export function add(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
}

export function fill(node, ...children) {
  node.replaceChildren();
  add(node, children);
}

// write changes a text only if it is another: selections and screen readers are left alone.
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function empty(title, text) {
  return el("div", { class: "empty" }, el("strong", {}, title), el("p", {}, text));
}

export function toast(text, tone = "good") {
  const node = el("div", { class: "toast", "data-tone": tone }, text);
  document.getElementById("toasts").append(node);
  setTimeout(() => node.remove(), 8000);
}
