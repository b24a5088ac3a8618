// The panels beside the drawing: what is selected, the tables of parts, of layers and of refusals, and what colours say.

function openTab(name) {
  state.tab = name;
  for (const tab of document.querySelectorAll("[role=tab]"))
    tab.setAttribute("aria-selected", String(tab.dataset.tab === name));
  for (const panel of document.querySelectorAll("[role=tabpanel]")) panel.classList.toggle("open", panel.id === name);
}

function badge(backend) {
  return element("span", backend || "the runtime", { class: "badge", style: `--colour:${colourOf(backend)}` });
}

function facts(rows) {
  const kept = rows.filter(
    ([, one]) => one !== "" && one !== null && one !== undefined && !(Array.isArray(one) && !one.length),
  );
  return element(
    "dl",
    kept.map(([name, one]) => [element("dt", name), element("dd", one)]),
  );
}

function link(key, text) {
  const made = element("button", text, { type: "button", class: "link" });
  made.addEventListener("click", () => jump(key));
  return made;
}

function partLink(number) {
  const made = element("button", `part ${number}`, { type: "button", class: "link" });
  made.addEventListener("click", () => {
    showPart(number);
    openTab("about");
  });
  return made;
}

function showAbout() {
  if (state.picked && state.picked.startsWith("part ")) {
    showPart(Number(state.picked.slice(5)));
    return;
  }
  const node = state.picked && nodeOf(state.picked);
  $("about").replaceChildren(...(node ? aboutNode(node) : aboutNetwork()));
}

function aboutNode(node) {
  const one = node.info,
    others = Object.entries(one.others || {}),
    source = one.source || "";
  const title = element("h2", node.name, { id: "picked" });
  if (node.kind === "input" || node.kind === "output") {
    return [
      title,
      element("p", `${node.kind} of the network`),
      facts([
        ["type", `${one.type}${one.shape}`],
        ["bytes", numberText(one.bytes)],
        ["quantization", one.quantization],
        ["way", wayOf(one)],
      ]),
    ];
  }
  const merged = (one.replaced || []).filter((name) => name !== one.layer).join(", ");
  return [
    title,
    element("p", [element("b", node.type), " on ", badge(node.backend)]),
    facts([
      ["time", timeLine(one)],
      ["part", node.part === null ? "" : partLink(node.part)],
      ["runs in", one.runs_in && one.runs_in !== one.layer ? one.runs_in : ""],
      ["stands also for", merged],
      ["comes from", source],
      ["operations", numberText(one.operations)],
      ["bytes moved", numberText(one.bytes)],
    ]),
    ...refusalsOf(others),
    ...section("Attributes", Object.keys(one.attributes).length && facts(Object.entries(one.attributes))),
    ...section("Takes", one.inputs.length && tensors(one.inputs, true)),
    ...section("Gives", one.outputs.length && tensors(one.outputs, false)),
    ...section("Read by", readersOf(node)),
  ];
}

function timeLine(one) {
  if (!one.time)
    return one.ms === null || one.ms === undefined ? "" : `${msText(one.ms)} (measured, with what is in it)`;
  const share = one.time.ms === null ? "of the work" : `${percent(one.time.share)} of all layers`;
  const text = `${timeText(one.time)} ${one.time.ms === null ? share : `(${share})`}, ${one.time.how}`;
  return one.time.group ? `${text}: ${groupText(one.time.group)}` : text;
}

// Layers that were measured together, such as those of one step.
function groupText(group) {
  const few = group.layers.slice(0, 3).join(" + "),
    more = group.count > 3 ? ` and ${group.count - 3} more` : "";
  return `its share by work of ${msText(group.ms)} for ${few}${more}`;
}

function refusalsOf(others) {
  const rows = others.map(([backend, reasons]) => {
    const offer = isOffer(reasons);
    return element(
      "li",
      [
        badge(backend),
        offer ? " could run it, and is ranked lower" : " refuses it:",
        offer
          ? ""
          : element(
              "ul",
              reasons.map((reason) => element("li", reason)),
            ),
      ],
      { class: offer ? "offer" : "refusal", "data-backend": backend },
    );
  });
  return section("Other backends", rows.length && element("ul", rows, { class: "verdicts" }));
}

function section(title, content) {
  return content ? [element("h3", title), content] : [];
}

function wayOf(tensor) {
  return tensor.crossing === null || tensor.crossing === undefined ? "" : crossingText(data.crossings[tensor.crossing]);
}

function tensors(all, taken) {
  const rows = all.map((one) => {
    const from = taken && byName.get(one.layer),
      name = from ? link(from.key, one.name) : one.name;
    const kind = taken && !one.layer ? "constant " : "";
    const way = wayOf(one);
    return element("li", [
      element("span", one.role, { class: "role" }),
      " ",
      name,
      element(
        "div",
        [
          `${kind}${one.type}${one.shape}, ${bytesText(one.bytes)}`,
          one.value && element("div", `= ${one.value}`),
          one.quantization && element("div", one.quantization),
          way && element("div", way, { class: `way ${isCopy(data.crossings[one.crossing]) ? "copied" : ""}` }),
        ],
        { class: "small" },
      ),
    ]);
  });
  return element("ul", rows, { class: "tensors" });
}

function readersOf(node) {
  const readers = [...new Set(edges.filter((one) => one.from === node).map((one) => one.to))];
  return (
    readers.length &&
    element(
      "p",
      readers.flatMap((one, index) => [index ? ", " : "", link(one.key, one.name)]),
    )
  );
}

function showPart(number) {
  const part = parts.get(number),
    toggler = element("button", state.collapsed.has(number) ? "Open" : "Close", {
      type: "button",
      class: "small-button",
    });
  toggler.addEventListener("click", () => toggle({ part: number }));
  const list = part.layers.map((name) => element("li", link(`layer ${name}`, name)));
  $("about").replaceChildren(
    element("h2", ["part ", String(number), " ", toggler], { id: "picked" }),
    element("p", [counted(part.layers.length, "layer"), " on ", badge(part.backend)]),
    facts([
      ["time", timeLine(part)],
      ["runs as", part.runs_as.length > 6 ? counted(part.runs_as.length, "layer") : part.runs_as.join(", ")],
    ]),
    ...section("Comes in", ways(part.incoming)),
    ...section("Goes out", ways(part.outgoing)),
    ...section("Layers", element("ol", list, { class: "plain" })),
  );
}

function ways(numbers) {
  return (
    numbers.length &&
    element(
      "ul",
      numbers.map((one) => element("li", crossingText(data.crossings[one]))),
    )
  );
}

function aboutNetwork() {
  const { times } = data,
    absent = data.absent.map((one) => element("li", [element("b", one.id), `: ${one.reason}`]));
  const counts = Object.entries(data.counts).map(([backend, count]) =>
    element("li", [badge(backend), ` ${counted(count, "layer")}${refusalCount(backend)}`]),
  );
  return [
    element("h2", data.network),
    facts([
      [
        "one run",
        times.whole_ms === null
          ? "not measured"
          : `${msText(times.whole_ms)}${spreadText(times.spread)} (${times.source}${times.runs ? `, ${counted(times.runs, "run")}` : ""})`,
      ],
      [
        "measured plans",
        Object.entries(times.candidates_ms)
          .sort((a, b) => a[1] - b[1])
          .map(([name, ms]) => element("div", `${name}: ${msText(ms)}`))
          .concat((times.notes || []).map((note) => element("div", note))),
      ],
      ["estimates (~)", `by work: ${times.estimated_by}`],
      ["inputs", data.inputs.map((one) => element("div", `${one.name}: ${one.type}${one.shape}`))],
      ["outputs", data.outputs.map((one) => element("div", `${one.name}: ${one.type}${one.shape}`))],
    ]),
    ...section("Backends, in order of preference", element("ul", counts, { class: "plain" })),
    ...section("Skipped", absent.length && element("ul", absent)),
    ...section("Crossings", data.crossings.length && element("ul", crossingSums())),
    element("p", "Click on a layer for its tensors, its time, and why other backends do not run it.", {
      class: "hint",
    }),
  ];
}

function spreadText(spread) {
  return spread === undefined ? "" : ` \u00b1${percent(spread)}`;
}

function refusalCount(backend) {
  const count = data.layers.filter((one) => one.others[backend] && !isOffer(one.others[backend])).length;
  return count ? `, refuses ${count}` : "";
}

function crossingSums() {
  const sums = new Map();
  for (const one of data.crossings) {
    const key = `${HOW[one.how]} from ${one.from || "the caller"} to ${one.to || "the caller"}`,
      sum = sums.get(key) || { bytes: 0, count: 0 };
    sums.set(key, { bytes: sum.bytes + one.bytes, count: sum.count + 1 });
  }
  return [...sums].map(([key, sum]) =>
    element("li", `${counted(sum.count, "tensor")}, ${numberText(sum.bytes)} bytes, ${key}`),
  );
}

function table(titles, rows, right) {
  const head = element(
    "tr",
    titles.map((one, index) => element("th", one, { scope: "col", class: right.includes(index) ? "right" : "" })),
  );
  return element("table", [element("thead", head), element("tbody", rows)]);
}

function row(cells, right, key, act) {
  const made = element(
    "tr",
    cells.map((one, index) => element("td", one, { class: right.includes(index) ? "right" : "" })),
    { tabindex: "0", "data-key": key },
  );
  made.addEventListener("click", act);
  made.addEventListener("keydown", (event) => {
    if (event.key === "Enter") act();
  });
  return made;
}

function fillParts() {
  const sum = (numbers, copies) =>
    numbers
      .map((one) => data.crossings[one])
      .reduce((total, one) => total + (isCopy(one) === copies ? one.bytes : 0), 0);
  const line = (size, how) => (size ? element("div", `${bytesText(size)} ${how}`) : "");
  const cell = (numbers) => [line(sum(numbers, true), "copied"), line(sum(numbers, false), "passed")];
  const rows = data.parts.map((one) =>
    row(
      [
        String(one.part),
        badge(one.backend),
        [
          element("div", one.layers[0] || one.runs_as[0], { class: "clip" }),
          one.layers.length > 1
            ? element("div", `and ${counted(one.layers.length - 1, "other")}`, { class: "small" })
            : "",
        ],
        [timeText(one.time), bar(one)],
        cell(one.incoming),
        cell(one.outgoing),
      ],
      [0],
      `part ${one.part}`,
      () => {
        showPart(one.part);
        openTab("about");
        view.centre(keyOf(nodes.find((node) => node.part === one.part) || { part: one.part }));
        searchFor(`part:${one.part}`);
      },
    ),
  );
  $("parts").replaceChildren(
    element("h2", "Parts"),
    table(["part", "backend", "layers", "time", "comes in", "goes out"], rows, [0]),
  );
}

function bar(one) {
  const inner = element("i", "", {
    class: one.time.how === "measured" ? "" : "guessed",
    style: `width:${(100 * Math.min(1, one.time.share)).toFixed(1)}%;--colour:${colourOf(one.backend)}`,
  });
  return element("div", inner, { class: "length" });
}

function fillLayers() {
  const shown = (state.matches || nodes).filter((one) => one.kind === "layer" || one.kind === "hosted");
  const rows = shown.map((one) =>
    row(
      [element("div", one.name, { class: "clip" }), one.type, badge(one.backend), timeText(one.info.time)],
      [3],
      one.key,
      () => jump(one.key),
    ),
  );
  $("layers").replaceChildren(
    element("h2", `Layers${state.matches ? `: ${shown.length} of ${data.layers.length}` : ""}`),
    table(["layer", "type", "backend", "time"], rows, [3]),
  );
}

// Every reason once, with the types of layers that it was given for.
function fillRefusals() {
  const groups = new Map();
  for (const layer of data.layers) {
    for (const [backend, reasons] of Object.entries(layer.others)) {
      if (isOffer(reasons)) continue;
      const key = JSON.stringify([backend, reasons]),
        group = groups.get(key) || { backend, reasons, names: [], kinds: new Map() };
      group.names.push(layer.layer);
      group.kinds.set(layer.kind, (group.kinds.get(layer.kind) || 0) + 1);
      groups.set(key, group);
    }
  }
  const items = [...groups.values()]
    .sort((a, b) => data.backends.indexOf(a.backend) - data.backends.indexOf(b.backend))
    .map(refusalItem);
  $("refusals").replaceChildren(
    element("h2", "Refusals"),
    items.length
      ? element("ul", items, { class: "verdicts" })
      : element("p", "No backend that was asked has refused a layer."),
  );
}

function refusalItem({ backend, reasons, names, kinds }) {
  const types = [...kinds].map(([kind, count]) => `${kind} (${count})`).join(", ");
  const few = names.slice(0, 12).flatMap((name, index) => [index ? ", " : "", link(`layer ${name}`, name)]);
  return element(
    "li",
    [
      badge(backend),
      " ",
      element("b", types),
      element(
        "ul",
        reasons.map((one) => element("li", one)),
      ),
      element("div", [few, names.length > 12 ? ` and ${names.length - 12} more` : ""], { class: "small" }),
    ],
    { class: "refusal" },
  );
}

function fillHead() {
  const copied = data.copies.reduce((sum, one) => sum + one.bytes, 0),
    { times } = data;
  const said = [counted(data.layers.length, "layer"), counted(data.parts.length, "part")];
  if (data.backends.length > 1)
    said.push(copied ? `${counted(data.copies.length, "copy", "copies")} of ${bytesText(copied)}` : "no copies");
  said.push(times.whole_ms === null ? "not measured" : `${msText(times.whole_ms)} a run`);
  $("name").textContent = data.network;
  $("summary").textContent = said.join(" \u00b7 ");
  $("legend").replaceChildren(
    ...data.backends.map((backend) => {
      const time = data.parts
        .filter((one) => one.backend === backend)
        .reduce(addTime, { ms: 0, share: 0, how: "measured" });
      const count = data.counts[backend] || 0,
        text = `${counted(count, "layer")}${count ? `, ${timeText(time)}${time.ms === null ? " of the work" : ""}` : ""}`;
      const made = element("button", [element("b", backend), " ", text], {
        type: "button",
        class: "chip",
        style: `--colour:${colourOf(backend)}`,
        title: `Find the layers of ${backend}`,
      });
      made.addEventListener("click", () =>
        searchFor($("search").value === `backend:${backend}` ? "" : `backend:${backend}`),
      );
      return made;
    }),
  );
}

function addTime(sum, { time }) {
  const ms = sum.ms === null || time.ms === null ? null : sum.ms + time.ms;
  return { ms, share: sum.share + time.share, how: time.how === "measured" ? sum.how : "estimated" };
}

function fillKey() {
  const used = new Set(data.crossings.map((one) => one.how)),
    known = data.layers.map((one) => one.time.how);
  const line = (how) => element("span", [element("i", "", { class: `line ${how.replace(" ", "-")}` }), HOW[how]]);
  const box = (kind, text) => element("span", [element("i", "", { class: `sample ${kind}` }), text]);
  $("key").replaceChildren(
    ...(known.includes("measured") ? [box("measured", "time, measured")] : []),
    ...(known.includes("estimated") ? [box("guessed", "time, estimated (~)")] : []),
    ...Object.keys(HOW)
      .filter((how) => used.has(how))
      .map(line),
  );
}
