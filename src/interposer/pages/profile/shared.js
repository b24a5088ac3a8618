// What all parts of the page use: the data, elements, colours and numbers as texts.

// Colours that people with any kind of colour vision tell apart (Okabe and Ito), as the drawing of a network has them.
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#b8a800", "#8c6d31"];
const NEUTRAL = "#8a8f98";
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const colours = new Map(data.backends.map((name, index) => [name, COLOURS[index % COLOURS.length]]));
const colourOf = (backend) => colours.get(backend) || NEUTRAL;

function element(name, content, attributes) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  for (const item of [content].flat()) if (item !== undefined && item !== null && item !== "") made.append(item);
  return made;
}

function drawn(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function timeText(ns) {
  if (ns >= 1e9) return `${Number((ns / 1e9).toPrecision(4))} s`;
  if (ns >= 1e6) return `${Number((ns / 1e6).toPrecision(4))} ms`;
  return ns >= 1e3 ? `${Number((ns / 1e3).toPrecision(4))} \u00b5s` : `${Math.round(ns)} ns`;
}

function bytesText(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0,
    left = count;
  while (Math.abs(left) >= 1024 && at < units.length - 1) {
    left /= 1024;
    at++;
  }
  return `${at ? Number(left.toPrecision(3)) : left} ${units[at]}`;
}

const numberText = (count) => count.toLocaleString("en-US");
const percent = (share) => `${(100 * share).toFixed(1)}%`;
const counted = (count, one, many) => `${numberText(count)} ${count === 1 ? one : many || `${one}s`}`;
const valueText = (value, units) =>
  units === "bytes" ? bytesText(value) : `${Number(value.toPrecision(5)).toLocaleString("en-US")} ${units}`;
