// Elements, tables and the forms of values. All text goes in as text: nothing is ever parsed as HTML.
const SVG = "http://www.w3.org/2000/svg";

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter((each) => each != null && each !== false));
  return made;
}
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

export function link(page, name, text = name) {
  return h("a", { href: `#/${page}/${encodeURIComponent(name)}`, "data-key": `${page}/${name}` }, text);
}

export const button = (text, does, attributes) => h("button", { type: "button", onclick: does, "data-key": text, ...attributes }, text);

// columns: [title, row => content, "number" and "wide" as classes]; what is wide has no room on a small screen.
export function table(caption, columns, rows, empty = "none") {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  const cell = (tag, [, , kind = ""], content) =>
    h(tag, { class: kind, scope: tag === "th" ? "col" : null }, content);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {},
      h("thead", {}, h("tr", {}, columns.map((each) => cell("th", each, each[0])))),
      h("tbody", {}, rows.map((row) => h("tr", {}, columns.map((each) => cell("td", each, each[1](row))))))));
}

export function figure(label, value, kind = "", ...more) {
  return h("div", { class: "figure" }, h("b", { class: kind }, value), h("span", {}, label), more);
}

export function spark(values) {
  const most = Math.max(1e-9, ...values), step = 100 / Math.max(1, values.length - 1);
  const points = values.map((value, at) => `${(at * step).toFixed(1)},${(20 - 18 * value / most).toFixed(1)}`);
  return s("svg", { viewBox: "0 0 100 21", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("polyline", { class: "spark", points: points.join(" ") }));
}

export const count = (value) => Number(value || 0).toLocaleString("en");

export function bytes(value) {
  let size = Number(value || 0), unit = 0;
  while (size >= 1024 && unit < 4) { size /= 1024; unit++; }
  return `${unit && size < 10 ? size.toFixed(1) : Math.round(size)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

// A server tells times in ns since 1970, in places in ms.
export function time(value) {
  const number = Number(value || 0);
  if (!number) return "";
  return new Date(number > 2 ** 53 ? number / 1e6 : number).toISOString().replace("T", " ").slice(0, 19);
}

export function span(ns) {
  const seconds = Number(ns || 0) / 1e9;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  for (const [unit, size] of [["days", 86400], ["h", 3600], ["min", 60]])
    if (seconds >= 2 * size) return `${Math.round(seconds / size)} ${unit}`;
  return `${Math.round(seconds)} s`;
}

export const rate = (value) => value == null ? "–" : `${value >= 10 ? count(Math.round(value)) : value.toFixed(1)}/s`;

export function shown(value) {
  return typeof value === "object" && value !== null ? JSON.stringify(value, null, 2) : String(value ?? "");
}
