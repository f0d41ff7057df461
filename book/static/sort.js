// A click on a column's title sorts its table: numbers by value (what follows them is ignored), words
// by letter, dashes last; another click turns the order around. Without scripts the table stays as is.
function value(row, column) {
  const text = row.cells[column].textContent.trim();
  const number = parseFloat(text);
  return { text, number, missing: text === "–" || text === "" || text.startsWith("n/a") };
}

function compare(first, second) {
  const numbers = first.number - second.number;
  return Number.isNaN(numbers) ? first.text.localeCompare(second.text) : numbers;
}

function sort(table, title) {
  const descending = title.getAttribute("aria-sort") === "ascending";
  for (const other of title.parentElement.cells) other.setAttribute("aria-sort", "none");
  title.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const keyed = [...table.tBodies[0].rows].map((row) => [value(row, title.cellIndex), row]);
  keyed.sort(([first], [second]) => {
    if (first.missing !== second.missing) return first.missing ? 1 : -1;
    return descending ? compare(second, first) : compare(first, second);
  });
  table.tBodies[0].append(...keyed.map(([, row]) => row));
}

document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll(".ke-table table")) {
    for (const title of table.tHead.rows[0].cells) {
      title.setAttribute("aria-sort", "none");
      title.tabIndex = 0;
      title.addEventListener("click", () => sort(table, title));
      title.addEventListener("keydown", (event) => event.key === "Enter" && sort(table, title));
    }
  }
});
