const facts = JSON.parse(document.getElementById("facts").textContent);
const number = (value) => value.toLocaleString("en-US");

/* ---- tooltips ---- */

const tip = document.getElementById("tip");

function showTip(text, x, y) {
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = Math.min(x + 14, window.innerWidth - box.width - 8);
  const below = y + 18 + box.height < window.innerHeight;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${below ? y + 18 : Math.max(8, y - box.height - 12)}px`;
}

document.addEventListener("mousemove", (event) => {
  const element = event.target.closest?.("[data-buffer], [data-tip]");
  if (!element) tip.hidden = true;
  else showTip(element.dataset.tip ?? describeBuffer(element), event.clientX, event.clientY);
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });

/* ---- parts of the page that scroll: they are reached by the keyboard when they overflow ---- */

function updateScrollers() {
  for (const part of document.querySelectorAll(".map, .scroll, .details, pre")) {
    const overflows = part.scrollWidth > part.clientWidth || part.scrollHeight > part.clientHeight;
    if (overflows) part.tabIndex = 0;
    else part.removeAttribute("tabindex");
    if (overflows && part.ariaLabel) part.setAttribute("role", "region");
    else part.removeAttribute("role");
  }
}
window.addEventListener("load", updateScrollers);
window.addEventListener("resize", updateScrollers);
