// What operators do: first what it means, then the question, then what was done.
// The token stays in this page's memory, and is gone when the page is left.

import { byId, el } from "./dom.js";

export async function asked(path, body) {
  const headers = { Accept: "application/json" };
  if (asked.token) headers.Authorization = `Bearer ${asked.token}`;
  if (body) headers["Content-Type"] = "application/json";
  try {
    const answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), cache: "no-store", redirect: "error" });
    const found = await answer.json();
    if (answer.status === 401) asked.token = "";
    return { status: answer.status, answer: found };
  } catch (error) {
    return { status: 0, answer: { error: `no answer came (${error.message}); what was asked may have been done` } };
  }
}
asked.token = "";

let by = "";
const TITLES = { pause: "Pause", resume: "Resume", release: "Release", reset: "Reset", replay: "Replay", discard: "Discard" };

const field = (id, label, attributes) => el("label", { class: "field", for: id }, label, el("input", { id, ...attributes }));

export function act(action, target, done) {
  const dialog = byId("action");
  const names = target.ranges ?? target.letters;
  const wanted = { action, ...target };
  const form = el("form", { onsubmit: (event) => { event.preventDefault(); look(); } },
    el("h2", { id: "action-title" }, `${TITLES[action]} ${names.length === 1 ? names[0] : `${names.length} ${target.ranges ? "ranges" : "letters"}`}`),
    action === "pause" ? field("act-reason", "Reason; status, logs and this page show it", { value: "paused by hand", required: true, maxlength: 200 }) : "",
    action === "reset" ? field("act-to", "To: beginning, now, snapshot, a time with its zone (2026-01-31T12:00Z), or a position as shown", { required: true, maxlength: 4000 }) : "",
    field("act-by", "Your name, for the log", { value: by, required: true, maxlength: 100, autocomplete: "username" }),
    asked.token ? "" : field("act-token", "Token (web.token)", { type: "password", required: true, autocomplete: "current-password" }),
    el("div", { class: "toolbar" }, el("button", { class: "primary" }, "What would happen?"), el("button", { type: "button", onclick: () => dialog.close() }, "Close")));
  dialog.replaceChildren(form);
  if (!dialog.open) dialog.showModal();

  async function look() {
    by = byId("act-by").value;
    if (byId("act-token")) asked.token = byId("act-token").value;
    Object.assign(wanted, { by, reason: byId("act-reason")?.value, to: byId("act-to")?.value });
    const { answer } = await busy(dialog, () => asked("page/actions", wanted));
    if (answer.error) return report(dialog, [answer.error], "bad", () => act(action, target, done));
    dialog.replaceChildren(
      el("h2", { id: "action-title" }, answer.question),
      ...answer.says.map((line) => el("p", {}, line)),
      el("div", { class: "toolbar" },
        el("button", { type: "button", class: "danger", onclick: () => confirm(answer.question) }, "Yes"),
        el("button", { type: "button", autofocus: true, onclick: () => dialog.close() }, "No")));
  }

  async function confirm() {
    const { answer } = await busy(dialog, () => asked("page/actions", { ...wanted, confirm: true }));
    report(dialog, answer.error ? [answer.error] : answer.says, answer.error || answer.failed ? "bad" : "good");
    done?.();
  }
}

async function busy(dialog, work) {
  for (const button of dialog.querySelectorAll("button")) button.disabled = true;
  dialog.setAttribute("aria-busy", "true");
  try {
    return await work();
  } finally {
    dialog.removeAttribute("aria-busy");
    for (const button of dialog.querySelectorAll("button")) button.disabled = false;
  }
}

function report(dialog, lines, kind, again) {
  dialog.replaceChildren(
    el("h2", { id: "action-title" }, kind === "good" ? "Done" : "Not done, or not all of it"),
    el("div", { role: "status" }, ...lines.map((line) => el("p", { class: `notice ${kind}` }, line))),
    el("div", { class: "toolbar" },
      again ? el("button", { type: "button", onclick: again }, "Back") : "",
      el("button", { type: "button", autofocus: true, onclick: () => dialog.close() }, "Close")));
}
