// Plots of the last quarter of an hour. Lines differ by colour and by dash, so that neither alone must be told apart.

import { el, write } from "./dom.js";

const longest = 15 * 60; // seconds
const shortest = 2 * 60;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Plot is a card with a title, a legend with the newest values, and lines over time.
export class Plot {
  constructor({ title, hint, lines, format, logarithmic = false, least }) {
    this.lines = lines;
    this.format = format;
    this.logarithmic = logarithmic;
    this.least = least; // the least upper end of the scale
    this.values = lines.map(() => el("b", {}, "–"));
    this.body = el("div", { class: "plot-body", role: "img" });
    this.node = el("section", { class: "card plot" },
      el("header", {}, el("h2", {}, title), el("span", { class: "hint" }, hint)),
      el("div", { class: "legend" }, lines.map((line, i) =>
        el("span", { class: "key" }, el("i", { class: "swatch", "data-line": line.style }), line.name, " ", this.values[i]))),
      this.body);
    this.title = title;
  }

  draw() {
    if (this.chart) this.chart.destroy();
    const axis = {
      stroke: colour("--soft"), font: "12px system-ui, sans-serif", size: 52, gap: 6,
      grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false },
    };
    const dashes = { a: [], b: [6, 4], c: [2, 3], d: [10, 3, 2, 3] };
    const width = Math.max(this.body.clientWidth, 200);
    this.width = width;
    this.chart = new uPlot({
      width, height: 200, padding: [10, 26, 0, 0], legend: { show: false }, cursor: { y: false, points: { size: 6 } },
      scales: {
        x: { time: true, range: (_, min, max) => [max - Math.min(longest, Math.max(shortest, max - min)), max] },
        y: this.logarithmic
          ? { distr: 3, range: (_, min, max) => logRange(min, max) }
          : { range: (_, __, max) => [0, Math.max((max || 0) * 1.1, this.least || 1)] },
      },
      axes: [
        { ...axis, size: 28, space: 80, values: (_, ticks) => ticks.map((t) => clockOf(t, ticks)) },
        { ...axis, size: widest, space: 34, splits: this.logarithmic ? (_, __, min, max) => decades(min, max) : undefined, values: (_, ticks) => ticks.map((t) => (t === null ? "" : this.format(t))) },
      ],
      series: [{}, ...this.lines.map((line) => ({
        stroke: colour("--line-" + line.style), width: 2, dash: dashes[line.style], points: { show: false }, spanGaps: false,
        fill: line.fill ? colour("--fill-" + line.style) : undefined,
      }))],
      hooks: { setCursor: [(chart) => this.tell(chart.cursor.idx)] },
    }, this.data || [[], ...this.lines.map(() => [])], this.body);
  }

  show(points) {
    this.data = [points.map((p) => p.at / 1000), ...this.lines.map((line) => points.map((p) => {
      const value = line.value(p);
      return value === undefined || (this.logarithmic && value <= 0) ? null : value;
    }))];
    if (!this.chart || Math.abs(this.body.clientWidth - this.width) > 2) this.draw();
    else this.chart.setData(this.data);
    this.tell(this.chart.cursor.idx);
  }

  // tell writes the values under the cursor, or the newest ones, into the legend.
  tell(index) {
    if (!this.data) return;
    const at = index === null || index === undefined ? this.data[0].length - 1 : index;
    const said = this.lines.map((line, i) => {
      const value = this.data[i + 1][at];
      const text = value === null || value === undefined ? "–" : this.format(value);
      write(this.values[i], text);
      return line.name + " " + text;
    });
    this.body.setAttribute("aria-label", this.title + ": " + said.join(", "));
  }

  destroy() {
    if (this.chart) this.chart.destroy();
    this.chart = undefined;
  }
}

// widest is how wide an axis must be for its longest label.
function widest(chart, labels) {
  if (!labels) return 40;
  chart.ctx.save();
  chart.ctx.font = Math.round(12 * devicePixelRatio) + "px system-ui, sans-serif";
  const most = Math.max(...labels.map((label) => chart.ctx.measureText(label || "").width));
  chart.ctx.restore();
  return Math.ceil(most / devicePixelRatio) + 16;
}

function logRange(min, max) {
  if (!(max > 0)) return [0.0001, 1];
  return [10 ** Math.floor(Math.log10(Math.max(min, 1e-6))), 10 ** Math.ceil(Math.log10(max * 1.05))];
}

// decades are the only grid lines of a logarithmic scale: the lines between them are noise.
function decades(min, max) {
  const found = [];
  for (let power = Math.round(Math.log10(min)); power <= Math.round(Math.log10(max)); power++) found.push(10 ** power);
  return found;
}

function clockOf(seconds, ticks) {
  const at = new Date(seconds * 1000);
  const two = (n) => String(n).padStart(2, "0");
  return two(at.getHours()) + ":" + two(at.getMinutes()) + (ticks.some((t) => t % 60) ? ":" + two(at.getSeconds()) : "");
}
