// The charts of the last hour, and the picture of lineage. What they show stands in words, too.

import { counted, el, rate, seconds, svg, whole } from "./dom.js";

const WIDTH = 600;
const HEIGHT = 100;

export function charts(points, now) {
  if (points.length < 2) return [el("p", { class: "note" }, "The chart gets a point every ten seconds; there are too few for a picture yet.")];
  const [, rates, lags] = [0, 1, 2].map((at) => points.map((point) => point[at]));
  const last = points[points.length - 1];
  const late = last[3] === null ? "" : `, the oldest ${seconds(last[3])} old`;
  return [
    chart(points, 1, now, `Rate: ${rate(last[1])} changes a second now, ${rate(Math.max(...rates))} at most`),
    chart(points, 2, now, `Lag: ${counted(last[2], "change")} now${late}, ${whole(Math.max(...lags))} at most`),
  ];
}

function chart(points, at, now, words) {
  const most = Math.max(...points.map((point) => point[at]), 1);
  const first = Math.min(points[0][0], now - 60);
  const x = (time) => (((time - first) / Math.max(1, now - first)) * WIDTH).toFixed(1);
  const y = (value) => (HEIGHT - 4 - (value / most) * (HEIGHT - 10)).toFixed(1);
  const line = points.map((point) => `${x(point[0])},${y(point[at])}`).join(" ");
  const area = `${x(points[0][0])},${HEIGHT} ${line} ${x(points[points.length - 1][0])},${HEIGHT}`;
  return el(
    "figure", {},
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${words}, in the last ${seconds(now - first)}` },
      svg("polygon", { class: "area", points: area }), svg("polyline", { points: line })),
    el("figcaption", {}, `${words}; from ${seconds(now - first)} ago until now`),
  );
}

const BOX = { width: 190, height: 18, gap: 4, step: 250 };
const MOST = 600;

// Generations from left to right; up and down by the keys that a range holds, where that is known.
export function lineage(ranges, past, matches, open) {
  const all = new Map([...past.map((one) => [one.range, { ...one, state: "past" }]), ...ranges.map((one) => [one.range, one])]);
  const children = new Map();
  for (const one of all.values()) for (const parent of one.parents) if (all.has(parent)) (children.get(parent) ?? children.set(parent, []).get(parent)).push(one.range);
  const shown = related([...all.values()].filter(matches).map((one) => one.range), all, children);
  const nodes = [...shown].slice(0, MOST).map((name) => all.get(name));
  const names = new Set(nodes.map((one) => one.range));
  const depth = depths(nodes, names);
  const place = places(nodes, depth);
  const columns = Math.max(0, ...nodes.map((one) => depth.get(one.range))) + 1;
  const height = Math.max(0, ...[...place.values()].map((at) => at.y + at.height)) + 8;
  const picture = svg("svg", { width: columns * BOX.step, height, role: "img", "aria-label": described(nodes, columns) });
  for (const one of nodes)
    for (const parent of one.parents)
      if (names.has(parent)) picture.append(edge(place.get(parent), place.get(one.range)));
  for (const one of nodes) picture.append(box(one, place.get(one.range), open));
  const cut = shown.size > nodes.length ? ` The picture shows ${nodes.length} of ${shown.size}: filter the ranges above to see others.` : "";
  return { picture, words: described(nodes, columns) + cut };
}

const described = (nodes, columns) =>
  `${counted(nodes.length, "range")} in ${counted(columns, "generation")}, the oldest on the left; ` +
  `${nodes.filter((one) => one.state === "ended" || one.state === "past").length} have ended. The details of a range name its parents and children.`;

function related(found, all, children) {
  const shown = new Set();
  const follow = (start, next) => {
    const open = [start];
    const seen = new Set(open);
    while (open.length) {
      const name = open.pop();
      shown.add(name);
      for (const other of next(name)) if (!seen.has(other)) { seen.add(other); open.push(other); }
    }
  };
  for (const name of found) {
    follow(name, (one) => all.get(one).parents.filter((parent) => all.has(parent)));
    follow(name, (one) => children.get(one) ?? []);
  }
  return shown;
}

function depths(nodes, names) {
  const byName = new Map(nodes.map((one) => [one.range, one]));
  const depth = new Map();
  const of = (name, path) => {
    if (depth.has(name)) return depth.get(name);
    if (path.has(name)) return 0; // no feed has such, and no page may hang for one
    path.add(name);
    const above = byName.get(name).parents.filter((parent) => names.has(parent));
    const found = above.length ? 1 + Math.max(...above.map((parent) => of(parent, path))) : 0;
    depth.set(name, found);
    return found;
  };
  for (const name of names) of(name, new Set());
  return depth;
}

function places(nodes, depth) {
  const line = BOX.height + BOX.gap;
  const place = new Map();
  const bounded = nodes.filter((one) => one.low < one.high);
  const bounds = [...new Set(bounded.flatMap((one) => [one.low, one.high]))].sort();
  const rank = new Map(bounds.map((bound, at) => [bound, at]));
  const below = new Map();
  for (const one of nodes) {
    const x = depth.get(one.range) * BOX.step + 4;
    if (one.low < one.high) {
      const top = rank.get(one.low);
      place.set(one.range, { x, y: 4 + top * line, height: (rank.get(one.high) - top) * line - BOX.gap });
    } else {
      const at = below.get(x) ?? bounds.length;
      below.set(x, at + 1);
      place.set(one.range, { x, y: 4 + at * line, height: BOX.height });
    }
  }
  return place;
}

function edge(from, to) {
  const [x1, y1] = [from.x + BOX.width, from.y + from.height / 2];
  const [x2, y2] = [to.x, to.y + to.height / 2];
  return svg("path", { d: `M${x1} ${y1} C${x1 + 30} ${y1} ${x2 - 30} ${y2} ${x2} ${y2}` });
}

function box(one, at, open) {
  const label = one.range.length > 27 ? `${one.range.slice(0, 26)}…` : one.range;
  const more = [one.state, one.owner].filter(Boolean).join(", ");
  return svg("g", { class: `node state-${one.state}`, onclick: () => open(one.range) },
    svg("title", {}, `${one.range}: ${more}`),
    svg("rect", { x: at.x, y: at.y, width: BOX.width, height: at.height, rx: 4 }),
    svg("text", { x: at.x + 6, y: at.y + Math.min(at.height / 2, at.height - 9) + 4 }, label));
}
