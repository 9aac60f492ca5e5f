// One message between the servers, over time, by their logs: a line for each server, an arrow for each packet.
import { h, link, s, table, time } from "./dom.js";

const LEFT = 110, STEP = 46, ROW = 64, TOP = 40;
const ms = (ns) => `${(ns / 1e6).toFixed(2)} ms`;

// Times are further apart than numbers of JavaScript can tell: each is counted from the first.
function since(found) {
  const all = found.arrows.flatMap((each) => [each.left, each.came, each.delivered]).filter((each) => BigInt(each) > 0n).map(BigInt);
  const first = all.reduce((one, other) => other < one ? other : one);
  return { first, of: (value) => Number(BigInt(value) - first) };
}

function picture(found) {
  const { of } = since(found), row = new Map(found.servers.map((name, at) => [name, TOP + at * ROW]));
  const moments = [...new Set(found.arrows.flatMap((each) => [of(each.left), of(each.came), ...(held(each) ? [of(each.delivered)] : [])]))].sort((a, b) => a - b);
  const x = new Map(moments.map((each, at) => [each, LEFT + at * STEP]));
  const width = LEFT + moments.length * STEP + 60, height = TOP + found.servers.length * ROW + 20;
  const named = new Set(), mine = found.arrows.find((each) => each.message === found.message);
  const names = s("g", { class: "names" }, found.servers.map((name) => s("text", { x: 8, y: row.get(name) + 4 }, name)));
  const stay = () => names.setAttribute("transform", `translate(${region.scrollLeft} 0)`);
  const region = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Space and time", onscroll: stay },
    s("svg", { class: "ways", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `The ways of ${found.message}` },
      found.servers.map((name) => s("line", { class: "server", x1: LEFT - 20, y1: row.get(name), x2: width - 20, y2: row.get(name) })),
      moments.map((each, at) => at % 2 === 0 && s("text", { class: "faint", x: x.get(each), y: height - 8 }, ms(each))),
      found.arrows.map((each) => arrow(each, found, of, x, row, named)), names));
  if (mine) requestAnimationFrame(() => { region.scrollLeft = x.get(of(mine.left)) - region.clientWidth / 2; }); // once it is shown
  return region;
}

const held = (each) => BigInt(each.delivered) > BigInt(each.came);

function arrow(each, found, of, x, row, named) {
  const [x1, y1, x2, y2] = [x.get(of(each.left)), row.get(each.from), x.get(of(each.came)), row.get(each.to)];
  const until = held(each) ? x.get(of(each.delivered)) : x2, first = !named.has(each.message);
  named.add(each.message);
  const waits = held(each) ? `, waited ${ms(of(each.delivered) - of(each.came))}${each.waited_for ? ` for ${each.waited_for}` : ""}` : "";
  return s("g", { class: each.message === found.message ? "mine" : "" },
    s("title", {}, `${each.message}: ${each.from} to ${each.to}, ${ms(of(each.came) - of(each.left))}${waits}${each.twins ? `, with ${each.twins} more` : ""}`),
    s("line", { x1, y1, x2, y2, class: each.bare ? "bare" : "" }),
    held(each) && s("rect", { x: x2, y: y2 - 4, width: Math.max(1, until - x2), height: 8 }),
    s("circle", { cx: until, cy: y2, r: 4.5, class: each.passed || !Number(each.delivered) ? "passed" : "" }),
    first && s("text", { x: x1, y: y1 - 8 }, each.message));
}

export async function ways(ask, name) {
  if (!name) return h("p", { class: "empty" }, "A message is chosen on the page of its queue, or where it waits.");
  const found = await ask("ways", { message: name });
  const causes = [...new Set(found.arrows.filter((each) => each.message === found.message && each.waited_for).map((each) => each.waited_for))];
  return [
    h("h2", {}, `Message ${found.message}`),
    found.arrows.length ? picture(found) : h("p", { class: "note" }, "It has not left its server, or nothing of that is in the logs here."),
    found.arrows.length > 0 && h("p", { class: "note" }, "A line is a server, an arrow a packet, a bar what waited for its causes there; what is not this message was near it. Times are those of the servers' clocks, and not to scale."),
    causes.length > 0 && h("p", {}, "It waited for ", causes.map((each) => link("ways", each)), "."),
    h("h2", {}, "Stations"),
    table("Stations", [
      ["time", (row) => time(row.time), "time wide"], ["server", (row) => row.server], ["what", (row) => row.kind],
      ["agent", (row) => row.agent || row.dests.join(", ")], ["from", (row) => row.from], ["to", (row) => row.to.join(", ")],
      ["domain", (row) => row.domain, "wide"], ["", (row) => row.detail, "wide"],
    ], found.stations),
    found.left_out.length > 0 && h("p", { class: "note" }, `The stores of ${found.left_out.join(", ")} are not on this machine: what only they know is left out.`),
  ];
}

export const is_logged = (id) => /^[^/#]+#[0-9]+$/.test(id);
