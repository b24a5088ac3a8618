// What is shown: nodes and parts out of the data, what is chosen, search, and the keyboard.

// Colours that people with any kind of colour vision tell apart (Okabe and Ito).
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#b8a800", "#8c6d31"];
const NEUTRAL = "#8a8f98",
  LAYER = { w: 220, h: 52 },
  PART = { w: 250, h: 60 },
  PILL = { w: 150, h: 26 };
const HOW = {
  direct: "passed without a copy",
  import: "imported without a copy",
  "device copy": "copied by the device",
  copy: "copied",
};

const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const colours = new Map((data.colours || data.backends).map((one, index) => [one, COLOURS[index % COLOURS.length]]));
const colourOf = (backend) => colours.get(backend) || NEUTRAL;

function element(name, content, attributes) {
  const made = document.createElement(name);
  for (const [key, one] of Object.entries(attributes || {})) made.setAttribute(key, one);
  for (const one of [content].flat(3)) if (one !== undefined && one !== null && one !== "") made.append(one);
  return made;
}

// --- numbers -------------------------------------------------------------------------------------------------------

function bytesText(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0,
    left = count;
  while (left >= 1024 && at < units.length - 1) {
    left /= 1024;
    at++;
  }
  return `${at ? (left < 10 ? left.toFixed(1) : left.toFixed(0)) : left} ${units[at]}`;
}

function msText(ms) {
  if (ms >= 1000) return `${(ms / 1000).toPrecision(3)} s`;
  return ms >= 0.1 ? `${Number(ms.toPrecision(3))} ms` : `${Number((ms * 1000).toPrecision(3))} \u00b5s`;
}

// Estimated times have a tilde in front.
function timeText(time) {
  if (!time) return "";
  if (time.how !== "measured" && !time.ms && !time.share) return "?"; // the work is unknown
  const text = time.ms === null ? `${percent(time.share)}` : msText(time.ms);
  return time.how === "measured" ? text : `~${text}`;
}

function percent(share) {
  const value = 100 * share;
  return `${value > 0 && value < 10 ? Math.max(0.1, value).toFixed(1) : value.toFixed(0)}%`;
}

function numberText(count) {
  return count.toLocaleString("en-US");
}

function counted(count, one, many) {
  return `${numberText(count)} ${count === 1 ? one : many || `${one}s`}`;
}

// --- the network as nodes and edges --------------------------------------------------------------------------------

const nodes = [],
  byName = new Map(),
  edges = [];
const longest = Math.max(1e-12, ...data.layers.map((one) => one.time.share));

function addNode(kind, name, more) {
  const node = { kind, name, title: name, key: `${kind} ${name}`, part: null, backend: "", ...more };
  nodes.push(node);
  if (!byName.has(name) && kind !== "output") byName.set(name, node);
  return node;
}

function readNetwork() {
  for (const one of data.inputs) addNode("input", one.name, { info: one, inputs: [] });
  for (const one of data["run by the runtime"])
    addNode("hosted", one.layer, { info: one, inputs: one.inputs, type: one.kind });
  for (const one of data.layers) {
    addNode("layer", one.layer, {
      info: one,
      inputs: one.inputs,
      part: one.part,
      backend: one.backend,
      type: one.kind,
    });
  }
  for (const one of data.outputs) addNode("output", one.name, { info: one, inputs: [one] });
  for (const node of nodes) node.inputs.forEach((tensor) => addEdge(node, tensor));
}

function addEdge(node, tensor) {
  const from = tensor.layer && byName.get(tensor.layer);
  if (from && from !== node) edges.push({ from, to: node, tensor, crossing: tensor.crossing });
}

// --- what is drawn now ---------------------------------------------------------------------------------------------

const state = {
  collapsed: new Set(),
  folded: true,
  matches: null,
  at: -1,
  picked: null,
  tab: "about",
  shade: data.shade === "time" ? "time" : "backend",
};
const parts = new Map(data.parts.map((one) => [one.part, one]));
const view = new View({ select: (node) => pick(node ? node.key : null), open: (node) => toggle(node) });

function keyOf(node) {
  return node.part !== null && state.collapsed.has(node.part) ? `part ${node.part}` : node.key;
}

function heatOf(share) {
  return state.shade === "time" ? `${(4 + 66 * Math.sqrt(Math.min(1, share))).toFixed(0)}%` : "13%";
}

function drawnNode(node) {
  const size = node.kind === "layer" ? LAYER : PILL,
    time = node.info.time;
  const spoken = [node.name, node.type, node.backend, timeText(time)].filter(Boolean).join(", ");
  return {
    ...size,
    key: node.key,
    kind: node.kind,
    name: node.name,
    title: node.title,
    under: node.type || "",
    time: timeText(time),
    colour: node.kind === "layer" ? colourOf(node.backend) : NEUTRAL,
    spoken,
    measured: !!time && time.how === "measured",
    length: time ? time.share / longest : 0,
    heat: heatOf(time ? time.share / longest : 0),
    part: node.part,
  };
}

function drawnPart(part) {
  const time = part.time,
    title = `part ${part.part}: ${part.backend}`,
    most = Math.max(1e-12, ...data.parts.map((one) => one.time.share));
  return {
    ...PART,
    key: `part ${part.part}`,
    kind: "part",
    name: title,
    title,
    under: counted(part.layers.length, "layer"),
    time: timeText(time),
    colour: colourOf(part.backend),
    spoken: `${title}, ${counted(part.layers.length, "layer")}, ${timeText(time)}; closed`,
    measured: time.how === "measured",
    length: time.share / most,
    heat: heatOf(time.share / most),
    part: part.part,
  };
}

function draw() {
  const drawn = [],
    places = new Map();
  for (const node of nodes) {
    const key = keyOf(node);
    if (places.has(key)) continue;
    places.set(key, drawn.length);
    drawn.push(key === node.key ? drawnNode(node) : drawnPart(parts.get(node.part)));
  }
  const lines = drawnEdges(places),
    { w, h } = view.size();
  const found = layOut(drawn, lines, Math.min(2.2, Math.max(0.6, w / h)), state.folded);
  drawn.forEach((one, index) => Object.assign(one, found.places[index]));
  lines.forEach((one, index) => Object.assign(one, { points: found.paths[index], path: curve(found.paths[index]) }));
  view.show({ nodes: drawn, edges: lines, hulls: hullsOf(drawn, lines), width: found.width, height: found.height });
}

// One line for all tensors that go from one box to another.
function drawnEdges(places) {
  const lines = new Map();
  for (const { from, to, tensor, crossing } of edges) {
    const a = places.get(keyOf(from)),
      b = places.get(keyOf(to)),
      key = `${a} ${b}`;
    if (a === b) continue;
    if (!lines.has(key)) lines.set(key, { from: a, to: b, how: "inside", label: "", spoken: "", seen: new Set() });
    const line = lines.get(key),
      known = crossing === null ? null : data.crossings[crossing];
    if (known && !line.seen.has(crossing)) addCrossing(line, crossing, known);
    if (!known && !line.spoken) line.spoken = `${tensor.type}${tensor.shape}`;
  }
  return [...lines.values()];
}

function isCopy(crossing) {
  return crossing.how.endsWith("copy");
}

function addCrossing(line, number, known) {
  line.seen.add(number);
  const copies = isCopy(known);
  line.how = copies || line.how === "inside" ? known.how : line.how;
  line.bytes = (line.bytes || 0) + (copies ? known.bytes : 0);
  line.label = line.bytes ? bytesText(line.bytes) : "";
  line.spoken += `${line.spoken ? "; " : ""}${crossingText(known)}`;
}

function crossingText(one) {
  const time = one.ms === null ? "" : `, ${msText(one.ms)}`;
  const way = `from ${one.from || "the caller"} to ${one.to || "the caller"}`;
  return `${one.value}: ${HOW[one.how]} ${way}, ${numberText(one.bytes)} bytes${time}`;
}

function hullsOf(drawn, lines) {
  const hulls = new Map();
  drawn.forEach((one) => {
    if (one.part === null || one.kind === "part") return;
    const part = parts.get(one.part),
      titles = [`${part.backend}, ${timeText(part.time)}`, part.backend];
    if (!hulls.has(one.part))
      hulls.set(one.part, {
        colour: one.colour,
        titles,
        nodes: [],
        paths: [],
        pairs: [],
        box: { left: 1e9, top: 1e9, right: -1e9, bottom: -1e9 },
      });
    const { nodes: inside, box } = hulls.get(one.part);
    inside.push(one);
    box.left = Math.min(box.left, one.x - one.w / 2);
    box.right = Math.max(box.right, one.x + one.w / 2);
    box.top = Math.min(box.top, one.y - one.h / 2);
    box.bottom = Math.max(box.bottom, one.y + one.h / 2);
  });
  for (const { from, to, path } of lines) {
    const a = drawn[from],
      b = drawn[to],
      near = b.rank - a.rank === 1 && a.column === b.column;
    if (!near || a.part === null || a.part !== b.part) continue;
    hulls.get(a.part).paths.push(path);
    hulls.get(a.part).pairs.push([a, b]);
  }
  return [...hulls.values()].sort((a, b) => b.nodes.length - a.nodes.length);
}

// --- choosing ------------------------------------------------------------------------------------------------------

function nodeOf(key) {
  return nodes.find((one) => one.key === key) || null;
}

function pick(key, centred) {
  state.picked = key;
  view.pick(key);
  if (centred && key) view.centre(key);
  showAbout();
  if (key) openTab("about");
  for (const row of document.querySelectorAll("tr[data-key]")) row.classList.toggle("picked", row.dataset.key === key);
}

// Shows a layer even where its part is closed.
function jump(key) {
  const node = nodeOf(key);
  if (node && node.part !== null && state.collapsed.delete(node.part)) draw();
  pick(key, true);
}

function toggle(node) {
  if (!node || node.part === null || node.part === undefined) return;
  const open = state.collapsed.has(node.part);
  if (open) state.collapsed.delete(node.part);
  else state.collapsed.add(node.part);
  redraw(open ? nodes.find((one) => one.part === node.part).key : `part ${node.part}`);
}

function collapseAll(closed) {
  state.collapsed = new Set(closed ? parts.keys() : []);
  draw();
  light();
  view.begin();
}

function redraw(key) {
  draw();
  light();
  pick(key, true);
}

// --- search --------------------------------------------------------------------------------------------------------

const FIELDS = {
  type: (node) => [node.type || node.kind],
  backend: (node) => [node.backend],
  name: (node) => [node.name],
  part: (node) => (node.part === null ? [] : [String(node.part)]),
  refused: (node) =>
    Object.entries(node.info.others || {})
      .filter(([, why]) => !isOffer(why))
      .map(([backend]) => backend),
};

function isOffer(reasons) {
  return reasons.length === 1 && reasons[0] === "could, ranked lower";
}

function fits(node, word) {
  const [, field, rest] = /^(\w+):(.+)$/.exec(word) || [];
  if (Object.hasOwn(FIELDS, field)) return FIELDS[field](node).some((one) => same(field, one.toLowerCase(), rest));
  return `${node.name} ${node.type || node.kind} ${node.backend}`.toLowerCase().includes(word);
}

function same(field, one, rest) {
  return field === "part" ? one === rest : one.includes(rest);
}

function search(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  state.matches = words.length ? nodes.filter((node) => words.every((word) => fits(node, word))) : null;
  state.at = -1;
  light();
  fillLayers();
  told();
}

function light() {
  view.light(state.matches === null ? null : new Set(state.matches.flatMap((one) => [one.key, keyOf(one)])));
}

function told() {
  const count = state.matches && state.matches.length;
  $("found").textContent =
    state.matches === null ? "" : state.at < 0 ? `${count} found` : `${state.at + 1} of ${count}`;
}

function step(by) {
  if (!state.matches || !state.matches.length) return;
  const count = state.matches.length;
  state.at = state.at < 0 ? (by > 0 ? 0 : count - 1) : (state.at + by + count) % count;
  jump(state.matches[state.at].key);
  told();
}

function searchFor(text) {
  $("search").value = text;
  search(text);
}

// --- the keyboard --------------------------------------------------------------------------------------------------

function neighbour(key, direction) {
  const here = view.byKey.get(key),
    { nodes: all, edges: lines } = view.drawing,
    at = all.indexOf(here);
  if (direction === "up" || direction === "down") {
    const near = lines
      .filter((one) => (direction === "up" ? one.to : one.from) === at)
      .map((one) => all[direction === "up" ? one.from : one.to]);
    return closest(near, here);
  }
  const side = direction === "left" ? -1 : 1;
  return closest(
    all.filter((one) => one.rank === here.rank && side * (one.x - here.x) > 0),
    here,
  );
}

function closest(among, here) {
  const far = (one) => 1e6 * Math.abs(one.rank - here.rank) + Math.abs(one.x - here.x);
  return among.reduce((best, one) => (!best || far(one) < far(best) ? one : best), null);
}

const ARROWS = { ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right" };
const KEYS = {
  "+": () => view.zoom(1.25),
  "=": () => view.zoom(1.25),
  "-": () => view.zoom(0.8),
  0: () => view.fit(),
  Enter: () => toggle(view.byKey.get(state.picked)),
  Escape: () => pick(null),
};

function onGraphKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key in ARROWS) {
    const found = view.byKey.has(state.picked) ? neighbour(state.picked, ARROWS[event.key]) : view.rows[0];
    if (found) pick(found.key, true);
  } else if (event.key in KEYS) KEYS[event.key]();
  else return;
  event.preventDefault();
}

function listen() {
  $("graph").addEventListener("keydown", onGraphKey);
  $("search").addEventListener("input", () => search($("search").value));
  $("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") {
      searchFor("");
      $("graph").focus();
    }
  });
  const acts = {
    next: () => step(1),
    previous: () => step(-1),
    in: () => view.zoom(1.25),
    out: () => view.zoom(0.8),
    fit: () => view.fit(),
    collapse: () => collapseAll(true),
    expand: () => collapseAll(false),
  };
  for (const [id, act] of Object.entries(acts)) $(id).addEventListener("click", act);
  $("shade").addEventListener("change", () => {
    state.shade = $("shade").value;
    draw();
    light();
  });
  $("fold").addEventListener("change", () => {
    state.folded = $("fold").checked;
    draw();
    light();
    view.begin();
  });
  for (const tab of document.querySelectorAll("[role=tab]"))
    tab.addEventListener("click", () => openTab(tab.dataset.tab));
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== $("search")) {
      $("search").focus();
      event.preventDefault();
    }
  });
  addEventListener("beforeprint", () => view.printed(true));
  addEventListener("afterprint", () => view.printed(false));
}

readNetwork();
listen();
fillHead();
fillKey();
fillParts();
fillLayers();
fillRefusals();
showAbout();
openTab("about");
$("fold").checked = state.folded;
$("shade").value = state.shade;
$("collapse").disabled = $("expand").disabled = !data.parts.length;
draw();
view.begin();
document.documentElement.dataset.ready = "yes";
