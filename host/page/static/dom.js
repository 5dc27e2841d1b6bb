// Elements and texts. Everything that came from a fleet becomes a text node, never markup.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const el = (name, attributes = {}, ...children) =>
  filled(document.createElement(name), attributes, children);

export const svg = (name, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, name), attributes, children);

// Change a text only where it differs: nothing is laid out anew for what stays.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export const counted = (number, noun) => `${whole(number)} ${noun}${number === 1 ? "" : "s"}`;

export const whole = (number) => number === null || number === undefined ? "" : Math.round(number).toLocaleString("en");

export const load = (number) => number === null || number === undefined ? "" : number.toFixed(2);
export const rate = (number) =>
  number === null || number === undefined ? "" : number >= 100 ? whole(number) : number.toLocaleString("en", { maximumFractionDigits: 1 });

export function seconds(number) {
  if (number === null || number === undefined) return "";
  if (number < 0.05) return "0 s";
  if (number < 10) return `${number.toFixed(1)} s`;
  if (number < 120) return `${Math.round(number)} s`;
  if (number < 7200) return `${Math.round(number / 60)} min`;
  if (number < 172800) return `${Math.round(number / 3600)} h`;
  return `${Math.round(number / 86400)} d`;
}

export const ago = (at, now) => (at === null || at === undefined ? "" : seconds(Math.max(0, now - at)));

export const moment = (at) =>
  at === null || at === undefined ? "" : new Date(at * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC";

export const clock = (at) => new Date(at * 1000).toLocaleTimeString([], { hour12: false });
