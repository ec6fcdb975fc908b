"use strict";
// The table is whole without this: it makes its columns sortable, and a row as good as the words below it.
for (const table of document.querySelectorAll("table.trials")) {
  const heads = [...table.tHead.rows[0].cells];
  const text = (body, column) => body.rows[0].cells[column].textContent.trim();
  // "2,232 / 6,081" is as slow as its slowest job; an asterisk marks a run that was stopped early; a dash is
  // no figure, and stands last either way.
  const figure = (body, column) => Math.min(...text(body, column).split("/").map(
    (part) => { const value = parseFloat(part.replace(/[^0-9.]/g, "")); return Number.isNaN(value) ? Infinity : value; }));
  const sort = (column) => {
    const ascending = heads[column].getAttribute("aria-sort") !== "ascending";
    const figures = heads[column].classList.contains("figures");
    const sign = ascending ? 1 : -1;
    const compare = figures
      ? (a, b) => {
        const [x, y] = [figure(a, column), figure(b, column)];
        if (x === y) return 0;
        return x === Infinity || y === Infinity ? (x === Infinity ? 1 : -1) : sign * (x - y);
      }
      : (a, b) => sign * text(a, column).localeCompare(text(b, column));
    const bodies = [...table.tBodies].sort(compare);
    table.append(...bodies);
    heads.forEach((head, index) => head.setAttribute("aria-sort", index !== column ? "none" : ascending ? "ascending" : "descending"));
  };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sort(column));
    head.replaceChildren(button);
    head.setAttribute("aria-sort", "none");
  });
  table.classList.add("clickable");
  table.addEventListener("click", (event) => {
    const row = event.target.closest("tr.trial");
    const details = row && row.parentElement.querySelector("details");
    if (details && !String(getSelection())) details.open = !details.open;
  });
}
