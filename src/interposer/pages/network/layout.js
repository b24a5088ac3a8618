"use strict";
// Layered drawing: every edge goes down, few cross, and tall drawings are folded into columns.

const GAP = 26,
  ROW_GAP = 34,
  DUMMY = 12,
  SWEEPS = 8,
  STRAIGHTEN = 14,
  MOST_DUMMIES = 30000,
  TO_THE_MIDDLE = 2;

// nodes: [{w, h}], edges: [{from, to}] by index. Gives {places: [{x, y, rank, column}], paths, width, height}: centres,
// and for each edge its points, two for every piece, each with its column.
function layOut(nodes, edges, aspect, folded) {
  const forward = edges.filter((one) => one.from !== one.to);
  const rank = ranksOf(nodes.length, forward);
  const rows = [],
    boxes = nodes.map((one, id) => ({ id, w: one.w, h: one.h, rank: rank[id], up: [], down: [] }));
  const longest = longestSpan(forward.map((one) => rank[one.to] - rank[one.from]));
  const chains = edges.map((one) => chainOf(one, boxes, rank, longest));
  for (const box of boxes) (rows[box.rank] = rows[box.rank] || []).push(box);
  orderRows(rows, boxes, nodes.length);
  straighten(rows);
  const heights = rows.map((row) => row.reduce((most, box) => Math.max(most, box.h), 0));
  const size = place(rows, heights, aspect, folded);
  return {
    places: boxes.slice(0, nodes.length).map((box) => ({ x: box.x, y: box.y, rank: box.rank, column: box.column })),
    paths: chains.map((chain) => pointsOf(chain)),
    ...size,
  };
}

// The longest way from a source; sources themselves stand right above their first reader.
function ranksOf(count, edges) {
  const after = lists(count),
    before = new Int32Array(count),
    rank = new Int32Array(count);
  for (const { from, to } of edges) {
    after[from].push(to);
    before[to]++;
  }
  const sources = [...before].map((left) => left === 0),
    queue = [],
    queued = new Uint8Array(count);
  const push = (id) => {
    queued[id] = 1;
    queue.push(id);
  };
  sources.forEach((is, id) => {
    if (is) push(id);
  });
  for (let at = 0, next = 0; at < count; at++) {
    if (at >= queue.length) {
      while (queued[next]) next++;
      push(next);
    } // a cycle, which there should not be
    const id = queue[at];
    for (const other of after[id]) {
      if (queued[other]) continue;
      rank[other] = Math.max(rank[other], rank[id] + 1);
      if (--before[other] === 0) push(other);
    }
  }
  sources.forEach((is, id) => {
    const below = is ? after[id].map((other) => rank[other]).filter((one) => one > 0) : [];
    if (below.length) rank[id] = Math.min(...below) - 1;
  });
  return compact(rank);
}

function compact(rank) {
  const used = [...new Set(rank)].sort((a, b) => a - b),
    place = new Map(used.map((one, index) => [one, index]));
  return [...rank].map((one) => place.get(one));
}

// Up to which length an edge is led around the boxes between its ends; the few that are longer are drawn straight.
function longestSpan(spans) {
  const boxes = (most) => spans.reduce((sum, span) => sum + (span <= most ? Math.max(0, span - 1) : 0), 0);
  return [1000, 160, 40, 12, 4].find((most) => boxes(most) <= MOST_DUMMIES) || 1;
}

function lists(count) {
  return Array.from({ length: count }, () => []);
}

// The boxes that an edge goes through: its ends, and small ones in the rows between.
function chainOf(edge, boxes, rank, longest) {
  const first = boxes[edge.from],
    last = boxes[edge.to],
    span = last.rank - first.rank;
  if (span < 1 || span > longest) return [first, last];
  const chain = [first];
  for (let row = first.rank + 1; row < last.rank; row++) {
    const box = { id: boxes.length, w: DUMMY, h: 0, rank: row, up: [], down: [], dummy: true };
    boxes.push(box);
    chain.push(box);
  }
  chain.push(last);
  for (let at = 1; at < chain.length; at++) {
    chain[at - 1].down.push(chain[at]);
    chain[at].up.push(chain[at - 1]);
  }
  return chain;
}

// --- order within rows ---------------------------------------------------------------------------------------------

function orderRows(rows, boxes, real) {
  walkInOrder(rows, boxes, real);
  let best = null,
    least = Infinity;
  for (let sweep = 0; sweep <= SWEEPS && least > 0; sweep++) {
    if (sweep) sweepOnce(rows, sweep % 2 === 1);
    const crossings = crossingsOf(rows);
    if (crossings < least) {
      least = crossings;
      best = rows.map((row) => row.slice());
    }
  }
  rows.forEach((row, index) => {
    rows[index] = best[index];
  });
  number(rows);
}

function number(rows) {
  for (const row of rows)
    row.forEach((box, index) => {
      box.at = index;
    });
}

// First order: as a walk downwards meets them, so that what hangs together is together.
function walkInOrder(rows, boxes, real) {
  const seen = new Uint8Array(boxes.length);
  let count = 0;
  for (let id = 0; id < real; id++) {
    const stack = [boxes[id]];
    while (stack.length) {
      const box = stack.pop();
      if (seen[box.id]) continue;
      seen[box.id] = 1;
      box.at = count++;
      for (let at = box.down.length - 1; at >= 0; at--) stack.push(box.down[at]);
    }
  }
  for (const row of rows) row.sort((a, b) => a.at - b.at);
  number(rows);
}

function sweepOnce(rows, downwards) {
  for (const row of downwards ? rows : rows.slice().reverse()) {
    for (const box of row) box.wish = mean(downwards ? box.up : box.down, box.at);
    row.sort((a, b) => a.wish - b.wish || a.at - b.at);
    row.forEach((box, index) => {
      box.at = index;
    });
  }
}

function mean(near, otherwise) {
  return near.length ? near.reduce((sum, box) => sum + box.at, 0) / near.length : otherwise;
}

function crossingsOf(rows) {
  let count = 0;
  for (let at = 0; at + 1 < rows.length; at++) {
    const ends = [];
    for (const box of rows[at]) ends.push(...box.down.map((other) => other.at).sort((a, b) => a - b));
    count += inversions(ends, rows[at + 1].length);
  }
  return count;
}

function inversions(ends, width) {
  const tree = new Int32Array(width + 2);
  let count = 0;
  ends.forEach((end, index) => {
    let before = 0;
    for (let at = end + 1; at > 0; at -= at & -at) before += tree[at];
    count += index - before;
    for (let at = end + 1; at <= width; at += at & -at) tree[at]++;
  });
  return count;
}

// --- places --------------------------------------------------------------------------------------------------------

// Every row is put where its neighbours want it, with the order and the gaps kept.
function straighten(rows) {
  for (const row of rows) {
    let x = 0;
    for (const box of row) {
      box.x = x + box.w / 2;
      x += box.w + GAP;
    }
    for (const box of row) box.x -= (x - GAP) / 2;
  }
  for (let turn = 0; turn < STRAIGHTEN; turn++) {
    const down = turn % 2 === 0;
    for (const row of down ? rows : rows.slice().reverse()) settle(row, (box) => wished(box, turn, down));
  }
}

function wished(box, turn, down) {
  const near = turn >= STRAIGHTEN - 2 ? [...box.up, ...box.down] : down ? box.up : box.down;
  if (!near.length) return [box.x, 0.1];
  let sum = 0,
    weight = near.length > 2 ? TO_THE_MIDDLE : 0; // else where many come together wanders to one side
  for (const other of near) {
    const pull = box.dummy && other.dummy ? 8 : box.dummy || other.dummy ? 2 : 1;
    sum += pull * other.x;
    weight += pull;
  }
  return [sum / weight, weight];
}

// Least squares with minimal distances: neighbours that would overlap are moved as one block.
function settle(row, wish) {
  const blocks = [];
  let offset = 0;
  row.forEach((box, index) => {
    if (index) offset += (row[index - 1].w + box.w) / 2 + GAP;
    const [want, weight] = wish(box);
    box.offset = offset;
    blocks.push({ sum: (want - offset) * weight, weight, first: index });
    while (blocks.length > 1 && value(blocks[blocks.length - 1]) < value(blocks[blocks.length - 2])) {
      const gone = blocks.pop(),
        kept = blocks[blocks.length - 1];
      kept.sum += gone.sum;
      kept.weight += gone.weight;
    }
  });
  blocks.forEach((block, index) => {
    const end = index + 1 < blocks.length ? blocks[index + 1].first : row.length;
    for (let at = block.first; at < end; at++) row[at].x = value(block) + row[at].offset;
  });
}

function value(block) {
  return block.sum / block.weight;
}

// Rows get their height, and where there are many, columns.
function place(rows, heights, aspect, folded) {
  const columns = folded ? cutInColumns(rows, heights, aspect) : [0];
  let left = 0,
    bottom = 0;
  columns.forEach((first, column) => {
    const end = column + 1 < columns.length ? columns[column + 1] : rows.length;
    const here = rows.slice(first, end).flat();
    const low = edgeOf(here, -1),
      high = edgeOf(here, 1);
    let y = 0;
    for (let row = first; row < end; row++) {
      for (const box of rows[row]) {
        box.x += left - low;
        box.y = y + heights[row] / 2;
        box.column = column;
        box.tall = heights[row];
      }
      y += heights[row] + ROW_GAP;
    }
    left += high - low + 3 * GAP;
    bottom = Math.max(bottom, y - ROW_GAP);
  });
  const gutters = columnEdges(rows, columns);
  for (const box of rows.flat()) Object.assign(box, { gutter: gutters[box.column], bottom });
  return { width: Math.max(0, left - 3 * GAP), height: Math.max(0, bottom), columns: columns.length };
}

// How far boxes reach to the left (-1) or right (1).
function edgeOf(boxes, side) {
  return side * boxes.reduce((most, box) => Math.max(most, side * box.x + box.w / 2), -Infinity);
}

function columnEdges(rows, columns) {
  return columns.map((first, column) => {
    const end = column + 1 < columns.length ? columns[column + 1] : rows.length;
    return edgeOf(rows.slice(first, end).flat(), 1) + 1.5 * GAP;
  });
}

function cutInColumns(rows, heights, aspect) {
  const all = rows.flat(),
    width = edgeOf(all, 1) - edgeOf(all, -1) + 3 * GAP;
  const height = heights.reduce((sum, one) => sum + one + ROW_GAP, 0);
  const count = Math.round(Math.sqrt((aspect * height) / width));
  if (!(count > 1) || height < 1500) return [0];
  const cuts = [0],
    target = height / count,
    tops = [];
  heights.reduce((y, one, row) => {
    tops[row] = y;
    return y + one + ROW_GAP;
  }, 0);
  for (let column = 1; column < count; column++) {
    const slack = target * 0.2,
      low = column * target - slack,
      high = column * target + slack;
    const cut = quietest(rows, tops, low, high, cuts[cuts.length - 1]);
    if (cut !== null) cuts.push(cut);
  }
  return cuts;
}

// The row, between two heights, which the fewest tensors enter; of several, the one nearest to the middle.
function quietest(rows, tops, low, high, after) {
  let best = null,
    least = Infinity;
  for (let row = after + 1; row < rows.length; row++) {
    if (tops[row] < low || tops[row] > high) continue;
    const cost =
      new Set(rows[row].flatMap((box) => box.up)).size + Math.abs(2 * tops[row] - low - high) / (high - low + 1);
    if (cost < least) {
      least = cost;
      best = row;
    }
  }
  return best;
}

function pointsOf(chain) {
  const points = [];
  chain.forEach((box, index) => {
    const half = box.dummy ? box.tall / 2 : box.h / 2;
    if (index) points.push({ x: box.x, y: box.y - half, column: box.column });
    if (index + 1 < chain.length) {
      points.push({ x: box.x, y: box.y + half, column: box.column, gutter: box.gutter, bottom: box.bottom });
    }
  });
  return points;
}

// An SVG path through the points.
function curve(points) {
  let path = "";
  for (let at = 0; at + 1 < points.length; at += 2) {
    const a = points[at],
      b = points[at + 1];
    path += at ? `L${a.x},${a.y}` : `M${a.x},${a.y}`;
    path += a.column === b.column ? bend(a, b) : turn(a, b);
  }
  return path;
}

function bend(a, b) {
  if (Math.abs(a.x - b.x) < 0.5) return `L${b.x},${b.y}`;
  const middle = (a.y + b.y) / 2;
  return `C${a.x},${middle},${b.x},${middle},${b.x},${b.y}`;
}

// Down to the bottom of a column, up beside it, and into the next one from above.
function turn(a, b) {
  const low = a.bottom + 22,
    high = -22,
    r = 10,
    to = a.gutter;
  return (
    `L${a.x},${low - r}Q${a.x},${low},${a.x + r},${low}L${to - r},${low}Q${to},${low},${to},${low - r}` +
    `L${to},${high + r}Q${to},${high},${to + r},${high}L${b.x - r},${high}Q${b.x},${high},${b.x},${high + r}` +
    `L${b.x},${b.y}`
  );
}
