// The head of the page, the networks, and the beginning.

function fillHead() {
  $("name").textContent = document.title.replace(/ - profile - Interposer$/, "");
  $("summary").textContent = [
    counted(data.runs, "run"),
    counted(data.events, "event"),
    `${timeText(data.end)} recorded`,
  ].join(", ");
  $("legend").append(
    ...data.backends.map((name) => {
      return element("li", [element("i", "", { style: `--colour:${colourOf(name)}`, "aria-hidden": "true" }), name]);
    }),
  );
  const notes = [];
  if (data.left_out)
    notes.push(
      `The timeline shows the first ${numberText(data.tracks.reduce((sum, track) => sum + track.slices.length / FIELDS, 0))} ` +
        `slices and leaves out ${numberText(data.left_out)} later ones. The flame graph and the table have all events.`,
    );
  if (data.all_rows > data.rows.length)
    notes.push(`The table has the first ${numberText(data.rows.length)} of ${numberText(data.all_rows)} layers and steps.`);
  if (data.lost) notes.push(`${counted(data.lost, "event was", "events were")} lost, because the buffer was full.`);
  $("notes").textContent = notes.join(" ");
}

function fillNetworks() {
  for (const item of data.drawings) {
    const frame = element("iframe", "", { title: `The network ${item.name}`, sandbox: "allow-scripts" });
    frame.srcdoc = item.html;
    $("drawings").append(frame);
  }
  if (!data.drawings.length) $("drawings").append(element("p", "No network has run.", { class: "small" }));
}

const line = new TimeLine();
fillHead();
line.draw();
listenToTimeline(line);
showFlame(data.flame, []);
$("whole").addEventListener("click", () => showFlame(data.flame, []));
addEventListener("resize", () => showFlame(data.flame, []));
fillTable();
fillCounters();
fillNetworks();
document.documentElement.dataset.ready = "yes";
