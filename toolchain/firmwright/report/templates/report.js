"use strict";
(() => {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const tip = document.getElementById("tip");
  const number = (value) => value.toLocaleString("en-US");
  const operators = new Map(facts.operators.map((row) => [row.index, row]));
  const peak = Math.max(0, facts.occupied_bytes.indexOf(Math.max(...facts.occupied_bytes)));
  const kindAt = (time) => operators.get(facts.operator_by_time[time])?.kind ?? "moved rows";
  const livesAt = (buffer, time) => buffer.live.some(([first, end]) => first <= time && time < end);
  const calls = (buffer) => buffer.live.map(([first, end]) => `${first}–${end - 1}`).join(" ");

  function place(x, y) {
    const box = tip.getBoundingClientRect();
    const left = Math.min(x + 14, window.innerWidth - box.width - 8);
    const below = y + 18 + box.height < window.innerHeight;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${below ? y + 18 : Math.max(8, y - box.height - 12)}px`;
  }

  function showTip(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    place(x, y);
  }

  function aboutBuffer(buffer) {
    const range = `${number(buffer.offset)} to ${number(buffer.offset + buffer.size_bytes - 1)}`;
    return [
      buffer.name,
      `${buffer.kind}, ${number(buffer.size_bytes)} bytes`,
      `pool ${buffer.pool}, bytes ${range}`,
      `live during calls ${calls(buffer)}`,
    ].join("\n");
  }

  function cell(row, text, kind) {
    const tableCell = row.insertCell();
    tableCell.textContent = text;
    tableCell.className = kind;
  }

  function showTime(time) {
    const title = time === peak ? `The peak: call ${time}` : `Call ${time}`;
    document.getElementById("alive-title").textContent = `${title}, ${kindAt(time)}`;
    document.getElementById("alive-bytes").textContent =
      `${number(facts.occupied_bytes[time])} bytes occupied`;
    const rows = document.getElementById("alive-rows");
    rows.replaceChildren();
    const alive = facts.buffers.filter((buffer) => livesAt(buffer, time));
    alive.sort((a, b) => b.size_bytes - a.size_bytes || (a.name < b.name ? -1 : 1));
    for (const buffer of alive) {
      const row = rows.insertRow();
      cell(row, buffer.name, "name");
      cell(row, buffer.kind, "");
      cell(row, number(buffer.size_bytes), "r");
      cell(row, number(buffer.offset), "r");
      cell(row, calls(buffer), "r");
    }
    for (const column of document.querySelectorAll(".column")) {
      column.classList.toggle("now", Number(column.dataset.time) === time);
    }
    for (const row of document.querySelectorAll("tr[data-operator]")) {
      row.classList.toggle("now", Number(row.dataset.operator) === facts.operator_by_time[time]);
    }
  }

  function timeUnder(event) {
    for (const element of document.elementsFromPoint(event.clientX, event.clientY)) {
      if (element.dataset.time !== undefined) return Number(element.dataset.time);
    }
    return null;
  }

  function about(element) {
    if (element.dataset.buffer !== undefined) {
      return aboutBuffer(facts.buffers[Number(element.dataset.buffer)]);
    }
    return element.dataset.tip ?? null;
  }

  const tipTarget = (event) => event.target.closest?.("[data-buffer], [data-tip]");
  let shown = peak;
  document.addEventListener("mousemove", (event) => {
    const element = tipTarget(event);
    if (element) showTip(about(element), event.clientX, event.clientY);
    else tip.hidden = true;
    const inMap = event.target.closest?.(".map");
    const time = inMap ? timeUnder(event) : null;
    if (time !== null && time !== shown) showTime((shown = time));
  });
  document.addEventListener("focusin", (event) => {
    const element = tipTarget(event);
    if (!element) return;
    const box = element.getBoundingClientRect();
    showTip(about(element), box.left, box.bottom - 12);
    if (element.dataset.buffer === undefined) return;
    showTime((shown = facts.buffers[Number(element.dataset.buffer)].live[0][0]));
  });
  document.addEventListener("focusout", () => { tip.hidden = true; });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
  for (const map of document.querySelectorAll(".map")) {
    map.addEventListener("mouseleave", () => showTime((shown = peak)));
  }
  if (facts.operator_by_time.length) showTime(peak);
})();
