// The timeline: tracks of threads, backends and devices on one axis, drawn on a canvas.

const ROW = 18,
  GAP = 6,
  AXIS = 24,
  FIELDS = 5,
  FLOW = 4,
  INSTANT = 3,
  MOST_ARROWS = 600;

class TimeLine {
  constructor() {
    this.canvas = $("canvas");
    this.begin = 0;
    this.end = Math.max(1, data.end);
    this.picked = null;
    this.tracks = data.tracks.map((track) => this.track(track));
    let top = AXIS;
    for (const track of this.tracks) {
      track.top = top;
      top += track.depth * ROW + GAP;
    }
    this.height = top;
    this.instants = [];
    for (let at = 0; at < data.instants.length; at += INSTANT) {
      const [track, site, ns] = data.instants.slice(at, at + INSTANT);
      this.instants.push({ track: this.tracks[track], site, ns });
    }
  }

  track(track) {
    const begins = [],
      slices = track.slices;
    let depth = 1;
    for (let at = 0; at < slices.length; at += FIELDS) {
      begins.push(slices[at + 1]);
      depth = Math.max(depth, slices[at + 3] + 1);
    }
    return { name: track.name, group: track.group, slices, begins, depth };
  }

  get left() {
    return Math.min(170, this.width / 4);
  }

  x(ns) {
    return this.left + ((ns - this.begin) / (this.end - this.begin)) * (this.width - this.left);
  }

  draw() {
    const scale = devicePixelRatio || 1,
      style = getComputedStyle(document.documentElement);
    this.width = $("tracks").clientWidth;
    this.canvas.width = this.width * scale;
    this.canvas.height = this.height * scale;
    this.canvas.style.height = `${this.height}px`;
    this.pen = this.canvas.getContext("2d");
    this.pen.scale(scale, scale);
    this.ink = style.getPropertyValue("--ink");
    this.faint = style.getPropertyValue("--faint");
    this.line = style.getPropertyValue("--line");
    this.paper = style.getPropertyValue("--paper");
    this.pen.font = "11.5px system-ui, sans-serif";
    this.pen.textBaseline = "middle";
    this.drawAxis();
    for (const track of this.tracks) this.drawTrack(track);
    this.inside(() => {
      this.drawFlows();
      this.drawInstants();
    });
  }

  // Draw something that stays out of the names of the tracks.
  inside(paint) {
    this.pen.save();
    this.pen.beginPath();
    this.pen.rect(this.left, 0, this.width - this.left, this.height);
    this.pen.clip();
    paint();
    this.pen.restore();
  }

  // The place of a slice on the canvas, at its begin or its end.
  place(number, index, atEnd) {
    const track = this.tracks[number],
      [, begin, length, depth] = track.slices.slice(index * FIELDS, index * FIELDS + 4),
      ns = begin + (atEnd ? length : 0);
    return { ns, x: this.x(ns), y: track.top + depth * ROW + ROW / 2 - 1 };
  }

  isPicked(number, index) {
    return this.picked && this.picked[0] === this.tracks[number] && this.picked[1] === index * FIELDS;
  }

  // Arrows along the tensors that cross from one backend to another.
  drawFlows() {
    let drawn = 0;
    for (let at = 0; at < data.flows.length && drawn < MOST_ARROWS; at += FLOW) {
      const [from, first, to, second] = data.flows.slice(at, at + FLOW),
        source = this.place(from, first, true),
        target = this.place(to, second, false);
      if (target.ns < this.begin || source.ns > this.end) continue;
      drawn++;
      this.drawArrow(source, target, this.isPicked(from, first) || this.isPicked(to, second));
    }
  }

  drawArrow(source, target, isStrong) {
    const pen = this.pen,
      bend = Math.max(14, Math.min(60, Math.abs(target.x - source.x) / 2));
    pen.strokeStyle = pen.fillStyle = this.ink;
    pen.globalAlpha = isStrong ? 1 : 0.55;
    pen.lineWidth = isStrong ? 2 : 1;
    pen.beginPath();
    pen.moveTo(source.x, source.y);
    pen.bezierCurveTo(source.x + bend, source.y, target.x - bend, target.y, target.x - 4, target.y);
    pen.stroke();
    pen.beginPath();
    pen.moveTo(target.x, target.y);
    pen.lineTo(target.x - 6, target.y - 3);
    pen.lineTo(target.x - 6, target.y + 3);
    pen.fill();
    pen.globalAlpha = 1;
  }

  // Moments, such as a failure or an allocation, as marks on the track of their thread or on the axis.
  drawInstants() {
    const pen = this.pen;
    for (const item of this.instants) {
      if (item.ns < this.begin || item.ns > this.end) continue;
      const x = this.x(item.ns),
        y = this.markOf(item);
      pen.fillStyle = this.ink;
      pen.beginPath();
      pen.moveTo(x, y);
      pen.lineTo(x - 4, y - 6);
      pen.lineTo(x + 4, y - 6);
      pen.fill();
    }
  }

  markOf(item) {
    return item.track ? item.track.top + 4 : AXIS - 1;
  }

  instantAt(x, y) {
    const near = (item) => Math.abs(this.x(item.ns) - x) <= 5 && y <= this.markOf(item) + 2 && y >= this.markOf(item) - 8;
    return this.instants.find(near) || null;
  }

  drawAxis() {
    const span = this.end - this.begin,
      step = niceStep((span * 110) / Math.max(1, this.width - this.left));
    for (let at = Math.ceil(this.begin / step) * step; at <= this.end; at += step) {
      const x = this.x(at);
      this.pen.fillStyle = this.line;
      this.pen.fillRect(x, AXIS - 6, 1, this.height);
      this.pen.fillStyle = this.faint;
      this.pen.fillText(timeText(at), x + 4, AXIS / 2);
    }
  }

  drawTrack(track) {
    const pen = this.pen;
    pen.save();
    pen.beginPath();
    pen.rect(this.left, track.top, this.width - this.left, track.depth * ROW);
    pen.clip();
    const drawnTo = new Array(track.depth).fill(-1);
    for (let at = 0; at < track.slices.length; at += FIELDS) {
      const [, begin, length, depth] = track.slices.slice(at, at + 4);
      if (begin > this.end) break;
      if (begin + length < this.begin) continue;
      const from = Math.max(this.x(begin), this.left - 2),
        to = Math.min(this.x(begin + length), this.width + 2);
      if (to < drawnTo[depth] + 0.7) continue; // not to be seen beside its neighbour
      drawnTo[depth] = Math.max(to, from + 0.7);
      this.drawSlice(track, at, from, Math.max(0.7, to - from));
    }
    pen.restore();
    pen.fillStyle = this.ink;
    pen.fillText(shortened(pen, track.name, this.left - 12), 2, track.top + ROW / 2);
    pen.fillStyle = this.line;
    pen.fillRect(0, track.top - GAP / 2, this.width, 1);
  }

  drawSlice(track, at, x, width) {
    const pen = this.pen,
      site = data.sites[track.slices[at]],
      y = track.top + track.slices[at + 3] * ROW;
    const isPicked = this.picked && this.picked[0] === track && this.picked[1] === at;
    pen.globalAlpha = site.category === "kernel" ? 0.5 : site.backend ? 0.85 : 0.35;
    pen.fillStyle = colourOf(site.backend);
    pen.fillRect(x, y, width > 2 ? width - 0.6 : width, ROW - 2);
    pen.globalAlpha = 1;
    if (isPicked) {
      pen.strokeStyle = this.ink;
      pen.lineWidth = 2;
      pen.strokeRect(x + 1, y + 1, Math.max(1, width - 2), ROW - 4);
    }
    if (width < 26) return;
    const isStrong = site.backend && site.category !== "kernel";
    pen.fillStyle = isStrong ? textOn(colourOf(site.backend)) : this.ink;
    pen.fillText(shortened(pen, site.name, width - 6), x + 3, y + ROW / 2 - 1);
  }

  zoom(factor, middle) {
    const center = middle === undefined ? (this.begin + this.end) / 2 : middle,
      span = Math.min(data.end || 1, Math.max(100, (this.end - this.begin) / factor)),
      part = (center - this.begin) / (this.end - this.begin);
    this.show(center - part * span, span);
  }

  show(begin, span) {
    const most = Math.max(1, data.end);
    this.begin = Math.max(0, Math.min(begin, most - span));
    this.end = this.begin + Math.min(span, most);
    this.draw();
  }

  move(part) {
    const span = this.end - this.begin;
    this.show(this.begin + part * span, span);
  }

  at(x, y) {
    const moment = x < this.left ? null : this.instantAt(x, y);
    if (moment) return [moment, -1];
    const track = this.tracks.find((item) => y >= item.top && y < item.top + item.depth * ROW);
    if (!track || x < this.left) return null;
    const ns = this.begin + ((x - this.left) / (this.width - this.left)) * (this.end - this.begin),
      near = ((this.end - this.begin) / (this.width - this.left)) * 1.5,
      depth = Math.floor((y - track.top) / ROW);
    let found = null;
    for (let at = 0; at < track.slices.length; at += FIELDS) {
      const [, begin, length, level] = track.slices.slice(at, at + 4);
      if (begin > ns + near) break;
      if (level === depth && begin + length >= ns - near) found = at;
    }
    return found === null ? null : [track, found];
  }

  pick(found, reveal) {
    this.picked = found;
    if (found && found[1] < 0) {
      $("about").textContent = describedMoment(found[0]);
    } else if (found) {
      const [track, at] = found,
        [number, begin, length, , inference] = track.slices.slice(at, at + FIELDS);
      $("about").textContent = described(data.sites[number], track, begin, length, inference);
      if (reveal && (begin < this.begin || begin + length > this.end)) {
        const span = Math.max(this.end - this.begin, length * 1.2);
        this.show(begin - span / 3, span);
        return;
      }
    }
    this.draw();
  }

  // All slices by their begin, for the keyboard.
  inOrder() {
    if (!this.order) {
      const all = this.tracks.flatMap((track) => track.begins.map((begin, index) => [begin, track, index * FIELDS]));
      this.order = all.sort((one, other) => one[0] - other[0]);
    }
    return this.order;
  }

  step(by) {
    const all = this.inOrder();
    if (!all.length) return;
    const now = this.picked ? all.findIndex((item) => item[1] === this.picked[0] && item[2] === this.picked[1]) : -1,
      inView = all.findIndex((item) => item[0] >= this.begin),
      next = now < 0 ? Math.max(0, inView) : Math.min(all.length - 1, Math.max(0, now + by));
    this.pick([all[next][1], all[next][2]], true);
  }

  showRun() {
    const runs = [];
    for (const track of this.tracks)
      for (let at = 0; at < track.slices.length; at += FIELDS)
        if (data.sites[track.slices[at]].category === "run") runs.push(track.slices.slice(at + 1, at + 3));
    runs.sort((one, other) => one[1] - other[1]);
    if (!runs.length) return;
    const [begin, length] = runs[Math.floor((runs.length - 1) / 2)]; // of median length
    this.show(begin - length * 0.04, length * 1.08);
  }
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least);
}

function textOn(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return red * 0.3 + green * 0.59 + blue * 0.11 > 120 ? "#000" : "#fff";
}

function shortened(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let length = Math.min(text.length, Math.max(0, Math.floor(width / 5)));
  while (length > 0 && pen.measureText(`${text.slice(0, length)}\u2026`).width > width) length--;
  return length ? `${text.slice(0, length)}\u2026` : "";
}

function described(site, track, begin, length, inference) {
  const facts = [
    `${site.name}: ${timeText(length)} at ${timeText(begin)}`,
    site.kind,
    site.backend && `on ${site.backend}`,
    site.device && `device ${site.device}`,
    inference >= 0 && `inference ${inference}`,
    site.bytes && bytesText(site.bytes),
    site.flops && `${numberText(site.flops)} operations`,
    `track ${track.name}`,
  ];
  return facts.filter(Boolean).join(", ");
}

function describedMoment(item) {
  const site = data.sites[item.site],
    facts = [`${site.name} at ${timeText(item.ns)}`, site.category, site.error, site.backend && `on ${site.backend}`];
  return [...facts, site.bytes && bytesText(site.bytes), item.track && `track ${item.track.name}`]
    .filter(Boolean)
    .join(", ");
}

function listenToTimeline(line) {
  const keys = {
    ArrowLeft: () => line.move(-0.2),
    ArrowRight: () => line.move(0.2),
    "+": () => line.zoom(1.5),
    "=": () => line.zoom(1.5),
    "-": () => line.zoom(1 / 1.5),
    0: () => line.show(0, data.end || 1),
    1: () => line.showRun(),
    n: () => line.step(1),
    p: () => line.step(-1),
    Escape: () => line.pick(null),
  };
  line.canvas.addEventListener("keydown", (event) => {
    const act = keys[event.key] || keys[event.key.toLowerCase()];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    act();
    event.preventDefault();
  });
  line.canvas.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.shiftKey) return; // scrolls the page
      event.preventDefault();
      const part = (event.offsetX - line.left) / (line.width - line.left);
      if (event.shiftKey) line.move((event.deltaY || event.deltaX) / 1000);
      else line.zoom(event.deltaY < 0 ? 1.25 : 0.8, line.begin + part * (line.end - line.begin));
    },
    { passive: false },
  );
  let dragged = null;
  line.canvas.addEventListener("pointerdown", (event) => {
    dragged = { x: event.clientX, begin: line.begin, moved: false };
    line.canvas.setPointerCapture(event.pointerId);
  });
  line.canvas.addEventListener("pointermove", (event) => {
    if (!dragged || Math.abs(event.clientX - dragged.x) < 3) return;
    const span = line.end - line.begin;
    dragged.moved = true;
    line.show(dragged.begin - ((event.clientX - dragged.x) / (line.width - line.left)) * span, span);
  });
  line.canvas.addEventListener("pointerup", (event) => {
    if (dragged && !dragged.moved) line.pick(line.at(event.offsetX, event.offsetY));
    dragged = null;
  });
  $("in").addEventListener("click", keys["+"]);
  $("out").addEventListener("click", keys["-"]);
  $("fit").addEventListener("click", keys[0]);
  $("run").addEventListener("click", keys[1]);
  addEventListener("resize", () => line.draw());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => line.draw());
}
