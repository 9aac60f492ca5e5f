// Another topology: what `mom topology plan` says of it. Nothing is applied here.
import { button, h } from "./dom.js";

// These stay while the page is shown anew.
const field = h("textarea", { id: "plan-text", rows: "16", spellcheck: "false", "data-key": "plan-text", "aria-label": "Topology file" });
const drop = h("input", { type: "checkbox", "data-key": "plan-drop" });
const chosen = h("input", { type: "file", accept: ".toml", "aria-label": "Choose a file", onchange: async () => { if (chosen.files.length) field.value = await chosen.files[0].text(); } });
const said = h("div", { id: "plan", role: "status" });

async function make(change) {
  said.replaceChildren(h("p", { class: "empty" }, "All servers are asked."));
  try {
    const found = await change("plan", { text: field.value, drop: drop.checked });
    said.replaceChildren(h("pre", {}, found.words.join("\n")), found.refused
      ? h("p", { class: "bad", role: "alert" }, `This cannot be applied now: ${found.refused}`)
      : found.changes.length ? h("p", { class: "note" }, "mom topology apply does it, on a machine that has the tokens of the servers.") : "");
  } catch (error) { said.replaceChildren(h("p", { class: "bad", role: "alert" }, error.message)); }
}

export async function plan(ask, name, view, change) {
  if (!await view.may("bus")) return h("p", { class: "empty" }, "A plan is for who may manage the bus: log in as such a user.");
  return [
    h("p", {}, "The topology file that is wanted, whole: paste it, or choose one. It is held against the one that the bus goes by; nothing is changed."),
    h("p", {}, chosen), field,
    h("div", { class: "toolbar" }, button("Plan", () => make(change)), h("label", {}, drop, " servers leave with all that they hold")),
    said,
  ];
}
