// The flame graph: boxes as wide as the time of a network, part, layer or step in all runs together.

const BOX = 24;
const [NAME, WHAT, BACKEND, TOTAL, COUNT, CHILDREN] = [0, 1, 2, 3, 4, 5];

function showFlame(node, path) {
  const boxes = [],
    width = $("boxes").clientWidth || 800;
  let deepest = 0;
  path.forEach((item, depth) => boxes.push(boxOf(item, 0, 1, depth, path.slice(0, depth))));
  const visit = (item, left, share, depth, above) => {
    if (share * width < 1.2) return;
    deepest = Math.max(deepest, depth);
    boxes.push(boxOf(item, left, share, depth, above));
    let at = left;
    for (const child of item[CHILDREN]) {
      const part = item[TOTAL] ? (share * child[TOTAL]) / item[TOTAL] : 0;
      visit(child, at, part, depth + 1, [...above, item]);
      at += part;
    }
  };
  visit(node, 0, 1, path.length, path);
  $("boxes").replaceChildren(...boxes);
  $("boxes").style.height = `${(deepest + 1) * BOX}px`;
  $("whole").disabled = !path.length;
}

function boxOf(item, left, share, depth, path) {
  const whole = data.flame[TOTAL] || 1,
    text = `${item[NAME]}: ${item[WHAT]}${item[BACKEND] ? ` on ${item[BACKEND]}` : ""}, ${timeText(item[TOTAL])}`,
    about = `${text}, ${percent(item[TOTAL] / whole)} of all, ${counted(item[COUNT], "time")}`;
  const box = element("button", item[NAME], {
    type: "button",
    class: `box ${item[WHAT]}`,
    title: about,
    "aria-label": about,
    style: `left:${100 * left}%;width:${100 * share}%;top:${depth * BOX}px;--colour:${colourOf(item[BACKEND])}`,
  });
  box.addEventListener("click", () => {
    showFlame(item, path);
    $("box").textContent = about;
    const again = $("boxes").children[path.length];
    if (again) again.focus();
  });
  return box;
}
