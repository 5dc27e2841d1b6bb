// What is known of one range, and the dead letters with their bodies.

import { ago, byId, counted, el, load, moment, rate, seconds, whole } from "./dom.js";
import { act, asked } from "./actions.js";

const childrenOf = (view, name) =>
  [...view.ranges, ...view.past].filter((one) => one.parents.includes(name)).map((one) => one.range);

export function showRange(view, name) {
  const dialog = byId("details");
  const range = view.ranges.find((one) => one.range === name);
  const past = view.past.find((one) => one.range === name);
  if (!range && !past) return;
  const links = (names) =>
    names.length ? el("span", {}, ...names.flatMap((one, at) => [at ? ", " : "", el("button", { type: "button", class: "plain", onclick: () => showRange(view, one) }, one)])) : "none";
  const facts = range ? factsOf(range, view.at) : [["State", "ended; it has no lease any more"]];
  facts.push(["Came from", links((range ?? past).parents)], ["Continues in", links(childrenOf(view, name))]);
  dialog.replaceChildren(
    el("h2", { id: "details-title" }, name),
    el("dl", { class: "facts" }, ...facts.filter(([, value]) => value !== "").flatMap(([label, value]) => [el("dt", {}, label), el("dd", {}, value)])),
    range ? buttons(view, range, dialog) : "",
    el("form", { method: "dialog", class: "toolbar" }, el("button", { autofocus: true }, "Close")),
  );
  if (!dialog.open) dialog.showModal();
}

function factsOf(range, now) {
  const since = range.since ? `, since ${moment(range.since)} (${ago(range.since, now)})` : "";
  return [
    ["State", el("span", {}, el("span", { class: `state state-${range.state}` }, range.state), `${range.note ? ` ${range.note}` : ""}${since}`)],
    ["Owner", range.owner ?? "none"],
    ["Next owner", range.next_owner ?? ""],
    ["Owned since", range.owned_since ? `${moment(range.owned_since)} (${ago(range.owned_since, now)})` : ""],
    ["Epoch", String(range.epoch)],
    ["Position", range.position ?? ""],
    ["Last checkpoint", range.checkpoint_at ? `${moment(range.checkpoint_at)} (${ago(range.checkpoint_at, now)} ago)` : ""],
    ["Last batch done", range.progress_at ? `${moment(range.progress_at)} (${ago(range.progress_at, now)} ago)` : ""],
    ["Lag", range.lag === null ? "not known here" : counted(range.lag, "change")],
    ["Late", seconds(range.lag_seconds)],
    ["Rate", range.rate === null ? "" : `${rate(range.rate)} changes a second`],
    ["Load", range.load === null ? "" : `busy for ${load(range.load)} of each second`],
    ["Keys", range.low || range.high ? `${range.low} up to ${range.high || "the end"}` : ""],
  ];
}

function buttons(view, range, dialog) {
  if (!view.acts || range.state === "ended" || !range.leased) return "";
  const button = (label, action, danger) =>
    el("button", { type: "button", class: danger ? "danger" : null, onclick: () => { dialog.close(); act(action, { ranges: [range.range] }); } }, label);
  return el("div", { class: "toolbar" },
    range.state === "paused" ? button("Resume …", "resume") : button("Pause …", "pause"),
    range.owner ? button("Release …", "release", true) : "",
    button("Reset …", "reset", true));
}

export async function showLetters(place, view, again) {
  place.replaceChildren(el("p", {}, "asking …"));
  const { status, answer } = await asked("page/dead-letters");
  if (status === 401 || status === 403) {
    const token = el("input", { type: "password", id: "letters-token", autocomplete: "current-password" });
    place.replaceChildren(
      el("p", { class: "notice" }, answer.error),
      status === 401
        ? el("form", { class: "toolbar", onsubmit: (event) => { event.preventDefault(); asked.token = token.value; again(); } },
            el("label", {}, "Token ", token), el("button", {}, "Show"))
        : "",
    );
    return;
  }
  if (answer.error) {
    place.replaceChildren(el("p", { class: "notice" }, answer.error));
    return;
  }
  const some = answer.letters.length;
  place.replaceChildren(
    el("p", { role: "status" }, some ? `${counted(answer.count, "dead letter")}${some < answer.count ? `; the newest ${whole(some)} are shown` : ""}.` : "There are no dead letters."),
    answer.own.length && view.acts
      ? el("div", { class: "toolbar" },
          el("button", { type: "button", onclick: () => act("replay", { letters: answer.own }, again) }, answer.own.length < some ? `Replay the ${whole(answer.own.length)} of this observer …` : "Replay those shown …"),
          el("button", { type: "button", onclick: again }, "Look again"))
      : el("div", { class: "toolbar" }, el("button", { type: "button", onclick: again }, "Look again")),
    ...answer.letters.map((letter) => letterItem(letter, view, again, answer.own.includes(letter.id))),
  );
}

function letterItem(letter, view, again, own) {
  const inside = el("div");
  const open = async (event) => {
    if (!event.target.open || inside.childNodes.length) return;
    const { answer } = await asked(`page/dead-letters?id=${encodeURIComponent(letter.id)}`);
    inside.replaceChildren(
      ...(answer.error
        ? [el("p", { class: "notice bad" }, answer.error)]
        : [el("h3", {}, "Body"), el("pre", {}, answer.body), el("h3", {}, "What the observer raised"), el("pre", {}, answer.trace)]),
    );
  };
  return el("article", { class: "letter" },
    el("p", {}, el("strong", {}, letter.key), ` in ${letter.range_id}, ${letter.operation}, change ${letter.change_id}`),
    el("p", { class: "note" }, `${letter.kind}: ${letter.error}`),
    el("p", { class: "note" }, `${letter.id}; failed at ${letter.failed_at} on ${letter.host}${letter.observer ? ` in ${letter.observer}` : ""}, ${counted(letter.attempts, "attempt")}`),
    el("details", { ontoggle: open }, el("summary", {}, "Body and traceback"), inside),
    view.acts
      ? el("div", { class: "toolbar" },
          own ? el("button", { type: "button", onclick: () => act("replay", { letters: [letter.id] }, again) }, "Replay …") : "",
          el("button", { type: "button", class: "danger", onclick: () => act("discard", { letters: [letter.id] }, again) }, "Discard …"))
      : "");
}
