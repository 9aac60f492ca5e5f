// The bus as a tree: domains are boxes, servers circles, and a router is in several boxes.
import { s } from "./dom.js";

const STEP = 110;

// Who stands where: a tree from `me` outwards, each part with room for its leaves.
function laid_out(domains, me) {
  const places = new Map(), lines = [], entered = new Set();
  const of = (server) => Object.keys(domains).filter((name) => domains[name].includes(server));
  function node(kind, name) {
    const parts = kind === "server"
      ? of(name).filter((each) => !entered.has(each)).map((each) => { entered.add(each); return each; }).map((each) => node("domain", each))
      : domains[name].filter((each) => !entered.has(`server ${each}`)).map((each) => { entered.add(`server ${each}`); return each; }).map((each) => node("server", each));
    return { kind, name, parts, leaves: Math.max(1, parts.reduce((sum, part) => sum + part.leaves, 0)) };
  }
  entered.add(`server ${me}`);
  const root = node("server", me);
  function put(each, depth, from, to) {
    const angle = (from + to) / 2, radius = depth * STEP;
    const here = { ...each, x: radius * Math.cos(angle), y: radius * Math.sin(angle) };
    places.set(`${each.kind} ${each.name}`, here);
    let at = from;
    for (const part of each.parts) {
      const end = at + (to - from) * part.leaves / each.leaves;
      lines.push([here, put(part, depth + 1, at, end)]);
      at = end;
    }
    return here;
  }
  put(root, 0, -Math.PI / 2, 1.5 * Math.PI);
  return { places: [...places.values()], lines };
}

export function map(topology, status) {
  const domains = Object.fromEntries(Object.entries(topology.domains).map(([name, [members]]) => [name, members]));
  const { places, lines } = laid_out(domains, status.server);
  const links = new Map(status.links.map((each) => [`${each.domain} ${each.peer}`, each]));
  const states = new Map(status.peers.map((each) => [`${each.domain} ${each.peer}`, each.state]));
  const waits = (domain, peer) => links.get(`${domain} ${peer}`)?.waiting || 0;
  const xs = places.map((each) => each.x), ys = places.map((each) => each.y);
  const [left, top] = [Math.min(...xs) - 80, Math.min(...ys) - 50];
  const box = [left, top, Math.max(...xs) + 80 - left, Math.max(...ys) + 60 - top].map(Math.round);
  return s("svg", { class: "map", viewBox: box.join(" "), role: "img", "aria-label": `The bus ${topology.bus}` },
    lines.map(([a, b]) => {
      const [domain, server] = a.kind === "domain" ? [a.name, b.name] : [b.name, a.name];
      return s("line", { x1: a.x, y1: a.y, x2: b.x, y2: b.y, class: server === status.server ? "" : states.get(`${domain} ${server}`) || "" });
    }),
    places.map((each) => each.kind === "domain" ? domain_box(each, domains) : server_circle(each, topology, domains, status, waits)));
}

function domain_box(each, domains) {
  const width = 24 + 8 * each.name.length;
  return s("g", {},
    s("rect", { x: each.x - width / 2, y: each.y - 14, width, height: 28, rx: 6 }),
    s("text", { x: each.x, y: each.y + 4 }, each.name, s("title", {}, domains[each.name].join(", "))));
}

function server_circle(each, topology, domains, status, waits) {
  const mine = Object.keys(domains).filter((name) => domains[name].includes(each.name));
  const packets = mine.reduce((sum, domain) => sum + waits(domain, each.name), 0);
  const kind = `${each.name === status.server ? "me" : ""} ${mine.length > 1 ? "router" : ""}`;
  return s("g", {},
    s("circle", { cx: each.x, cy: each.y, r: 11, class: kind.trim() }, s("title", {}, topology.servers[each.name])),
    s("text", { x: each.x, y: each.y + 28 }, each.name),
    packets > 0 && s("text", { x: each.x, y: each.y + 42, class: "faint" }, `${packets} ${packets === 1 ? "waits" : "wait"}`));
}
