"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const map = document.getElementById("map");
  const detail = document.getElementById("detail");

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.copy");
    if (button) copy(button);
  });
  document.getElementById("close").addEventListener("click", () => detail.close());
  detail.addEventListener("click", (event) => {
    if (event.target === detail) detail.close();
  });
  // What is folded is printed too, but for the list of every failure, which may have thousands of lines.
  addEventListener("beforeprint", () => {
    for (const folded of document.querySelectorAll("section:not(#failures) details")) folded.open = true;
  });
  if (map) setUp(map);

  async function copy(button) {
    const code = button.parentElement.querySelector("pre");
    getSelection().selectAllChildren(code);
    let copied = false;
    try {
      await navigator.clipboard.writeText(code.textContent);
      copied = true;
    } catch {
      // Without permission, the old way; and without that, the text is at least selected.
      copied = document.execCommand("copy");
    }
    button.textContent = copied ? "Copied" : "Selected";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  function setUp(table) {
    const reading = document.getElementById("reading");
    const tip = document.body.appendChild(document.createElement("div"));
    tip.id = "tip";
    tip.setAttribute("aria-hidden", "true");
    const rows = [...table.tBodies].flatMap((body) => [...body.rows]).map((row) => [...row.querySelectorAll("td")]);
    table.setAttribute("role", "grid");
    for (const row of rows) {
      for (const cell of row) {
        cell.tabIndex = -1;
        if (cell.classList.contains("bad")) cell.setAttribute("aria-haspopup", "dialog");
      }
    }
    let current = table.querySelector("td.bad") || table.querySelector("td[data-case]");
    current.tabIndex = 0;

    table.addEventListener("pointerover", (event) => {
      const cell = event.target.closest("td[data-case]");
      if (cell) show(cell);
      else hide();
    });
    table.addEventListener("pointerleave", hide);
    table.addEventListener("focusin", (event) => {
      const cell = event.target.closest("td");
      if (!cell) return;
      current.tabIndex = -1;
      current = cell;
      current.tabIndex = 0;
      show(cell);
    });
    table.addEventListener("focusout", hide);
    table.addEventListener("click", (event) => {
      const cell = event.target.closest("td.bad");
      if (cell) open(cell);
    });
    table.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
      if ((event.key === "Enter" || event.key === " ") && current.classList.contains("bad")) {
        event.preventDefault();
        open(current);
      } else if (event.key in moves) {
        event.preventDefault();
        move(...moves[event.key]);
      }
    });

    function move(down, right) {
      let row = rows.findIndex((cells) => cells.includes(current));
      let column = rows[row].indexOf(current);
      do {
        row += down;
        column += right;
      } while (rows[row]?.[column] && !("case" in rows[row][column].dataset));
      rows[row]?.[column]?.focus();
    }

    function show(cell) {
      const text = describe(cell);
      cell.setAttribute("aria-label", text);
      tip.textContent = reading.textContent = text;
      tip.style.display = text ? "block" : "none";
      const box = cell.getBoundingClientRect();
      const left = Math.min(box.left, document.documentElement.clientWidth - tip.offsetWidth - 8);
      tip.style.left = `${Math.max(8, left)}px`;
      const above = box.top - tip.offsetHeight - 6;
      tip.style.top = `${above > 0 ? above : box.bottom + 6}px`;
    }

    function hide() {
      tip.style.display = "none";
    }
  }

  function look(cell) {
    const backend = data.backends[cell.closest("tbody").dataset.backend];
    const name = data.cases[cell.dataset.case];
    return { backend, name, error: backend.errors[cell.dataset.case] };
  }

  function describe(cell) {
    if (!("case" in cell.dataset)) return "";
    const { backend, name, error } = look(cell);
    const failed = cell.classList.contains("bad") ? " · failed, open for more" : "";
    return `${backend.name} · ${name} · ${measured(error, backend.limit)}${failed}`;
  }

  function measured(error, limit) {
    if (typeof error === "string") return error;
    if (error === null) return "no comparable answer";
    if (limit === null) return `error ${error.toExponential(1)}, no limit`;
    const share = error / limit;
    const used = share <= 10 ? `${Math.round(100 * share)} %` : `${Number(share.toPrecision(2)).toLocaleString("en")} times`;
    return `error ${error.toExponential(1)}, ${used} of the limit`;
  }

  function open(cell) {
    const { backend, name } = look(cell);
    document.getElementById("detail-title").textContent = `${backend.name} on ${name}`;
    document.getElementById("detail-reason").textContent = backend.reasons[name];
    const example = document.getElementById("detail-example");
    example.replaceChildren();
    if (backend.example) {
      const heading = document.createElement("h3");
      heading.textContent = "The smallest input that fails here";
      const story = document.getElementById(backend.example).cloneNode(true);
      story.removeAttribute("id");
      example.append(heading, story);
    }
    const { text, backend: backendPlace, case: casePlace } = data.rebuild;
    document.getElementById("detail-rebuild").firstElementChild.textContent = text
      .replace(casePlace, () => JSON.stringify(name))
      .replace(backendPlace, () => JSON.stringify(backend.name));
    detail.showModal();
  }
})();
