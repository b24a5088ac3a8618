// The table of layers and steps, and the values of counters over time.

const perSecond = (amount, ns) => (amount && ns ? amount / ns : null); // 1e9 in a second, counted in units of 1e9
const together = data.run_time || data.rows.reduce((sum, row) => sum + row.total, 0) || 1;
const COLUMNS = [
  { title: "layer", of: (row) => row.name },
  { title: "kind", of: (row) => row.operator || row.what },
  { title: "network", of: (row) => row.network },
  { title: "backend", of: (row) => row.backend, shown: (row) => badge(row.backend) },
  { title: "device", of: (row) => row.device },
  { title: "count", of: (row) => row.count, text: numberText },
  { title: "total", of: (row) => row.total, text: timeText },
  { title: "median", of: (row) => row.median, text: timeText },
  { title: "share", of: (row) => row.total / together, text: percent, bar: true },
  { title: "bytes", of: (row) => row.bytes, text: bytesText },
  { title: "operations", of: (row) => row.flops, text: numberText },
  { title: "GFLOP/s", of: (row) => perSecond(row.flops, row.median), text: (value) => value.toPrecision(3) },
  { title: "GB/s", of: (row) => perSecond(row.bytes, row.median), text: (value) => value.toPrecision(3) },
].filter((column) => data.rows.some((row) => ![null, undefined, ""].includes(column.of(row))));
const sorting = { column: COLUMNS.find((column) => column.title === "total"), down: true };

function badge(backend) {
  return backend ? element("span", backend, { class: "badge", style: `--colour:${colourOf(backend)}` }) : "";
}

function cellOf(column, row) {
  const value = column.of(row);
  if (column.shown) return element("td", column.shown(row));
  if (!column.text) return element("td", String(value ?? ""));
  const text = value === null || value === undefined ? "" : column.text(value),
    bar = column.bar && row.what !== "step" ? barOf(row, value) : "";
  return element("td", [bar, text], { class: "right" });
}

function barOf(row, share) {
  return element("i", "", {
    class: "share",
    "aria-hidden": "true",
    style: `width:${Math.min(60, 60 * share).toFixed(1)}px;--colour:${colourOf(row.backend)}`,
  });
}

function compared(one, other) {
  const a = sorting.column.of(one),
    b = sorting.column.of(other),
    isEmpty = (value) => value === null || value === undefined || value === "";
  if (isEmpty(a) || isEmpty(b)) return isEmpty(a) - isEmpty(b); // rows without a value come last
  const order = typeof a === "number" ? a - b : String(a).localeCompare(String(b));
  return sorting.down ? -order : order;
}

function showRows() {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean),
    texts = (row) => [row.name, row.operator, row.what, row.network, row.backend, row.device, ...row.layers];
  const rows = data.rows.filter((row) => {
    const text = texts(row).join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  rows.sort(compared);
  $("rows").replaceChildren(
    ...rows.map((row) => element("tr", COLUMNS.map((column) => cellOf(column, row)), { title: row.layers.join(", ") })),
  );
  $("found").textContent = words.length ? counted(rows.length, "row") : "";
  [...$("titles").children].forEach((cell, index) => {
    if (COLUMNS[index] === sorting.column) cell.setAttribute("aria-sort", sorting.down ? "descending" : "ascending");
    else cell.removeAttribute("aria-sort");
  });
}

function fillTable() {
  for (const column of COLUMNS) {
    const button = element("button", column.title, { type: "button" });
    button.addEventListener("click", () => {
      sorting.down = sorting.column === column ? !sorting.down : !!column.text;
      sorting.column = column;
      showRows();
    });
    $("titles").append(element("th", button, { scope: "col", class: column.text ? "right" : "" }));
  }
  $("search").addEventListener("input", showRows);
  showRows();
}

// --- counters --------------------------------------------------------------------------------------------------------

function figureOf(counter) {
  const points = counter.points,
    end = Math.max(1, data.end),
    top = Math.max(1e-12, counter.most ?? 0),
    isLevel = counter.class !== "event";
  let path = "M 0 60";
  for (let at = 0; at < points.length; at += 2) {
    const x = (1000 * points[at]) / end,
      y = 60 - (54 * Math.max(0, points[at + 1])) / top;
    path += isLevel ? ` H ${x.toFixed(2)} V ${y.toFixed(2)}` : ` H ${x.toFixed(2)} V ${y.toFixed(2)} V 60`;
  }
  const svg = drawn("svg", { viewBox: "0 0 1000 60", preserveAspectRatio: "none", "aria-hidden": "true" });
  svg.append(drawn("path", { d: `${path} ${isLevel ? "H 1000 V 60 Z" : ""}`, class: "line" }));
  const last = `${isLevel ? "at the end" : "in all"} ${valueText(counter.value ?? 0, counter.units)}`,
    name = [counter.backend, counter.name, counter.device && `(${counter.device})`].filter(Boolean).join(" ");
  const most = isLevel ? `at most ${valueText(counter.most ?? 0, counter.units)}, ` : "";
  return element("figure", [
    element("figcaption", [element("span", name), element("span", most + last)]),
    svg,
  ]);
}

function fillCounters() {
  const isMemory = (counter) => counter.units === "bytes";
  const all = [...data.counters].sort((one, other) => isMemory(other) - isMemory(one));
  $("counters").append(...all.map(figureOf));
  if (!all.length) $("counters").append(element("p", "No counter has a value.", { class: "small" }));
}
