// The page: one whole answer, then what changes, as it comes.

import { ago, byId, clock, counted, el, load, moment, rate, seconds, setText, whole } from "./dom.js";
import { Table, matcher, sorted } from "./tables.js";
import { charts, lineage } from "./pictures.js";
import { showLetters, showRange } from "./details.js";
import { act } from "./actions.js";

// On a phone a row has two lines, and the rest of what is known of a range is behind its name.
const PHONE = matchMedia("(max-width: 44rem)");
let page = PHONE.matches ? 20 : 200;
const POLL = 5000;
const MOVES = 100;
const state = { view: null, byName: new Map(), number: 0, trouble: null, heard: 0, sort: "range", descending: false, first: 0, chosen: new Set(), stream: null };

const COLUMNS = [
  { name: "range", label: "Range", class: "name", open: true, text: (row) => row.range, value: (row) => row.range },
  { name: "state", label: "State", text: (row) => row.state, className: (row) => `state state-${row.state}`, value: (row) => SEVERITY.indexOf(row.state),
    note: (row, now) => [row.note, row.since ? `since ${ago(row.since, now)}` : "", row.next_owner ? `→ ${row.next_owner}` : ""].filter(Boolean).join(", ") },
  { name: "owner", label: "Owner", text: (row) => row.owner ?? "", value: (row) => row.owner },
  { name: "owned_since", label: "Since", figure: true, class: "more", text: (row, now) => ago(row.owned_since, now), value: (row) => row.owned_since, title: (row) => moment(row.owned_since) },
  { name: "lag", label: "Lag", figure: true, text: (row) => whole(row.lag), value: (row) => row.lag, largest: true },
  { name: "lag_seconds", label: "Lag time", figure: true, class: "more", text: (row) => seconds(row.lag_seconds), value: (row) => row.lag_seconds, largest: true },
  { name: "rate", label: "Changes/s", figure: true, class: "more", text: (row) => rate(row.rate), value: (row) => row.rate, largest: true },
  { name: "load", label: "Load", figure: true, class: "more", text: (row) => load(row.load), value: (row) => row.load, largest: true },
  { name: "checkpoint", label: "Checkpoint", figure: true, class: "more", text: (row, now) => (row.checkpoint_at ? `${ago(row.checkpoint_at, now)} ago` : ""), value: (row) => row.checkpoint_at, title: (row) => moment(row.checkpoint_at) },
  { name: "position", label: "Position", class: "position more", text: (row) => row.position ?? "", title: (row) => row.position ?? "" },
];
const SEVERITY = ["stuck", "failing", "expired", "unowned", "paused", "waiting", "reading", "idle", "ended"];
const CHOICE = {
  name: "chosen", label: "Choose", hidden: true,
  cell: (row) => el("input", { type: "checkbox", "aria-label": `Choose ${row.range}`, onchange: (event) => choose(row.range, event.target.checked) }),
  update: (cell, row) => { cell.firstChild.checked = state.chosen.has(row.range); },
};
const HOSTS = [
  { name: "name", label: "Host", class: "name", text: (row) => row.name, link: (row) => address(row) },
  { name: "state", label: "State", text: (row) => row.state, className: (row) => `state state-${row.state}`, note: (row) => HOST_NOTES[row.state] ?? "" },
  { name: "started_at", label: "Alive since", figure: true, class: "more", text: (row, now) => ago(row.started_at, now), title: (row) => moment(row.started_at) },
  { name: "ranges", label: "Ranges", figure: true, text: (row) => whole(row.total.ranges) },
  { name: "lag", label: "Lag", figure: true, text: (row) => atLeast(row.total) },
  { name: "lag_seconds", label: "Lag time", figure: true, class: "more", text: (row) => seconds(row.total.lag_seconds) },
  { name: "rate", label: "Changes/s", figure: true, class: "more", text: (row) => rate(row.total.rate) },
  { name: "load", label: "Load", figure: true, class: "more", text: (row) => load(row.total.load) },
  { name: "loop", label: "Loop lag", figure: true, class: "more", text: (row) => (row.loop_lag === null ? "" : `${(row.loop_lag * 1000).toFixed(0)} ms`) },
  { name: "stamp", label: "Sign of life", figure: true, class: "more", text: (row) => (row.stamp_age === null ? "" : `${seconds(row.stamp_age)} ago`) },
  { name: "version", label: "Version", class: "more", text: (row) => row.version },
];
// What some ranges are behind together; of a range that nobody can count that is not known.
const atLeast = (total) => (total.lag !== null ? whole(total.lag) : total.lag_at_least === null ? "" : `≥ ${whole(total.lag_at_least)}`);
const HOST_NOTES = {
  dead: "its record does not change any more",
  foreign: "it keeps no record: a processor of another kind, or a host that is gone",
};
const PIPELINES = [
  { name: "table", label: "Table", class: "name", text: (row) => row.table || row.address },
  { name: "trouble", label: "State", text: (row) => (row.trouble ? "in trouble" : "reading"), className: (row) => `state state-${row.trouble ? "failing" : "reading"}`, note: (row) => row.trouble ?? "" },
  { name: "changes", label: "Changes", figure: true, text: (row) => whole(row.changes) },
  { name: "lag", label: "Lag", figure: true, text: (row) => whole(row.lag) },
  { name: "rate", label: "Changes/s", figure: true, text: (row) => rate(row.rate) },
  { name: "address", label: "Pipeline", text: (row) => row.address },
];

// Only what can be a page of ours becomes a link: a member's record is other people's text.
const address = (row) => (/^https?:\/\//.test(row.address) && row.name !== state.view?.me ? `${row.address.replace(/\/$/, "")}/` : "");

let rangeTable = null;
const hostTable = new Table(byId("host-table"), HOSTS, { caption: "Hosts of the fleet" });
const pipelineTable = new Table(byId("pipeline-table"), PIPELINES, { caption: "Tables of pipelines" });

function makeRangeTable() {
  const columns = state.view.acts ? [CHOICE, ...COLUMNS] : COLUMNS;
  rangeTable = new Table(byId("range-table"), columns, { caption: "Ranges of the feed", onSort: sortBy, onOpen: (name) => showRange(state.view, name) });
  byId("sort").replaceChildren(...COLUMNS.filter((one) => one.value).map((one) => el("option", { value: one.name }, one.label)));
  byId("state").replaceChildren(el("option", { value: "" }, "all but ended"), el("option", { value: "trouble" }, "in trouble"), ...SEVERITY.map((one) => el("option", { value: one }, one)));
}

function sortBy(name) {
  const column = COLUMNS.find((one) => one.name === name);
  state.descending = state.sort === name ? !state.descending : Boolean(column.largest);
  Object.assign(state, { sort: name, first: 0 });
  showRanges();
}

function choose(name, wanted) {
  if (wanted) state.chosen.add(name);
  else state.chosen.delete(name);
  showChosen();
}

function showChosen() {
  const bar = byId("chosen");
  for (const name of state.chosen) if (!state.byName.has(name)) state.chosen.delete(name);
  bar.hidden = !state.chosen.size;
  const button = (label, action, danger) =>
    el("button", { type: "button", class: danger ? "danger" : null, onclick: () => act(action, { ranges: [...state.chosen].sort() }) }, label);
  bar.replaceChildren(
    el("span", { role: "status" }, `${counted(state.chosen.size, "range")} chosen`),
    button("Pause …", "pause"), button("Resume …", "resume"), button("Reset …", "reset", true),
    el("button", { type: "button", onclick: () => { state.chosen.clear(); showChosen(); showRanges(); } }, "Choose none"));
}

const wantedState = (row, wanted) =>
  wanted === "" ? row.state !== "ended" : wanted === "trouble" ? SEVERITY.indexOf(row.state) < 5 : row.state === wanted;

function found() {
  const matches = matcher(byId("filter").value);
  const wanted = byId("state").value;
  return state.view.ranges.filter((row) => wantedState(row, wanted) && matches([row.range, row.owner, row.next_owner, row.note]));
}

function showRanges() {
  const rows = found();
  const column = COLUMNS.find((one) => one.name === state.sort);
  const ordered = sorted(rows, column, state.descending);
  state.first = Math.min(state.first, Math.max(0, Math.floor((ordered.length - 1) / page) * page));
  const shown = ordered.slice(state.first, state.first + page);
  rangeTable.show(shown, state.view.at);
  rangeTable.sortedBy(state.sort, state.descending);
  byId("sort").value = state.sort;
  const part = ordered.length > page ? `, ${state.first + 1} to ${state.first + shown.length} are shown` : "";
  setText(byId("range-count"), `${counted(ordered.length, "range")} of ${whole(state.view.ranges.length)}${part}`);
  showPages(ordered.length);
}

function showPages(count) {
  const turn = (label, by, possible) =>
    el("button", { type: "button", disabled: !possible, onclick: () => { state.first += by; showRanges(); byId("range-count").scrollIntoView(); } }, label);
  const key = `${count > page} ${state.first > 0} ${state.first + page < count}`;
  if (showPages.key === key) return;
  showPages.key = key;
  byId("pages").replaceChildren(...(count > page ? [turn("Previous", -page, state.first > 0), turn("Next", page, state.first + page < count)] : []));
}

function showTotals(view) {
  const living = view.ranges.filter((row) => row.state !== "ended");
  const sum = (values) => values.reduce((a, b) => a + (b ?? 0), 0);
  const known = living.filter((row) => row.lag !== null);
  const lates = living.map((row) => row.lag_seconds).filter((late) => late !== null);
  const troubled = living.filter((row) => SEVERITY.indexOf(row.state) < 5).length;
  const tiles = [
    ["Hosts", whole(view.hosts.filter((row) => row.state === "running").length)],
    ["Ranges", whole(living.length)],
    ["Lag", atLeast({ lag: known.length === living.length ? sum(known.map((row) => row.lag)) : null, lag_at_least: known.length ? sum(known.map((row) => row.lag)) : null }) || "not known"],
    ["Lag time at most", lates.length ? seconds(Math.max(...lates)) : "not known"],
    ["Changes/s", rate(sum(living.map((row) => row.rate)))],
    ["In trouble", whole(troubled)],
    ["Dead letters", view.letters === null ? "not known" : whole(view.letters)],
  ];
  const place = byId("totals");
  if (!place.childNodes.length) place.append(...tiles.map(([label]) => el("div", {}, el("dt", {}, label), el("dd"))));
  tiles.forEach(([, text], at) => setText(place.children[at].lastChild, text));
}

function showLetterCount(count) {
  setText(byId("to-letters"), count ? `Dead letters (${whole(count)})` : "Dead letters");
  setText(byId("letters-summary"), count === null ? "Changes that observers could not handle" : `${counted(count, "change")} that observers could not handle`);
}

function showTroubles(view) {
  const alike = new Map();
  for (const row of view.ranges) {
    if (SEVERITY.indexOf(row.state) >= 5) continue;
    const key = `${row.state}: ${row.note ?? ""}`;
    (alike.get(key) ?? alike.set(key, []).get(key)).push(row.range);
  }
  const lines = [
    ...(state.trouble ? [["bad", state.trouble]] : []),
    ...view.problems.map((one) => ["bad", `${one.kind}: ${one.message}`]),
    ...(view.hosts.some((row) => row.state === "running" || row.state === "foreign") ? [] : [["bad", "no host runs: what is appended to the feed is not read"]]),
    ...[...alike].map(([key, names]) => [
      key.startsWith("paused") || key.startsWith("unowned") ? "" : "bad",
      `${key} (${names.slice(0, 5).join(", ")}${names.length > 5 ? ` and ${names.length - 5} more` : ""})`]),
  ].slice(0, 50);
  const text = JSON.stringify(lines);
  if (showTroubles.text === text) return;
  showTroubles.text = text;
  byId("troubles").replaceChildren(...lines.map(([kind, line]) => el("li", { class: kind || null }, line)));
}

const MOVE_WORDS = {
  created: () => "has a lease now",
  acquired: (move) => `acquired by ${move.to}`,
  moved: (move) => `from ${move.of} to ${move.to}`,
  released: (move) => `released by ${move.of}`,
  requested: (move) => `asked for by ${move.to}, handed over by ${move.of ?? "no host"}`,
  paused: (move) => `paused: ${move.note}`,
  resumed: () => "resumed",
  ended: () => "read to its end",
};

function showMoves(view) {
  const key = view.moves.length ? `${view.moves[0].at} ${view.moves[0].range} ${view.moved}` : "none";
  if (showMoves.key === key) return;
  showMoves.key = key;
  byId("move-list").replaceChildren(...(view.moves.length
    ? view.moves.map((move) => el("li", {}, el("time", { datetime: new Date(move.at * 1000).toISOString(), title: moment(move.at) }, clock(move.at)), el("span", { class: "name" }, move.range), ` ${(MOVE_WORDS[move.kind] ?? (() => move.kind))(move)}`))
    : [el("li", {}, "Nothing has moved since this was first looked at.")]));
}

function showHour(view) {
  setText(byId("hour-title"), view.me ? `The last hour of ${view.me}` : "The last hour of the fleet");
  const last = view.hour[view.hour.length - 1]?.[0] ?? 0;
  if (showHour.last === last) return;
  showHour.last = last;
  byId("charts").replaceChildren(...charts(view.hour, view.at));
}

function showLineage() {
  if (!byId("lineage-details").open) return;
  const key = JSON.stringify([state.view.ranges.map((row) => [row.range, row.state]), state.view.past.length, byId("filter").value]);
  if (showLineage.key === key) return;
  showLineage.key = key;
  const matches = matcher(byId("filter").value);
  const { picture, words } = lineage(state.view.ranges, state.view.past, (row) => matches([row.range, row.owner]), (name) => showRange(state.view, name));
  setText(byId("lineage-note"), words);
  byId("lineage-picture").replaceChildren(picture);
}

function showProcessors(view) {
  const place = byId("processors");
  if (place.childNodes.length || !view.processors?.length) return;
  place.hidden = false;
  const link = (name) => el("a", { href: `../${name}/`, "aria-current": name === view.processor ? "page" : null }, name);
  place.append(...view.processors.flatMap((name) => [link(name), " "]));
}

function show() {
  const view = state.view;
  if (!rangeTable) makeRangeTable();
  const title = [view.me, view.processor].filter(Boolean).join(" ");
  setText(byId("title"), title ? `Changefeed Host ${title}` : "Changefeed fleet");
  document.title = `${title || "fleet"}: Changefeed Host`;
  showProcessors(view);
  setText(byId("places"), `${view.feed}, leases in ${view.leases}`);
  showTotals(view);
  showTroubles(view);
  showLetterCount(view.letters);
  showHour(view);
  hostTable.show(view.hosts, view.at);
  showRanges();
  showMoves(view);
  showLineage();
  byId("pipelines").hidden = byId("to-pipelines").hidden = !view.pipelines.length;
  pipelineTable.show(view.pipelines.map((row) => ({ ...row, key: `${row.address} ${row.table}` })), view.at);
}

function take(change) {
  const view = state.view;
  Object.assign(state, { number: change.number, trouble: change.trouble });
  if (change.at) {
    view.at = change.at;
    for (const row of change.changed) {
      const known = state.byName.get(row.range);
      if (known) Object.assign(known, row);
      else { view.ranges.push(row); state.byName.set(row.range, row); }
    }
    for (const name of change.gone) state.byName.delete(name);
    if (change.gone.length) view.ranges = view.ranges.filter((row) => state.byName.has(row.range));
    for (const part of ["hosts", "past", "pipelines", "problems", "letters"]) if (part in change) view[part] = change[part];
    if (change.moves.length) { view.moves = [...change.moves, ...view.moves].slice(0, MOVES); view.moved += change.moves.length; }
    view.hour = [...view.hour, ...change.hour].filter((point) => point[0] > view.at - 3700);
  }
}

let pending = false;
function showSoon() {
  if (pending) return;
  pending = true;
  const draw = () => { pending = false; show(); };
  if (document.hidden) setTimeout(draw, 1000);
  else requestAnimationFrame(draw);
}

const connection = (text, bad) => { const place = byId("connection"); setText(place, text); place.classList.toggle("state-failing", Boolean(bad)); };

async function whole_() {
  const answer = await fetch("page/state", { headers: { Accept: "application/json" }, cache: "no-store" });
  const found_ = await answer.json();
  if (!answer.ok) throw new Error(found_.error ?? `the answer was ${answer.status}`);
  Object.assign(state, { view: found_.view, number: found_.number, trouble: found_.trouble });
  state.byName = new Map(found_.view.ranges.map((row) => [row.range, row]));
  showSoon();
}

// Where events cannot be had (an embedding program that serves none, too many watchers), it asks.
async function follow() {
  state.stream?.close();
  try {
    await whole_();
  } catch (error) {
    connection(`${error.message}; trying again`, true);
    return setTimeout(follow, POLL);
  }
  const stream = (state.stream = new EventSource(`page/events?after=${state.number}`));
  stream.addEventListener("open", () => connection("live"));
  stream.addEventListener("change", (event) => { take(JSON.parse(event.data)); showSoon(); });
  stream.addEventListener("again", () => { stream.close(); setTimeout(follow, 200); });
  stream.addEventListener("error", () => {
    if (stream.readyState === EventSource.CLOSED) {
      connection("refreshed every few seconds");
      setTimeout(follow, POLL);
    } else connection("not connected; trying again", true);
  });
}

PHONE.addEventListener("change", () => { Object.assign(state, { first: 0 }); page = PHONE.matches ? 20 : 200; if (state.view) showRanges(); });
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("filter").addEventListener("input", () => { state.first = 0; if (state.view) { showRanges(); showLineage(); } });
byId("state").addEventListener("change", () => { state.first = 0; showRanges(); });
byId("sort").addEventListener("change", (event) => { if (event.target.value !== state.sort) sortBy(event.target.value); });
byId("lineage-details").addEventListener("toggle", () => { if (state.view) showLineage(); });
byId("letters-details").addEventListener("toggle", (event) => { if (event.target.open && state.view) again(); });
const again = () => showLetters(byId("letters-body"), state.view, again);

follow();
