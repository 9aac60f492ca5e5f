// What waits here and for what: all of it, and the causes of one thing to their ends, each of which can be clicked.
import { count, h, link, shown, span, table, time } from "./dom.js";

const MOST = 10, DEEP = 20; // causes of one thing that are named, and steps to the last one
const server = (name) => link("servers", name);
const seen = (each, now) => each.up ? "connected" : Number(each.last_seen) ? `last seen ${span(Number(now) - Number(each.last_seen))} ago` : "not seen since our start";
const listed = (parts, between = ", ") => parts.flatMap((each, at) => at ? [between, each] : [each]);
const packets = (wait) => `${count(wait.packets)} packet${Number(wait.packets) === 1 ? "" : "s"}`;
const known = (wait) => wait.message || [wait.kind, wait.domain, wait.peer || wait.agent || wait.group || wait.topic].filter(Boolean).join(" ");
const which = (wait) => wait.message || (wait.packets != null ? packets(wait) : wait.group || wait.agent || wait.topic || "");

function cause(wait, now) {
  switch (wait.kind) {
    case "held": return listed(wait.waits_for.slice(0, MOST).map((each) => [`#${each.sequence} from `, server(each.server), `, ${seen(each, now)}`]), "; ");
    case "parked": return ["stored by ", listed(wait.waits_for.map(server))];
    case "view": return [`view ${wait.number}: `, listed(wait.waits_for.map(shown))];
    case "casts": return listed(wait.waits_for.map(server));
    case "window": return [`its casts in group ${wait.group} to come to all: `, server(wait.home), " knows to whom"];
    case "name": return `the name ${wait.name}`;
    case "cast": case "order": return wait.reason || "a cast of its own";
    case "place": return ["its place, by ", server(wait.home)];
    case "state": return `its state in group ${wait.name}`;
    case "class": return [link("agents", wait.agent, `its class ${wait.class}`), `: ${wait.reason}`];
    case "retry": return [link("agents", wait.agent, `try ${wait.attempts + 1}`), `, in ${span(Math.max(0, Number(wait.until) - Number(now)))}`];
    case "credit": return ["room on ", server(wait.peer)];
    case "link": return [server(wait.peer), `, ${seen(wait, now)}${wait.trouble ? `: ${wait.trouble}` : ""}`];
    case "move": return [server(wait.to), `: ${wait.reason}`];
    case "change": return h("a", { href: "#/bus" }, wait.reason);
    case "full": return h("a", { href: "#/overview" }, wait.reason);
    default: return wait.reason;
  }
}

export async function waits(ask, name, view) {
  const found = await ask("why");
  if (name) return chain(name, found, view.status);
  return table("What waits, and for what", [
    ["what", (row) => row.kind],
    ["which", (row) => link("waits", known(row), which(row) || row.kind)],
    ["agent", (row) => row.agent || "", "wide"], ["domain", (row) => row.domain || "", "wide"],
    ["waits for", (row) => cause(row, found.now)],
    ["behind it", (row) => row.behind ? count(row.behind) : "", "number wide"],
  ], found.waits, "Nothing waits.");
}

function chain(name, found, status) {
  const mine = found.waits.filter((wait) => known(wait) === name);
  return [
    h("h2", {}, `Why ${name} waits`),
    mine.length ? h("ul", { class: "chain", "aria-label": "Causes" }, mine.map((wait) => step(wait, found, status, new Set([known(wait)]))))
      : h("p", { class: "empty" }, "It waits no more."),
  ];
}

// One thing that waits, with what it waits for below it; those that are named above are not told again.
function step(wait, found, status, met) {
  const below = wait.kind === "held" ? wait.waits_for.slice(0, MOST).map((each) => missing(each, wait, found, status, met))
    : wait.kind === "parked" ? wait.waits_for.slice(0, MOST).map((each) => h("li", {}, server(each), h("ul", {}, last(each, wait.domain, status, found.now))))
      : wait.peer ? [last(wait.peer, wait.domain, status, found.now)] : [];
  const more = (wait.waits_for || []).length - MOST;
  return h("li", {},
    link("waits", known(wait), which(wait) || wait.kind), wait.from && [" from ", server(wait.from)], wait.domain && ` in domain ${wait.domain}`,
    ` (${wait.kind}) waits for `, cause(wait, found.now),
    wait.message && [" (", link("ways", wait.message, "its ways"), ")"],
    below.length > 0 && h("ul", {}, below, more > 0 && h("li", {}, `${count(more)} more`)));
}

// What is not there is on its way, or came and is held itself.
function missing(each, wait, found, status, met) {
  const also = met.size < DEEP ? found.waits.filter((other) => other.kind === "held" && other.from === each.server && other.domain === wait.domain && !met.has(known(other))) : [];
  const some = also.slice(0, MOST);
  some.forEach((other) => met.add(known(other)));
  return h("li", {}, `#${each.sequence} from `, server(each.server), also.length ? ": of that server these are held, too" : "",
    h("ul", {}, some.map((other) => step(other, found, status, met)), last(each.server, wait.domain, status, found.now)));
}

// The end of a chain: how the link to a server is.
function last(name, domain, status, now) {
  const end = (text, kind) => h("li", { class: `end ${kind}` }, text);
  if (name === status.server) return end("This server itself.", "");
  const link = status.peers.find((each) => each.peer === name && each.domain === domain);
  if (!link) return end(`${name} is no neighbour in domain ${domain}: what it sends is passed on by others.`, "warn");
  const { state, reason } = link;
  if (state === "up") return end(`The link to ${name} is up: what is missing is on its way, or waits there; its own page of waits tells, or mom why ${name}.`, "good");
  return end(`The link to ${name} is ${state}${reason ? `: ${reason}` : ""}; ${seen(link, now)}.`, "bad");
}

export async function servers(ask, name, view) {
  const found = await ask("why"), { status } = view, links = new Map(status.links.map((each) => [`${each.domain} ${each.peer}`, each]));
  const peers = status.peers.filter((each) => each.peer === name).map((each) => ({ ...links.get(`${each.domain} ${each.peer}`), ...each }));
  const on = (wait) => (wait.waits_for || []).some((each) => (each.server || each) === name) || wait.peer === name || wait.to === name;
  const list = (title, rows) => table(title, [
    ["what", (row) => row.kind], ["which", (row) => link("waits", known(row), which(row) || row.kind)],
    ["domain", (row) => row.domain || ""], ["waits for", (row) => cause(row, found.now)],
  ], rows, "Nothing.");
  return [
    h("h2", {}, `Server ${name}`),
    name === status.server && h("p", {}, "It is this server: ", h("a", { href: "#/overview" }, "overview"), "."),
    h("h2", {}, "Links to it"),
    table("Links", [
      ["domain", (row) => row.domain], ["link", (row) => row.state], ["waiting", (row) => count(row.waiting), "number"],
      ["held", (row) => count(row.held), "number"], ["last seen", (row) => time(row.last_seen), "time"], ["why", (row) => row.reason || ""],
    ], peers, "It is no neighbour of this server."),
    h("h2", {}, "What waits for it"), list("What waits for it", found.waits.filter(on)),
    h("h2", {}, "What has come from it and is held"), list("Held", found.waits.filter((each) => each.kind === "held" && each.from === name)),
  ];
}
