
/* ---- memory maps: what is live during a call ---- */

const operators = new Map(facts.operators.map((row) => [row.index, row]));
const callCount = facts.operator_by_time.length;
const peak = Math.max(0, facts.occupied_bytes.indexOf(Math.max(...facts.occupied_bytes)));
const slider = document.getElementById("time");
const livesAt = (buffer, time) => buffer.live.some(([first, end]) => first <= time && time < end);
const calls = (buffer) => buffer.live.map(([first, end]) => `${first}–${end - 1}`).join(" ");
let chosenTime = peak;

function callAt(time) {
  const operator = operators.get(facts.operator_by_time[time]);
  return operator ? `${operator.kind} ${operator.index}` : "moved rows";
}

function describeBuffer(element) {
  const buffer = facts.buffers[Number(element.dataset.buffer)];
  const range = `${number(buffer.offset)} to ${number(buffer.offset + buffer.size_bytes - 1)}`;
  return [
    buffer.name,
    `${buffer.kind}, ${number(buffer.size_bytes)} bytes`,
    `pool ${buffer.pool}, bytes ${range}`,
    `live during calls ${calls(buffer)}`,
  ].join("\n");
}

function addCell(row, text, kind, label) {
  const cell = row.insertCell();
  cell.textContent = text;
  if (kind) cell.className = kind;
  if (label) cell.dataset.label = label;
}

function showTime(time) {
  const title = `Call ${time}, ${callAt(time)}${time === peak ? ": the peak" : ""}`;
  const occupied = `${number(facts.occupied_bytes[time])} bytes occupied`;
  document.getElementById("alive-title").textContent = title;
  document.getElementById("alive-bytes").textContent = occupied;
  slider.value = time;
  slider.setAttribute("aria-valuetext", `${title}, ${occupied}`);
  const rows = document.getElementById("alive-rows");
  rows.replaceChildren();
  const alive = facts.buffers.filter((buffer) => livesAt(buffer, time));
  alive.sort((a, b) => b.size_bytes - a.size_bytes || (a.name < b.name ? -1 : 1));
  for (const buffer of alive) {
    const row = rows.insertRow();
    addCell(row, buffer.name, "name");
    addCell(row, buffer.kind, "", "kind");
    addCell(row, number(buffer.size_bytes), "r", "bytes");
    addCell(row, number(buffer.offset), "r", "at");
    addCell(row, calls(buffer), "r", "calls");
  }
  for (const column of document.querySelectorAll(".column")) {
    column.classList.toggle("now", Number(column.dataset.time) === time);
  }
  for (const rectangle of document.querySelectorAll(".buffer")) {
    rectangle.classList.toggle("alive", livesAt(facts.buffers[rectangle.dataset.buffer], time));
  }
  for (const row of document.querySelectorAll("tr[data-operator]")) {
    row.classList.toggle("now", Number(row.dataset.operator) === facts.operator_by_time[time]);
  }
}

function chooseTime(time) {
  chosenTime = Math.min(Math.max(time, 0), callCount - 1);
  showTime(chosenTime);
  for (const map of document.querySelectorAll(".map")) {
    map.classList.add("moved");
    const column = map.querySelector(`.column[data-time="${chosenTime}"]`);
    if (!column) continue;
    const x = Number(column.getAttribute("x"));
    const isShown = x > map.scrollLeft && x + 80 < map.scrollLeft + map.clientWidth;
    if (!isShown) map.scrollLeft = x - map.clientWidth / 2;
  }
}

function timeUnder(event) {
  for (const element of document.elementsFromPoint(event.clientX, event.clientY)) {
    if (element.dataset.time !== undefined) return Number(element.dataset.time);
  }
  return null;
}

/* Put the slider's thumb below the column of its call, if the whole map is visible. */
function alignSlider() {
  const map = document.querySelector(".map");
  const columns = [...map.querySelectorAll(".column")];
  const fits = columns.length > 1 && map.scrollWidth <= map.clientWidth;
  slider.style.cssText = "";
  if (!fits) return;
  const thumb = 8;
  const center = (column) => Number(column.getAttribute("x")) + Number(column.getAttribute("width")) / 2;
  const before = slider.getBoundingClientRect().left - map.getBoundingClientRect().left;
  const first = center(columns[0]) - thumb;
  slider.style.flex = `0 1 ${center(columns.at(-1)) + thumb - first}px`;
  slider.style.marginLeft = `${first - before}px`;
}

if (slider) {
  window.addEventListener("load", alignSlider);
  window.addEventListener("resize", alignSlider);
  slider.addEventListener("input", () => chooseTime(Number(slider.value)));
  document.getElementById("time-before").addEventListener("click", () => chooseTime(chosenTime - 1));
  document.getElementById("time-after").addEventListener("click", () => chooseTime(chosenTime + 1));
  for (const map of document.querySelectorAll(".map")) {
    map.addEventListener("mousemove", (event) => {
      const time = timeUnder(event);
      if (time !== null) showTime(time);
    });
    map.addEventListener("click", (event) => {
      const time = timeUnder(event);
      if (time !== null) chooseTime(time);
    });
    map.addEventListener("mouseleave", () => showTime(chosenTime));
  }
  showTime(peak);
}
