// The drawing: what is in sight is drawn, in full from near, in one piece for each backend from afar.

const SVG = "http://www.w3.org/2000/svg",
  NEAR = 0.55,
  MIDDLE = 0.2,
  MARGIN = 200,
  MOST_LABELS = 40;
const FONT = 'system-ui, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif';

function svg(name, attributes, parent) {
  const made = document.createElementNS(SVG, name);
  for (const [key, one] of Object.entries(attributes || {})) made.setAttribute(key, one);
  if (parent) parent.append(made);
  return made;
}

class View {
  // `told.select(node)`, `told.open(node)` are called for what the reader does.
  constructor(told) {
    this.told = told;
    this.stage = document.getElementById("stage");
    this.graph = document.getElementById("graph");
    this.layers = Object.fromEntries(
      ["view", "hulls", "edges", "nodes", "labels"].map((id) => [id, document.getElementById(id)]),
    );
    this.map = new Overview(document.getElementById("map"), this);
    this.at = { x: 0, y: 0, k: 1 };
    this.shown = new Map();
    this.lit = null;
    this.picked = null;
    this.listen();
  }

  // nodes: [{key, kind, title, under, time, colour, part, x, y, w, h}], edges: [{from, to, how, path, points}].
  show(drawing) {
    this.drawing = drawing;
    for (const element of this.shown.values()) element.remove();
    this.shown.clear();
    this.index();
    this.drawHulls();
    this.detail = null;
    this.map.prepare();
    this.draw();
  }

  index() {
    const { nodes } = this.drawing;
    this.byKey = new Map(nodes.map((one) => [one.key, one]));
    this.rows = nodes.slice().sort((a, b) => a.y - b.y);
  }

  size() {
    return { w: this.stage.clientWidth || 800, h: this.stage.clientHeight || 600 };
  }

  sight() {
    const { w, h } = this.size(),
      { x, y, k } = this.at;
    return { left: -x / k, top: -y / k, right: (w - x) / k, bottom: (h - y) / k };
  }

  // --- drawing -----------------------------------------------------------------------------------------------------

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.drawNow();
    });
  }

  drawNow() {
    const { x, y, k } = this.at,
      detail = k >= NEAR ? "near" : k >= MIDDLE ? "middle" : "far";
    this.layers.view.setAttribute("transform", `translate(${x},${y}) scale(${k})`);
    if (detail !== this.detail) this.change(detail);
    if (detail === "far") this.drawFar();
    else this.drawSight();
    this.drawLabels();
    this.map.draw();
  }

  // From near, boxes have all their texts; from a middle distance one that is larger; from afar none.
  change(detail) {
    this.detail = detail;
    this.graph.classList.remove("near", "middle", "far");
    this.graph.classList.add(detail);
    this.layers.nodes.replaceChildren();
    this.shown.clear();
    this.drawEdges(detail !== "far");
  }

  drawSight() {
    const sight = widened(this.sight(), MARGIN),
      wanted = new Map();
    for (const node of this.rows) if (meets(node, sight)) wanted.set(node.key, node);
    for (const [key, element] of this.shown) {
      if (!wanted.has(key)) {
        element.remove();
        this.shown.delete(key);
      }
    }
    for (const [key, node] of wanted) {
      if (!this.shown.has(key)) this.shown.set(key, this.drawNode(node));
      this.mark(this.shown.get(key), node);
    }
  }

  mark(element, node) {
    element.classList.toggle("dim", !!this.lit && !this.lit.has(node.key));
    element.classList.toggle("lit", !!this.lit && this.lit.has(node.key));
    element.classList.toggle("picked", node.key === this.picked);
    element.setAttribute("aria-pressed", String(node.key === this.picked));
  }

  drawNode(node) {
    const group = svg(
      "g",
      {
        class: `node ${node.kind}`,
        transform: `translate(${node.x - node.w / 2},${node.y - node.h / 2})`,
        "data-name": node.name,
        role: "button",
        "aria-label": node.spoken,
        style: `--colour:${node.colour};--heat:${node.heat}`,
      },
      this.layers.nodes,
    );
    svg("title", {}, group).textContent = node.spoken;
    const round = node.kind === "layer" || node.kind === "part" ? 5 : node.h / 2;
    svg("rect", { class: "body", width: node.w, height: node.h, rx: round }, group);
    if (node.kind === "layer" || node.kind === "part") this.drawLayer(node, group);
    else
      svg("text", { class: "name", x: node.w / 2, y: node.h / 2, "text-anchor": "middle" }, group).textContent = fitted(
        node.title,
        node.w - 16,
        "500 12px",
      );
    return group;
  }

  drawLayer(node, group) {
    const full = node.w - 24,
      length = Math.max(1.5, full * node.length),
      near = this.detail === "near",
      high = near ? 4 : 8;
    svg("path", { class: "stripe", d: `M5,0h3v${node.h}h-3a5,5 0 0 1 -5,-5v${10 - node.h}a5,5 0 0 1 5,-5z` }, group);
    if (near) this.drawTexts(node, group);
    else
      svg("text", { class: "large", x: 16, y: 30 }, group).textContent = fitted(
        node.kind === "part" ? node.title : node.under,
        full,
        "500 24px",
      );
    svg("rect", { class: "track", x: 16, y: node.h - high - 5, width: full, height: high, rx: 2 }, group);
    svg(
      "rect",
      { class: node.measured ? "bar" : "bar guessed", x: 16, y: node.h - high - 5, width: length, height: high, rx: 2 },
      group,
    );
  }

  drawTexts(node, group) {
    const right = node.time ? widthOf(node.time, "11.5px") + 8 : 0;
    svg("text", { class: "name", x: 16, y: 17 }, group).textContent = fitted(node.title, node.w - 24, "600 12.5px");
    svg("text", { class: "under", x: 16, y: 33 }, group).textContent = fitted(
      node.under,
      node.w - 24 - right,
      "11.5px",
    );
    if (node.time)
      svg("text", { class: "time", x: node.w - 8, y: 33, "text-anchor": "end" }, group).textContent = node.time;
  }

  drawFar() {
    const pieces = new Map();
    for (const node of this.drawing.nodes) {
      const dim = this.lit && !this.lit.has(node.key),
        key = `${node.colour}|${dim}|${node.key === this.picked}|${node.heat}`;
      const rect = `M${node.x - node.w / 2},${node.y - node.h / 2}h${node.w}v${node.h}h${-node.w}z`;
      pieces.set(key, (pieces.get(key) || "") + rect);
    }
    this.layers.nodes.replaceChildren();
    for (const [key, d] of pieces) {
      const [colour, dim, picked, heat] = key.split("|");
      const mark = `${dim === "true" ? " dim" : ""}${picked === "true" ? " picked" : ""}`;
      svg("path", { class: `mass${mark}`, d, style: `--colour:${colour};--heat:${heat}` }, this.layers.nodes);
    }
  }

  drawEdges(near) {
    this.layers.edges.replaceChildren();
    const plain = [];
    for (const edge of this.drawing.edges) {
      if (edge.how === "inside") plain.push(edge.path);
      else this.drawCrossing(edge);
    }
    this.layers.edges.prepend(svg("path", { class: "edge", d: plain.join("") }));
    if (near) this.drawArrows();
  }

  drawArrows() {
    const plain = this.drawing.edges.filter((one) => one.how === "inside");
    svg("path", { class: "head", d: plain.map(headOf).join("") }, this.layers.edges);
  }

  drawCrossing(edge) {
    const group = svg("g", { class: `crossing ${edge.how.replace(" ", "-")}` }, this.layers.edges);
    svg("path", { class: "edge", d: edge.path }, group);
    svg("path", { class: "head", d: headOf(edge) }, group);
    svg("title", {}, group).textContent = edge.spoken;
    if (!edge.label) return;
    const a = edge.points[edge.points.length - 2],
      b = edge.points[edge.points.length - 1];
    const x = (a.x + b.x) / 2,
      y = a.column === b.column ? (a.y + b.y) / 2 : b.y - 16,
      w = edge.label.length * 5.6 + 12;
    svg("rect", { class: "tag", x: x - w / 2, y: y - 8, width: w, height: 16, rx: 8 }, group);
    svg("text", { class: "tag", x, y: y + 3.5, "text-anchor": "middle" }, group).textContent = edge.label;
  }

  // A region for each part: its boxes with a margin, what lies between two above each other, and broad bands.
  drawHulls() {
    this.layers.hulls.replaceChildren();
    for (const hull of this.drawing.hulls) {
      const group = svg("g", { class: "hull", style: `--colour:${hull.colour}` }, this.layers.hulls);
      const rects = hull.nodes.map(
        ({ x, y, w, h }) => `M${x - w / 2 - 10},${y - h / 2 - 10}h${w + 20}v${h + 20}h${-w - 20}z`,
      );
      svg("path", { class: "fill", d: rects.join("") + hull.pairs.map(between).join("") }, group);
      svg("path", { class: "band", d: hull.paths.join("") }, group);
    }
  }

  // Names of parts stay as large as they are on the screen, where they have room.
  drawLabels() {
    const { x, y, k } = this.at,
      { w, h } = this.size();
    this.layers.labels.replaceChildren();
    if (this.detail === "near") return;
    for (const hull of this.drawing.hulls.slice(0, MOST_LABELS)) {
      const left = hull.box.left * k + x,
        top = hull.box.top * k + y;
      const wide = (hull.box.right - hull.box.left) * k,
        high = (hull.box.bottom - hull.box.top) * k;
      if (wide < 70 || high < 26 || left > w || top > h || left + wide < 0 || top + high < 0) continue;
      const text = svg(
        "text",
        { class: "part", x: Math.max(4, left), y: Math.max(14, top - 4), style: `--colour:${hull.colour}` },
        this.layers.labels,
      );
      const whole = hull.titles.find((title) => widthOf(title, "600 12px") <= wide) ?? hull.titles.at(-1);
      text.textContent = fitted(whole, wide, "600 12px");
    }
  }

  // --- moving ------------------------------------------------------------------------------------------------------

  moveTo(x, y, k) {
    this.at = { x, y, k: Math.min(3, Math.max(0.02, k)) };
    this.draw();
  }

  zoom(factor, px, py) {
    const { w, h } = this.size(),
      { x, y, k } = this.at;
    const to = Math.min(3, Math.max(0.02, k * factor)),
      cx = px === undefined ? w / 2 : px,
      cy = py === undefined ? h / 2 : py;
    this.moveTo(cx - ((cx - x) * to) / k, cy - ((cy - y) * to) / k, to);
  }

  fit() {
    const { w, h } = this.size(),
      { width, height } = this.drawing,
      room = 46;
    const k = Math.min(1.25, (w - 2 * room) / Math.max(1, width), (h - 2 * room) / Math.max(1, height));
    this.moveTo((w - width * k) / 2, Math.max(room, (h - height * k) / 2), k);
  }

  // The upper end in a size that can be read, where all together would be too small.
  begin() {
    this.fit();
    if (this.at.k >= 0.3) return;
    const { w } = this.size(),
      k = 0.75,
      first = this.rows[0];
    this.moveTo(w / 2 - (first ? first.x : 0) * k, 40, k);
  }

  // On paper the whole drawing has the room that there is, whatever that is.
  printed(begins) {
    const { width, height } = this.drawing;
    this.fit();
    this.drawNow();
    if (!begins) {
      this.graph.removeAttribute("viewBox");
      return;
    }
    this.graph.setAttribute("viewBox", `-30 -40 ${width + 60} ${height + 90}`);
    this.layers.view.removeAttribute("transform");
    this.layers.labels.replaceChildren();
  }

  centre(key) {
    const node = this.byKey.get(key);
    if (!node) return;
    const { w, h } = this.size(),
      k = Math.max(this.at.k, 0.8);
    this.moveTo(w / 2 - node.x * k, h / 2 - node.y * k, k);
  }

  light(keys) {
    this.lit = keys;
    this.draw();
  }

  pick(key) {
    this.picked = key;
    this.draw();
  }

  // --- what the reader does ----------------------------------------------------------------------------------------

  nodeAt(px, py) {
    const { x, y, k } = this.at,
      gx = (px - x) / k,
      gy = (py - y) / k;
    return this.drawing.nodes.find((one) => Math.abs(one.x - gx) <= one.w / 2 && Math.abs(one.y - gy) <= one.h / 2);
  }

  listen() {
    const { graph } = this;
    graph.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        const unit = event.deltaMode ? 30 : 1,
          box = graph.getBoundingClientRect();
        if (event.shiftKey) this.moveTo(this.at.x - event.deltaX * unit, this.at.y - event.deltaY * unit, this.at.k);
        else this.zoom(Math.exp(-event.deltaY * unit * 0.0015), event.clientX - box.left, event.clientY - box.top);
      },
      { passive: false },
    );
    graph.addEventListener("pointerdown", (event) => this.drag(event));
    graph.addEventListener("dblclick", (event) => {
      const node = this.nodeAt(...this.inside(event));
      if (node) this.told.open(node);
      else this.zoom(1.6, ...this.inside(event));
    });
    new ResizeObserver(() => {
      if (this.drawing) this.draw();
    }).observe(this.stage);
  }

  inside(event) {
    const box = this.graph.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  drag(event) {
    if (event.button) return;
    const { graph } = this,
      from = { ...this.at },
      start = [event.clientX, event.clientY];
    let moved = false;
    graph.setPointerCapture(event.pointerId);
    const move = (now) => {
      const dx = now.clientX - start[0],
        dy = now.clientY - start[1];
      moved = moved || Math.hypot(dx, dy) > 4;
      if (moved) this.moveTo(from.x + dx, from.y + dy, from.k);
    };
    const end = (now) => {
      graph.removeEventListener("pointermove", move);
      graph.removeEventListener("pointerup", end);
      graph.removeEventListener("pointercancel", end);
      if (!moved && now.type === "pointerup") this.told.select(this.nodeAt(...this.inside(now)) || null);
    };
    graph.addEventListener("pointermove", move);
    graph.addEventListener("pointerup", end);
    graph.addEventListener("pointercancel", end);
  }
}

// The whole drawing in a corner, with a frame around what is in sight.
class Overview {
  constructor(canvas, view) {
    this.canvas = canvas;
    this.view = view;
    const move = (event) => {
      if (event.buttons & 1) this.go(event);
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.go(event);
    });
    canvas.addEventListener("pointermove", move);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.prepare();
      this.draw();
    });
  }

  prepare() {
    const { width, height, nodes } = this.view.drawing,
      most = 170;
    this.k = Math.min(most / Math.max(1, width), most / Math.max(1, height));
    const ratio = devicePixelRatio || 1,
      w = Math.max(24, width * this.k),
      h = Math.max(24, height * this.k);
    Object.assign(this.canvas, { width: w * ratio, height: h * ratio });
    Object.assign(this.canvas.style, { width: `${w}px`, height: `${h}px` });
    this.picture = document.createElement("canvas");
    Object.assign(this.picture, { width: w * ratio, height: h * ratio });
    const brush = this.picture.getContext("2d");
    brush.scale(ratio, ratio);
    for (const one of nodes) {
      brush.fillStyle = one.colour;
      brush.fillRect(
        (one.x - one.w / 2) * this.k,
        (one.y - one.h / 2) * this.k,
        Math.max(1, one.w * this.k),
        Math.max(1, one.h * this.k),
      );
    }
  }

  draw() {
    const { width, height } = this.view.drawing,
      all = this.view.sight();
    this.canvas.hidden = all.left < 1 && all.top < 1 && all.right > width - 1 && all.bottom > height - 1;
    if (this.canvas.hidden) return;
    const brush = this.canvas.getContext("2d"),
      ratio = devicePixelRatio || 1,
      sight = all;
    brush.setTransform(1, 0, 0, 1, 0, 0);
    brush.clearRect(0, 0, this.canvas.width, this.canvas.height);
    brush.drawImage(this.picture, 0, 0);
    brush.setTransform(ratio, 0, 0, ratio, 0, 0);
    brush.strokeStyle = getComputedStyle(this.canvas).color;
    brush.lineWidth = 1.5;
    brush.strokeRect(
      sight.left * this.k,
      sight.top * this.k,
      (sight.right - sight.left) * this.k,
      (sight.bottom - sight.top) * this.k,
    );
  }

  go(event) {
    const box = this.canvas.getBoundingClientRect(),
      { w, h } = this.view.size(),
      { k } = this.view.at;
    const x = (event.clientX - box.left) / this.k,
      y = (event.clientY - box.top) / this.k;
    this.view.moveTo(w / 2 - x * k, h / 2 - y * k, k);
  }
}

function headOf({ points }) {
  const { x, y } = points[points.length - 1];
  return `M${x - 4},${y - 8}L${x},${y}L${x + 4},${y - 8}z`;
}

function widened(box, by) {
  return { left: box.left - by, right: box.right + by, top: box.top - by, bottom: box.bottom + by };
}

function meets(node, box) {
  return (
    node.x + node.w / 2 > box.left &&
    node.x - node.w / 2 < box.right &&
    node.y + node.h / 2 > box.top &&
    node.y - node.h / 2 < box.bottom
  );
}

function between([a, b]) {
  const left = Math.max(a.x - a.w / 2, b.x - b.w / 2) - 10,
    right = Math.min(a.x + a.w / 2, b.x + b.w / 2) + 10;
  return right > left ? `M${left},${a.y}H${right}V${b.y}H${left}z` : "";
}

// --- texts ---------------------------------------------------------------------------------------------------------

const ruler = document.createElement("canvas").getContext("2d"),
  widths = new Map();

function widthOf(text, font) {
  const key = `${font} ${text}`;
  if (!widths.has(key)) {
    ruler.font = `${font} ${FONT}`;
    widths.set(key, ruler.measureText(text).width);
  }
  return widths.get(key);
}

// A long name keeps its end too, where names differ most.
function fitted(text, width, font) {
  const letters = [...String(text)];
  if (letters.length > 400) letters.splice(200, letters.length - 400);
  let most = letters.length,
    short = letters.join("");
  while (most > 2 && widthOf(short, font) > width) {
    most = Math.max(2, Math.min(most - 1, Math.floor((most * width) / widthOf(short, font))));
    const head = Math.ceil((most - 1) * 0.4);
    short = `${letters.slice(0, head).join("")}\u2026${letters.slice(letters.length - (most - 1 - head)).join("")}`;
  }
  return short;
}
