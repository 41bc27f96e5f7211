// Numbers and times as people read them.

export const none = "–";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const one = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export function count(n) {
  return n === null || n === undefined ? none : whole.format(n);
}

export function rate(n) {
  if (n === null || n === undefined) return none;
  return n > 0 && n < 10 ? one.format(n) : whole.format(n);
}

export function bytes(n) {
  if (n === null || n === undefined) return none;
  if (Math.abs(n) < 1024) return whole.format(n) + " B";
  const units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = -1;
  while (Math.abs(n) >= 1024 && unit < units.length - 1) {
    n /= 1024;
    unit++;
  }
  return (Math.abs(n) < 10 ? one : whole).format(n) + " " + units[unit];
}

export function seconds(s) {
  if (s === null || s === undefined) return none;
  if (s === 0) return "0 s";
  if (s < 0.00005) return "<0.1 ms";
  if (s < 0.01) return one.format(s * 1000) + " ms";
  if (s < 1) return whole.format(s * 1000) + " ms";
  if (s < 10) return one.format(s) + " s";
  return span(s);
}

export function span(s) {
  s = Math.max(0, Math.round(s));
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min" + (s < 600 && s % 60 ? " " + (s % 60) + " s" : "");
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min";
  return Math.floor(s / 86400) + " d " + Math.floor((s % 86400) / 3600) + " h";
}

export function ago(time) {
  const s = (Date.now() - new Date(time).getTime()) / 1000;
  return s < 2 ? "just now" : span(s) + " ago";
}

export function until(time) {
  const s = (new Date(time).getTime() - Date.now()) / 1000;
  return s <= 0 ? "now" : "in " + span(s);
}

export function clock(time) {
  return new Date(time).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}
