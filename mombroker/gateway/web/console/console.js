// The console: which page, asking again and again, changing something, keys. What pages show is in pages.js.
import { button, h } from "./dom.js";
import { PAGES } from "./pages.js";

const EVERY_MS = 3000, KEPT = 60;
const $ = (id) => document.getElementById(id);
const view = { status: null, rates: {}, history: { sent: [], received: [], commits: [], cpu: [] }, match: "", after: "", order: "messages", user: "" };
let paused = false, timer = 0, asked = 0, place = "";

// Numbers that JavaScript cannot hold are kept as they are written.
const exact = (key, value, context) =>
  typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value) && context?.source ? context.source : value;

async function ask(verb, args = {}) {
  const query = new URLSearchParams(Object.entries(args).filter(([, value]) => value !== "" && value != null));
  return told(`api${verb && `/${verb}`}?${query}`, { headers: { accept: "application/json" } });
}

async function told(address, options) {
  let answer, text, found;
  try { answer = await fetch(address, options); text = await answer.text(); } catch { throw new Error("The server does not answer."); }
  try { found = JSON.parse(text, exact); } catch { throw new Error(text.trim() || `status ${answer.status}`); }
  if (!answer.ok) throw new Error(found.error);
  return found;
}

// -- changes -------------------------------------------------------------------------------------------------------

async function change(verb, args) {
  return told(`api/${verb}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(args) });
}

// Has somebody who has logged in the right to manage this?
view.may = async (what) => view.user !== "" && (await ask("may", { action: "manage", destination: what, user: view.user })).may;

// Asks before something is changed. `does` is given what was written into the field, if there is a label for one, and
// returns a sentence about what it has done.
view.change = (title, sentence, word, does, label = "") => {
  const box = $("change"), wrong = h("p", { class: "bad", role: "alert" });
  const field = label && h("input", { id: "change-field", autocomplete: "off", onkeydown: (event) => { if (event.key === "Enter") go(); } });
  const yes = button(word, () => go(), { class: "danger" }), no = button("Cancel", () => box.close(), { autofocus: !label });
  async function go() {
    if (yes.disabled || (label && !field.value.trim())) return;
    yes.disabled = true;
    try {
      $("done").textContent = await does(label ? field.value.trim() : undefined);
      $("done").dataset.at = location.hash;
      $("done").hidden = false;
      box.close();
      refresh();
    } catch (error) { wrong.textContent = error.message; }
    yes.disabled = false;
  }
  box.replaceChildren(h("h2", { id: "change-title" }, title), h("p", {}, sentence),
    label ? h("label", {}, label, " ", field) : "", wrong, h("div", { class: "choices" }, no, yes));
  box.showModal();
  field?.focus?.();
};

async function who() {
  view.user = (await ask("")).user;
  $("user").replaceChildren(view.user || h("a", { href: "login", title: "to change something" }, "Log in"));
}

function where() {
  const [page = "", name = ""] = location.hash.replace(/^#\//, "").split("/");
  return { page: Object.hasOwn(PAGES, page) ? page : "overview", name: plain(name) };
}

// An address may be written by hand.
function plain(name) {
  try { return decodeURIComponent(name); } catch { return name; }
}

function measure(status) {
  const was = view.status, seconds = was && (Number(status.now) - Number(was.now)) / 1e9;
  view.status = status;
  view.rates = {};
  if (!was || was.process.since !== status.process.since || seconds <= 0) return;
  for (const each of ["sent", "received", "commits"]) view.rates[each] = (status[each] - was[each]) / seconds;
  view.rates.cpu = (status.process.cpu_seconds - was.process.cpu_seconds) / seconds;
  for (const each of Object.keys(view.history)) view.history[each] = [...view.history[each], view.rates[each]].slice(-KEPT);
}

function heading(status) {
  $("server").textContent = status.server;
  $("state").textContent = status.full ? "takes no work" : "takes work";
  $("state").className = status.full ? "bad" : "good";
  document.title = `${status.problems.length ? `(${status.problems.length}) ` : ""}${status.server} · mombroker`;
}

function navigation(current) {
  $("nav").replaceChildren(...Object.entries(PAGES).filter(([, page]) => page.title).map(([name, page], at) =>
    h("a", { href: `#/${name}`, "aria-current": name === current ? "page" : null, title: `${at + 1}`, "data-key": `nav ${name}` },
      page.title, name === "overview" && view.status?.problems.length ? h("sup", {}, view.status.problems.length) : null)));
}

// The frame of a page stays while its content is asked for anew: whoever types in the filter is not disturbed.
function frame(page, name) {
  const here = location.hash;
  if (here === place && $("content")) return;
  place = here;
  Object.assign(view, { match: "", after: "" });
  const { title, find, orders } = PAGES[page], tools = [];
  if (find && !name) tools.push(h("input", {
    id: "filter", type: "search", placeholder: "Part of a name", "aria-label": "Filter", oninput: (event) => { view.match = event.target.value; view.page(""); },
  }));
  if (orders && !name) tools.push(h("label", {}, "by ", h("select", { id: "order", onchange: (event) => { view.order = event.target.value; view.page(""); } },
    orders.map((each) => h("option", { value: each, selected: each === view.order }, each)))));
  $("main").replaceChildren(
    h("h2", {}, name ? h("a", { href: `#/${PAGES[page].back || page}` }, "‹ back") : title),
    tools.length ? h("div", { class: "toolbar" }, tools) : "",
    h("div", { id: "content", "aria-busy": "true", "data-place": here }, h("p", { class: "empty" }, "…")));
}

function show(content) {
  const focused = document.activeElement?.dataset?.key, box = $("content");
  box.replaceChildren(...[content].flat(Infinity).filter(Boolean));
  box.setAttribute("aria-busy", "false");
  if (focused) document.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

async function refresh() {
  clearTimeout(timer);
  const turn = ++asked, { page, name } = where();
  frame(page, name);
  try {
    const status = await ask("status");
    if (turn !== asked) return;
    if (!$("user").childNodes.length) await who();
    measure(status);
    heading(status);
    navigation(page);
    const content = await PAGES[page].show(ask, name, view, change);
    if (turn !== asked) return;
    show(content);
    $("banner").hidden = true;
  } catch (error) {
    if (turn !== asked) return;
    navigation(page);
    $("banner").textContent = error.message;
    $("banner").hidden = false;
    $("content").setAttribute("aria-busy", "false");
  }
  if (!paused && !document.hidden && !PAGES[page].still) timer = setTimeout(refresh, EVERY_MS);
}

view.page = (after) => { view.after = after; refresh(); };

// -- keys ----------------------------------------------------------------------------------------------------------

const KEYS = {
  "1–9": "a page", "/": "filter", "j k": "the next, the previous row", "Enter": "open", "Esc": "back, or leave the filter",
  "r": "ask now", "p": "pause", "t": "light or dark", "?": "this",
};

function pause() {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", String(paused));
  $("pause").textContent = paused ? "Go on" : "Pause";
  refresh();
}

function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches, root = document.documentElement;
  root.dataset.theme = (root.dataset.theme || (dark ? "dark" : "light")) === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", root.dataset.theme); } catch { /* not kept */ }
}

function keys() {
  $("help").replaceChildren(h("h2", {}, "Keys"),
    h("table", {}, h("tbody", {}, Object.entries(KEYS).map(([key, does]) => h("tr", {}, h("th", { scope: "row" }, h("kbd", {}, key)), h("td", {}, does))))),
    h("button", { type: "button", onclick: () => $("help").close() }, "Close"));
  $("help").showModal();
}

function row(step) {
  const links = [...document.querySelectorAll("#content tbody a")], at = links.indexOf(document.activeElement);
  links[Math.max(0, Math.min(links.length - 1, at + step))]?.focus();
}

addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") {
    if (typing) event.target.blur();
    else if (where().name) location.hash = `#/${PAGES[where().page].back || where().page}`;
    return;
  }
  if (typing) return;
  const titled = Object.entries(PAGES).filter(([, page]) => page.title);
  const act = { "/": () => $("filter")?.focus(), j: () => row(1), k: () => row(-1), r: refresh, p: pause, t: theme, "?": keys }[event.key]
    || (/^[1-9]$/.test(event.key) && titled[event.key - 1] && (() => { location.hash = `#/${titled[event.key - 1][0]}`; }));
  if (!act) return;
  event.preventDefault();
  act();
});

try { const kept = localStorage.getItem("theme"); if (kept) document.documentElement.dataset.theme = kept; } catch { /* the system's */ }
$("pause").addEventListener("click", pause);
$("theme").addEventListener("click", theme);
$("keys").addEventListener("click", keys);
addEventListener("hashchange", () => { $("done").hidden = $("done").dataset.at !== location.hash; refresh(); $("main").focus({ preventScroll: true }); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
refresh();
