
/* ---- programs that none beats: the command of the selected one ---- */

function setUpFront(plot) {
  const programs = [...plot.querySelectorAll(".program")];
  programs.sort((a, b) => Number(a.dataset.x) - Number(b.dataset.x));
  const command = document.getElementById("program-command");
  const current = programs.find((program) => program.classList.contains("current")) ?? programs[0];
  const copy = document.getElementById("program-copy");

  function select(program, focus = false) {
    for (const other of programs) {
      other.setAttribute("aria-pressed", other === program);
      other.setAttribute("tabindex", other === program ? 0 : -1);
    }
    command.textContent = program.dataset.command;
    document.getElementById("program-options").textContent = program.dataset.options;
    for (const cost of document.querySelectorAll("[data-cost]")) {
      const value = Number(program.dataset[cost.dataset.cost]);
      const change = (100 * value) / Number(current.dataset[cost.dataset.cost]) - 100;
      const words = program === current ? "" : `${change < 0 ? "" : "+"}${change.toFixed(1)} %`;
      cost.replaceChildren(`${number(value)} `, document.createElement("span"));
      cost.lastChild.textContent = words;
    }
    copy.textContent = "Copy";
    if (focus) program.focus({ preventScroll: true });
  }

  plot.addEventListener("click", (event) => {
    const program = event.target.closest(".program");
    if (program) select(program, true);
  });
  plot.addEventListener("keydown", (event) => {
    const index = programs.indexOf(event.target.closest(".program"));
    if (index < 0) return;
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    const ends = { Home: 0, End: programs.length - 1 };
    const next = ends[event.key] ?? index + (steps[event.key] ?? NaN);
    if (Number.isNaN(next)) return;
    event.preventDefault();
    select(programs[Math.min(Math.max(next, 0), programs.length - 1)], true);
  });
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command.textContent);
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(command);
    }
  });
  select(current);
}

const front = document.getElementById("front");
if (front) setUpFront(front);
