
/* ---- network: zoom, pan, and the kernel of the selected operator ---- */

const ZOOM_STEP = 1.25;
const ZOOM_LEAST = 0.15;
const ZOOM_MOST = 2.5;
const DRAG_START = 4;

const graph = document.getElementById("graph");

function setUpNetwork() {
  const drawing = document.getElementById("network-drawing");
  const size = drawing.viewBox.baseVal;
  const nodes = [...drawing.querySelectorAll(".node")];
  const sources = JSON.parse(document.getElementById("sources").textContent);
  let zoom = 1;
  let selected = null;

  /* `x` and `y` are the point of the box that stays where it is. */
  function zoomTo(wanted, x = graph.clientWidth / 2, y = graph.clientHeight / 2) {
    const next = Math.min(Math.max(wanted, ZOOM_LEAST), ZOOM_MOST);
    const left = Math.max(0, (graph.clientWidth - size.width * zoom) / 2);
    const at = [(graph.scrollLeft + x - left) / zoom, (graph.scrollTop + y) / zoom];
    zoom = next;
    drawing.setAttribute("width", size.width * zoom);
    drawing.setAttribute("height", size.height * zoom);
    graph.scrollTo(at[0] * zoom - x, at[1] * zoom - y);
  }

  function fit() {
    const across = graph.clientWidth / size.width;
    zoomTo(Math.min(across, graph.clientHeight / size.height, 1.4));
    graph.scrollTo(0, 0);
  }

  function center(node) {
    const box = node.getBoundingClientRect();
    const outer = graph.getBoundingClientRect();
    graph.scrollBy(
      box.left + box.width / 2 - outer.left - outer.width / 2,
      box.top + box.height / 2 - outer.top - outer.height / 2,
    );
  }

  function select(node, { focus = false, centered = false } = {}) {
    for (const other of nodes) {
      other.setAttribute("aria-pressed", other === node);
      other.setAttribute("tabindex", other === node ? 0 : -1);
    }
    if (selected) document.getElementById(`node-${selected.dataset.node}`).hidden = true;
    selected = node;
    document.getElementById(`node-${node.dataset.node}`).hidden = false;
    document.getElementById("details").scrollTop = 0;
    updateScrollers();
    if (focus) node.focus({ preventScroll: true });
    if (centered) center(node);
  }

  /* The neighbor in the direction of an arrow key. */
  function neighbor(node, key) {
    const linked = (list) => (list ? nodes[Number(list.split(" ")[0])] : null);
    if (key === "ArrowDown") return linked(node.dataset.after);
    if (key === "ArrowUp") return linked(node.dataset.before);
    const box = node.getBoundingClientRect();
    const onLayer = nodes.filter((other) => Math.abs(other.getBoundingClientRect().top - box.top) < 2);
    onLayer.sort((a, b) => a.getBoundingClientRect().left - b.getBoundingClientRect().left);
    return onLayer[onLayer.indexOf(node) + (key === "ArrowRight" ? 1 : -1)];
  }

  drawing.addEventListener("keydown", (event) => {
    const node = event.target.closest(".node");
    if (!node || event.ctrlKey || event.metaKey || event.altKey) return;
    let next = null;
    if (event.key.startsWith("Arrow")) next = neighbor(node, event.key) ?? node;
    else if (event.key === "Home") next = nodes[0];
    else if (event.key === "End") next = nodes[nodes.length - 1];
    else if (event.key === "Enter" || event.key === " ") next = node;
    else if (event.key === "+" || event.key === "=") zoomTo(zoom * ZOOM_STEP);
    else if (event.key === "-") zoomTo(zoom / ZOOM_STEP);
    else if (event.key === "0") fit();
    else return;
    event.preventDefault();
    if (next) select(next, { focus: true, centered: true });
  });

  let drag = null;
  graph.addEventListener("pointerdown", (event) => {
    if (event.pointerType !== "mouse" || event.button !== 0) return;
    drag = { x: event.clientX, y: event.clientY, left: graph.scrollLeft, top: graph.scrollTop };
  });
  window.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const x = event.clientX - drag.x;
    const y = event.clientY - drag.y;
    if (!graph.classList.contains("dragged") && Math.hypot(x, y) < DRAG_START) return;
    graph.classList.add("dragged");
    graph.scrollTo(drag.left - x, drag.top - y);
  });
  window.addEventListener("pointerup", () => {
    drag = null;
    setTimeout(() => graph.classList.remove("dragged"));
  });
  graph.addEventListener("click", (event) => {
    const node = event.target.closest(".node");
    if (node && !graph.classList.contains("dragged")) select(node, { focus: true });
  });
  graph.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const outer = graph.getBoundingClientRect();
    const factor = Math.exp(-event.deltaY / 300);
    zoomTo(zoom * factor, event.clientX - outer.left, event.clientY - outer.top);
  }, { passive: false });

  /* Two fingers zoom around the point between them; one finger scrolls. */
  let pinch = null;
  function fingers(event) {
    const outer = graph.getBoundingClientRect();
    const [one, two] = event.touches;
    return {
      distance: Math.hypot(one.clientX - two.clientX, one.clientY - two.clientY),
      x: (one.clientX + two.clientX) / 2 - outer.left,
      y: (one.clientY + two.clientY) / 2 - outer.top,
    };
  }
  function followFingers(event) {
    if (event.touches.length !== 2) {
      pinch = null;
      return;
    }
    /* The page is not zoomed, unless the browser scrolls it already. */
    if (event.cancelable) {
      event.preventDefault();
    }
    const now = fingers(event);
    pinch = pinch ?? { distance: Math.max(now.distance, 1), zoom };
    zoomTo((pinch.zoom * now.distance) / pinch.distance, now.x, now.y);
  }
  for (const kind of ["touchstart", "touchmove", "touchend", "touchcancel"]) {
    graph.addEventListener(kind, followFingers, { passive: false });
  }

  document.getElementById("zoom-in").addEventListener("click", () => zoomTo(zoom * ZOOM_STEP));
  document.getElementById("zoom-out").addEventListener("click", () => zoomTo(zoom / ZOOM_STEP));
  document.getElementById("zoom-fit").addEventListener("click", fit);
  for (const source of document.querySelectorAll(".source")) {
    source.addEventListener("toggle", () => {
      source.querySelector("pre").textContent = sources[source.dataset.kernel];
      updateScrollers();
    });
  }

  const heat = (node) => parseFloat(node.style.getPropertyValue("--part"));
  zoomTo(Math.min(1, Math.max(0.6, graph.clientWidth / size.width)));
  select(nodes.reduce((best, node) => (heat(node) > heat(best) ? node : best)));
  graph.scrollTo(Math.max(0, (drawing.clientWidth - graph.clientWidth) / 2), 0); // at the inputs
}

if (graph) setUpNetwork();
