"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const token = document.body.dataset.token;
  const bytesMax = Number(document.body.dataset.bytesMax);
  const pollMs = 400;
  const number = (value) => value.toLocaleString("en-US");
  let model = "";
  let latest = 0;
  let searches = 0;
  let choices = [];
  let board = "";

  // An error is a text, and the places that it lists.
  const say = (text, places = [], remedy = "") => {
    const list = document.createElement("ul");
    list.append(...places.map((place) => element("li", place)));
    at("message").replaceChildren(element("p", text));
    if (places.length) at("message").append(list);
    if (remedy) at("message").append(element("p", `Try: ${remedy}`));
    at("message").hidden = !text;
  };

  const explain = (error) => say(error.message, error.places, error.remedy);

  const clear = () => {
    latest += 1;
    endSearch();
    for (const id of ["result", "plan-card", "front-card", "source-card"]) at(id).hidden = true;
    at("result").classList.remove("busy");
  };

  const post = async (path, body, headers = {}) => {
    const answer = await fetch(path, {
      method: "POST",
      body: body instanceof Blob ? body : JSON.stringify(body),
      headers: { "X-Firmwright-Token": token, ...headers },
    });
    if (answer.ok) return answer;
    const problem = await answer.json();
    throw Object.assign(new Error(problem.error), problem);
  };

  const ask = async (path, body) => (await post(path, body)).json();

  const bytesOf = (id) => (at(id).value ? Number(at(id).value) : null);

  const request = () => ({
    model,
    board,
    optimize: at("optimize").value,
    ram_bytes: bytesOf("ram"),
    flash_bytes: bytesOf("flash"),
    stream_input_rows: at("rows").checked,
  });

  const element = (name, text, className = "") => {
    const made = document.createElement(name);
    made.textContent = text;
    if (className) made.className = className;
    return made;
  };

  const figure = (label, value, note) => {
    const box = document.createElement("div");
    const data = element("dd", value);
    if (note) data.append(element("small", note));
    box.append(element("dt", label), data);
    at("figures").append(box);
  };

  const ms = (value) => (value >= 100 ? value.toFixed(0) : value.toPrecision(3));

  const showFit = (fit) => {
    const verdict = at("verdict");
    verdict.className = fit.fits ? "verdict good" : "verdict bad";
    verdict.textContent = fit.fits
      ? `${fit.model} fits ${fit.board}.`
      : `${fit.model} does not fit ${fit.board}: ${fit.problem}.`;
    at("figures").replaceChildren();
    const limit = (bytes) => (bytes === null ? "" : `of ${number(bytes)} bytes`);
    if (fit.workspace_bytes !== null) {
      figure("RAM", `${number(fit.workspace_bytes)} bytes`, limit(fit.workspace_limit_bytes));
    }
    if (fit.flash_bytes !== null) {
      figure("Flash, predicted", `${number(fit.flash_bytes)} bytes`, limit(fit.flash_limit_bytes));
    }
    if (fit.stack_bytes !== null) {
      figure("Stack, predicted", `${number(fit.stack_bytes)} bytes`, "");
    }
    const time = fit.milliseconds;
    if (time !== null) {
      const range = time.most === null ? `over ${ms(time.least)} ms` : `${ms(time.least)} to ${ms(time.most)} ms`;
      figure("Time, modeled", range, `at ${time.clock_hz / 1e6} MHz on ${time.chip}`);
    }
    at("remedies").replaceChildren(...fit.remedies.map(remedyItem));
  };

  const remedyItem = (remedy) => {
    const about = remedy.is_estimate ? "about " : "";
    const needs = `it then needs ${about}${number(remedy.workspace_bytes)} bytes`;
    const item = element("li", remedy.kind === "board" ? remedy.text : "");
    if (remedy.kind === "board") return item;
    const [option, value] = remedy.text.split(" ");
    const knob = {
      "--ram": ["ram", `Set RAM to ${number(Number(value))} bytes`],
      "--optimize": ["optimize", `Set ${value}`],
      "--stream-input-rows": ["rows", "Feed the input by rows"],
    }[option];
    if (!knob) {
      item.textContent = `${remedy.text}: ${needs}.`;
      return item;
    }
    const button = element("button", knob[1]);
    button.type = "button";
    button.addEventListener("click", () => {
      if (value) at(knob[0]).value = value;
      else at(knob[0]).checked = true;
      update();
    });
    item.append(button, option === "--ram" ? "" : `${needs}.`);
    return item;
  };

  const update = async () => {
    if (!model) return;
    endSearch();
    const turn = ++latest;
    at("result").classList.add("busy");
    say("");
    try {
      const found = await ask("/fit", request());
      if (turn !== latest) return;
      showFit(found.fit);
      at("command").textContent = found.command;
      at("plan").innerHTML = found.plan;
      at("source").hidden = true;
      for (const id of ["plan-card", "front-card", "source-card"]) at(id).hidden = !found.plan;
      at("result").hidden = false;
    } catch (error) {
      if (turn !== latest) return;
      clear();
      explain(error);
    } finally {
      if (turn === latest) at("result").classList.remove("busy");
    }
  };

  const open = async (file) => {
    if (!file) return;
    model = "";
    clear();
    const turn = latest;
    at("model-name").textContent = "";
    if (file.size > bytesMax) {
      say(`${file.name} has ${number(file.size)} bytes; at most ${number(bytesMax)} are read.`);
      return;
    }
    say("");
    at("model-name").textContent = `reading ${file.name} …`;
    try {
      const answer = await post("/model", file, { "X-File-Name": encodeURIComponent(file.name) });
      const found = await answer.json();
      if (turn !== latest) return;
      model = found.model;
      at("model-name").textContent = `${found.file}, ${number(found.bytes)} bytes`;
      await update();
    } catch (error) {
      if (turn !== latest) return;
      at("model-name").textContent = "";
      explain(error);
    }
  };

  const showSearch = (text, done, total) => {
    at("search").hidden = !text;
    at("show-front").hidden = Boolean(text);
    at("search-text").textContent = text;
    if (total) {
      at("search-progress").max = total;
      at("search-progress").value = done;
    } else {
      at("search-progress").removeAttribute("value");
    }
  };

  // Ends the search that runs, and removes its programs.
  const endSearch = () => {
    searches += 1;
    at("front").replaceChildren();
    if (!at("search").hidden) ask("/search/end", {}).catch((error) => explain(error));
    showSearch("", 0, 0);
  };

  const search = async () => {
    endSearch();
    const turn = searches;
    say("");
    showSearch("Searching the limits of RAM …", 0, 0);
    try {
      let found = await ask("/search", request());
      while (turn === searches && !found.programs) {
        if (found.total) showSearch(`${found.done} of ${found.total} variants`, found.done, found.total);
        await new Promise((resume) => setTimeout(resume, pollMs));
        if (turn === searches) found = await ask("/search/state", {});
      }
      if (turn !== searches) return;
      showFront(found);
      showSearch("", 0, 0);
    } catch (error) {
      if (turn !== searches) return;
      showSearch("", 0, 0);
      explain(error);
    }
  };

  const choose = (program) => {
    const words = program.options.split(" ");
    const after = (name) => words[words.indexOf(name) + 1];
    at("optimize").value = after("--optimize");
    at("ram").value = words.includes("--ram") ? after("--ram") : "";
    update();
  };

  const showFront = (found) => {
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    for (const title of ["Program", "RAM", "Flash", found.unit, ""]) {
      const cell = element("th", title);
      cell.scope = "col";
      head.append(cell);
    }
    const longest = Math.max(...found.programs.map((program) => program.duration));
    const body = table.createTBody();
    for (const program of found.programs) {
      const row = body.insertRow();
      if (program.is_current) row.className = "current";
      const button = element("button", program.options);
      button.type = "button";
      button.addEventListener("click", () => choose(program));
      row.insertCell().append(button);
      for (const value of [program.workspace_bytes, program.flash_bytes, program.duration]) {
        const cell = row.insertCell();
        cell.className = "number";
        cell.textContent = number(value);
      }
      const bar = element("div", "", "bar");
      bar.style.width = `${(100 * program.duration) / longest}px`;
      row.insertCell().append(bar);
    }
    at("front").replaceChildren(table);
  };

  const run = (button, work) => async (event) => {
    event.preventDefault();
    button.disabled = true;
    say("");
    try {
      await work();
    } catch (error) {
      explain(error);
    } finally {
      button.disabled = false;
    }
  };

  const showSource = async () => {
    const found = await ask("/source", request());
    at("source").textContent = found.text;
    at("source").hidden = false;
  };

  const download = async () => {
    const answer = await post("/package", { ...request(), format: at("format").value });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await answer.blob());
    link.download = answer.headers.get("X-File-Name");
    link.click();
    URL.revokeObjectURL(link.href);
  };

  // Lists the boards and chips that have each word of the search.
  const listBoards = () => {
    const words = at("find-board").value.toLowerCase().split(/\s+/).filter(Boolean);
    const groups = [];
    for (const group of choices) {
      const made = document.createElement("optgroup");
      made.label = group.title;
      for (const { name, description } of group.boards) {
        const text = description ? `${name}: ${description}` : name;
        if (!words.every((word) => text.toLowerCase().includes(word))) continue;
        const option = element("option", text);
        option.value = name;
        made.append(option);
      }
      if (made.children.length) groups.push(made);
    }
    at("board").replaceChildren(...groups);
    at("board").value = board;
    at("board-count").textContent = groups.length ? "" : "No board or chip has these words.";
  };

  const chooseBoard = (name) => {
    board = name;
    at("board").value = name;
    at("board-name").textContent = name;
    update();
  };

  const fill = (id, rows) => at(id).replaceChildren(...rows.map(([value, text]) => {
    const option = element("option", text);
    option.value = value;
    return option;
  }));

  const start = async () => {
    const found = await ask("/choices", {});
    choices = found.groups;
    listBoards();
    chooseBoard(choices[0].boards[0].name);
    at("find-board").addEventListener("input", listBoards);
    at("find-board").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && at("board").options.length) chooseBoard(at("board").options[0].value);
    });
    at("board").addEventListener("change", (event) => chooseBoard(event.target.value));
    fill("optimize", found.goals.map((goal) => [goal, goal]));
    fill("format", found.formats.map((name) => [name, name]));
    at("optimize").value = "balanced";
    at("format").value = "cmake";
    for (const id of ["optimize", "ram", "flash", "rows"]) at(id).addEventListener("change", update);
    at("knobs").addEventListener("submit", (event) => event.preventDefault());
    at("file").addEventListener("change", (event) => open(event.target.files[0]));
    at("show-front").addEventListener("click", search);
    at("end-search").addEventListener("click", endSearch);
    at("show-source").addEventListener("click", run(at("show-source"), showSource));
    const button = at("download").querySelector("button");
    at("download").addEventListener("submit", run(button, download));
    const drop = at("drop");
    for (const name of ["dragover", "dragenter"]) {
      drop.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
    }
    drop.addEventListener("dragleave", () => drop.classList.remove("over"));
    drop.addEventListener("drop", (event) => {
      event.preventDefault();
      drop.classList.remove("over");
      open(event.dataTransfer.files[0]);
    });
    document.body.dataset.ready = "true";
  };

  start().catch((error) => explain(error));
})();
