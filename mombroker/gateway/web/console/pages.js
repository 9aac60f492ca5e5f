// What each page asks, and what it shows of the answers. A page: (ask, name, view, change) => content.
import { bytes, button, count, figure, h, link, rate, shown, span, spark, table, time } from "./dom.js";
import { map } from "./map.js";
import { plan } from "./plan.js";
import { is_logged, ways } from "./ways.js";
import { servers, waits } from "./waits.js";

const PAGE = 100;
const state = (value) => h("span", { class: { up: "good", down: "bad", dialling: "warn" }[value] || "" }, value);
const wrong = (value) => h("span", { class: Number(value) ? "bad" : "" }, count(value));

function problems(status) {
  const reasons = status.peers.map((peer) => peer.reason).filter(Boolean);
  const said = [...status.problems, ...new Set(reasons.filter((reason) => !status.problems.join().includes(reason)))];
  return h("ul", { class: "problems", "aria-label": "Problems" },
    said.length ? said.map((each) => h("li", {}, each)) : h("li", { class: "fine" }, "Nothing to act on."));
}

async function overview(ask, name, view) {
  const { status, rates } = view, key = (each) => `${each.domain} ${each.peer}`;
  const links = new Map(status.links.map((each) => [key(each), each]));
  const peers = status.peers.map((peer) => ({ ...links.get(key(peer)), ...peer }));
  return [
    problems(status),
    h("div", { class: "figures" },
      figure("sent", rate(rates.sent), "", spark(view.history.sent)),
      figure("received", rate(rates.received), "", spark(view.history.received)),
      figure("commits", rate(rates.commits), "", spark(view.history.commits)),
      figure("CPU", rates.cpu == null ? "–" : `${Math.round(100 * rates.cpu)} %`, "", spark(view.history.cpu)),
      figure("clients", count(status.stomp.clients)),
      figure("wait for their causes", count(status.domains.reduce((sum, each) => sum + each.held, 0))),
      figure("dead letters of agents", count(status.dead_letters), status.dead_letters ? "bad" : ""),
      figure("memory", bytes(status.process.memory_bytes)),
      figure(`store, of ${bytes(status.max_store)}`, bytes(status.store_bytes), status.full ? "bad" : ""),
      figure("up for", span(Number(status.now) - Number(status.process.since)))),
    h("h2", {}, "Domains"),
    table("Domains", [
      ["domain", (row) => row.domain], ["ordering", (row) => row.token ? `${row.ordering}, token: ${row.token}` : row.ordering, "wide"],
      ["servers", (row) => row.members.join(", ")], ["held", (row) => count(row.held), "number"],
      ["longest", (row) => row.held ? span(row.held_longest_ns) : "", "number"],
      ["waiting", (row) => count(row.waiting), "number"],
      ["duplicates", (row) => count(row.duplicates), "number wide"],
    ], status.domains, "The server is in no domain: it is alone on its bus."),
    h("h2", {}, "Neighbours"),
    table("Neighbours", [
      ["server", (row) => row.peer], ["domain", (row) => row.domain, "wide"], ["link", (row) => state(row.state)],
      ["waiting", (row) => count(row.waiting), "number"], ["held", (row) => count(row.held), "number"],
      ["sent", (row) => count(row.sent), "number wide"], ["received", (row) => count(row.received), "number wide"],
      ["last seen", (row) => time(row.last_seen), "time wide"],
    ], peers),
    status.replicas && h("h2", {}, "Replicas"),
    status.replicas && table("Replicas", [
      ["replica", (row) => row.replica], ["role", (row) => row.role],
      ["", (row) => row.up == null ? "" : state(row.up ? "up" : "down")],
      ["entries behind", (row) => row.behind == null ? "" : count(row.behind), "number"], ["listens at", (row) => row.listen, "wide"],
    ], status.replicas),
  ];
}

const QUEUE = [
  ["messages", (row) => count(row.messages), "number"], ["ready", (row) => count(row.ready), "number wide"],
  ["unacked", (row) => count(row.unacked), "number"], ["consumers", (row) => count(row.consumers), "number"],
  ["bytes", (row) => bytes(row.bytes), "number wide"], ["dropped", (row) => wrong(row.dropped), "number wide"],
  ["", (row) => row.moving, "wide"],
];

function next(view, after) {
  if (!after && !view.after) return null;
  return h("p", {}, view.after && h("button", { type: "button", onclick: () => view.page("") }, "First page"), " ",
    after && h("button", { type: "button", "data-key": "next", onclick: () => view.page(after) }, "Next page"));
}

async function queues(ask, name, view, change) {
  if (name) return destination(ask, name, view, change);
  const fullest = !view.after && view.order !== "name";
  const found = await ask("queues", { match: view.match, limit: PAGE, ...(fullest ? { fullest } : { after: view.after }) });
  return [
    view.user && h("p", {}, button("New queue", () => view.change("New queue", "It is made on this server, and every server knows it.", "Create", async (made) => {
      const destination = made.startsWith("queue:") ? made : `queue:${made}`;
      await change("create_queue", { destination });
      return `${destination} is there.`;
    }, "Name"))),
    table("Queues", [["queue", (row) => link("queues", row.destination)], ...QUEUE], found.queues, "No such queue."),
    fullest && found.queues.length === PAGE
      ? h("p", { class: "note" }, `The ${PAGE} fullest. Order by name to see all.`) : next(view, found.after),
  ];
}

async function subscriptions(ask, name, view, change) {
  if (name) return destination(ask, name, view, change);
  const found = await ask("subscriptions", { match: view.match, after: view.after, limit: PAGE, brief: true });
  return [
    table("Subscriptions", [["subscription", (row) => link("subscriptions", row.destination)], ...QUEUE],
      found.subscriptions, "No durable or shared subscription."),
    next(view, found.after),
  ];
}

const text = (body) => {
  const raw = Uint8Array.from(atob(body), (each) => each.charCodeAt(0));
  try { return new TextDecoder("utf-8", { fatal: true }).decode(raw); } catch { return `${raw.length} bytes that are no text`; }
};

const messages_of = (number) => `${count(number)} message${number === 1 ? "" : "s"}`;

// Some at a time, until none is left of those that were there at the beginning.
async function move(change, args) {
  let moved = 0, left = 0, page = { after: [] };
  do {
    page = await change("move", { ...args, ...(page.after.length ? { after: page.after, upto: page.upto } : {}) });
    moved += page.moved;
    left += page.left;
  } while (page.after.length);
  return `${messages_of(moved)} moved${left ? `, ${count(left)} stay: they came from nowhere` : ""}.`;
}

const is_dead = (row) => row.properties["dead-letter-from"];

function changes(found, messages, view, change) {
  const destination = found.destination, there = messages_of(found.ready);
  return h("div", { class: "toolbar" },
    messages.some(is_dead) && button("Send back", () => view.change(`Send back what is dead in ${destination}`,
      "Each dead letter goes to where it came from, as if it were new.", "Send back", () => move(change, { destination, back: true }))),
    button("Move", () => view.change(`Move ${destination}`, `${there} of it, those that no consumer has, go to another queue.`, "Move",
      (to) => move(change, { destination, target: to.includes(":") ? to : `queue:${to}` }), "To the queue")),
    button("Purge", () => view.change(`Purge ${destination}`, `${there}, those that no consumer has, are gone for good.`, "Purge",
      async () => `${messages_of((await change("purge", { destination })).purged)} purged.`), { class: "danger" }),
    button("Delete", () => view.change(`Delete ${destination}`, `It ends, and ${messages_of(found.messages)} with it.`, "Delete", async () => {
      await change("delete_destination", { destination });
      location.hash = location.hash.split("/").slice(0, 2).join("/");
      return `${destination} is deleted.`;
    }), { class: "danger" }));
}

async function destination(ask, name, view, change) {
  const found = await ask("destination", { destination: name }), may = await view.may(name);
  let messages = [], refused = "";
  try {
    messages = (await ask("browse", { destination: name, limit: 20, bytes: 400 })).messages;
  } catch (error) { refused = error.message; }
  const back = (row) => is_dead(row) && button("Send back", () => view.change(`Send back message ${row.id}`,
    `It goes to ${is_dead(row)}, as if it were new.`, "Send back", () => move(change, { destination: name, back: true, ids: [row.id] })), { "data-key": `back ${row.id}` });
  return [
    h("h2", {}, found.destination),
    may && changes(found, messages, view, change),
    h("div", { class: "figures" },
      ["messages", "ready", "unacked", "backing_off", "dropped"].map((each) => figure(each.replace("_", " "), count(found[each]))),
      figure("bytes", bytes(found.bytes))),
    found.moving && h("p", {}, `${found.moving}: ${found.waits_for}`),
    h("h2", {}, "Consumers"),
    table("Consumers", [
      ["session", (row) => row.session], ["unacked", (row) => count(row.unacked), "number"],
      ["credit", (row) => shown(row.credit), "number"], ["selector", (row) => row.selector, "wide"],
      ["priority", (row) => row.priority, "number wide"], ["exclusive", (row) => row.exclusive ? "yes" : "", "wide"],
    ], found.consumers),
    h("h2", {}, "The next messages"),
    refused ? h("p", { class: "empty" }, refused) : table("Messages", [
      ["message", (row) => link("ways", is_logged(row.message) ? row.message : `${row.destination}@${row.timestamp}`, row.message)], ["sent", (row) => time(row.timestamp), "time"],
      ["deliveries", (row) => count(row.deliveries), "number wide"], ["bytes", (row) => bytes(row.bytes), "number"],
      ["headers", (row) => Object.entries(row.headers).map(([key, value]) => `${key}: ${shown(value)}`).join("\n"), "wide"],
      ["body", (row) => text(row.body)],
      ...(may && messages.some(is_dead) ? [["", back]] : []),
    ], messages),
    h("h2", {}, "Policy"),
    h("pre", {}, Object.entries(found.policy).map(([key, value]) => `${key} = ${JSON.stringify(value)}`).join("\n")),
  ];
}

async function topics(ask, name, view) {
  if (name) {
    const found = await ask("topic", { destination: name });
    return [h("h2", {}, name), h("pre", {}, shown(found))];
  }
  const found = await ask("topics", { after: view.after, limit: PAGE });
  return [
    h("div", { class: "figures" },
      figure("published", count(found.published)), figure("copies", count(found.copies)),
      figure("unheard", count(found.unheard)), figure("dropped", count(found.dropped), found.dropped ? "bad" : "")),
    table("Topics", [
      ["topic", (row) => /[*>#]/.test(row.topic) ? row.topic : link("topics", row.topic)],
      ["servers", (row) => row.servers.join(", ")], ["subscribers here", (row) => count(row.subscribers_here), "number"],
      ["dropped", (row) => wrong(row.dropped_here), "number wide"], ["not known to", (row) => row.unknown_to.join(", "), "wide"],
    ], found.topics, "Nobody listens to a topic."),
    next(view, found.after),
  ];
}

async function connections(ask, name, view, change) {
  const found = await ask("connections"), may = found.connections.length > 0 && await view.may("bus");
  const close = (row) => button("Close", () => view.change(`Close connection ${row.number}`,
    `${row.user || "anonymous"} of ${row.host} is told so. What it has not settled goes back to where it was.`, "Close", async () => {
      const closed = (await change("close_connections", { number: row.number })).closed.length;
      return closed ? `Connection ${row.number} is closed.` : `Connection ${row.number} had ended already.`;
    }), { "data-key": `close ${row.number}` });
  return table("Connections", [
    ["", (row) => row.number, "number wide"], ["user", (row) => row.user || "anonymous"], ["client id", (row) => row.client_id, "wide"],
    ["host", (row) => row.host], ["version", (row) => row.version, "wide"], ["state", (row) => row.state],
    ["subscriptions", (row) => count(row.subscriptions), "number wide"], ["unsettled", (row) => count(row.unsettled), "number"],
    ["in", (row) => bytes(row.bytes_in), "number wide"], ["out", (row) => bytes(row.bytes_out), "number wide"],
    ["dropped", (row) => wrong(row.dropped), "number wide"], ["since", (row) => time(row.since), "time wide"],
    ...(may ? [["", close]] : []),
  ], found.connections, "No client is connected.");
}

async function agents(ask, name, view) {
  if (name) {
    const found = await ask("agent", { agent: name });
    return [h("h2", {}, found.name || found.agent), h("pre", {}, shown(found))];
  }
  const found = await ask("agents", { after: view.after, limit: PAGE });
  const own = found.agents.filter((row) => row.class.includes(":"));
  const letters = await ask("deadletters", { limit: 20 });
  return [
    table("Agents", [
      ["agent", (row) => link("agents", row.agent)], ["name", (row) => row.name], ["class", (row) => row.class, "wide"],
    ], own, "No agent but the broker's own lives here."),
    next(view, found.agents.length === PAGE ? found.agents.at(-1).agent : ""),
    h("h2", {}, `Dead letters: ${count(letters.count)}`),
    table("Dead letters", [
      ["id", (row) => link("letters", row.id)], ["time", (row) => time(row.time), "time wide"], ["agent", (row) => row.agent],
      ["type", (row) => row.type, "wide"], ["reason", (row) => row.reason],
    ], letters.letters),
  ];
}

async function letters(ask, id, view, change) {
  const found = await ask("deadletter", { id }), number = Number(id);
  const may = await view.may(found.agent ? `agent:${found.agent.slice(found.agent.indexOf("/") + 1)}` : "bus");
  const gone = () => { location.hash = "#/agents"; };
  return [
    h("h2", {}, `Dead letter ${id}`),
    may && h("div", { class: "toolbar" },
      button("Retry", () => view.change(`Retry dead letter ${id}`, `It is sent anew, to whoever has the name of ${found.agent || "its agent"} now.`, "Retry", async () => {
        const again = await change("retry", { id: number });
        gone();
        return `Sent to ${again.to.join(", ")} as ${again.message}.`;
      })),
      button("Forget", () => view.change(`Forget dead letter ${id}`, "It is gone for good.", "Forget", async () => {
        await change("drop", { id: number });
        gone();
        return `Dead letter ${id} is forgotten.`;
      }), { class: "danger" })),
    h("pre", {}, shown({ ...found, traceback: undefined })), found.traceback && h("pre", {}, found.traceback),
  ];
}

async function bus(ask, name, view) {
  const [found, status, history] = await Promise.all([ask("topology"), ask("topology_status"), ask("topology_history")]);
  return [
    map(JSON.parse(found.text), view.status),
    h("p", { class: "note" }, "Links of this server are coloured: green is up, red is down, grey is idle: nothing is to be sent. Those of others are theirs to tell."),
    status.phase && h("p", {}, `A change of the domains is under way (${status.phase}): ${status.waits_for.join(", ")}`),
    h("p", {}, h("a", { href: "#/plan/new" }, "Plan another topology")),
    h("h2", {}, "Revisions"),
    table("Revisions", [
      ["", (row) => row.revision, "number"], ["since", (row) => time(row.since_ns), "time"], ["changes", (row) => row.changes.join("; ") || "the first"],
    ], history.revisions),
  ];
}

async function access(ask) {
  const [users, permissions, policies] = await Promise.all([ask("users"), ask("permissions"), ask("policies")]);
  const pairs = (value) => Object.entries(value).map(([key, each]) => `${key} = ${shown(each)}`).join(", ");
  return [
    h("h2", {}, "Users"),
    table("Users", [["user", (row) => row.user], ["roles", (row) => row.roles.join(", ")], ["limits", (row) => pairs(row.limits), "wide"]], users.users, "There is no user."),
    h("h2", {}, "Permissions"),
    table("Permissions", [
      ["who", (row) => row.user ? `user ${row.user}` : `role ${row.role}`], ["match", (row) => row.match],
      ["may", (row) => (row.may || []).join(", ")], ["deny", (row) => (row.deny || []).join(", ")],
    ], permissions.permissions, "There is none: every user may do everything."),
    h("h2", {}, "Policies"),
    h("pre", {}, shown(policies)),
  ];
}

// In the order of the keys 1 to 9; `find`: the page has a filter, and `orders`, by what it can be sorted.
export const PAGES = {
  overview: { title: "Overview", show: overview },
  queues: { title: "Queues", show: queues, find: true, orders: ["messages", "name"] },
  subscriptions: { title: "Subscriptions", show: subscriptions, find: true },
  topics: { title: "Topics", show: topics },
  connections: { title: "Connections", show: connections },
  agents: { title: "Agents", show: agents },
  waits: { title: "Waits", show: waits },
  bus: { title: "Bus", show: bus },
  access: { title: "Access", show: access },
  letters: { show: letters, back: "agents" },
  servers: { show: servers, back: "waits" },
  ways: { show: ways, back: "queues", still: true },
  plan: { show: plan, back: "bus", still: true },
};
