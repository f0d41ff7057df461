// A figure fits its page, or scrolls on a telephone; a tap shows it at its full size, another tap fits it again.
// A box that holds more than it shows is marked, so that site.css can tell readers to scroll.
document.addEventListener("DOMContentLoaded", () => {
  const mark = (box) => box.classList.toggle("wide", box.scrollWidth > box.clientWidth + 1);
  const sizes = new ResizeObserver((entries) => entries.forEach((entry) => mark(entry.target)));
  for (const image of document.querySelectorAll("article img")) {
    const box = document.createElement("div");
    box.className = "figure-box";
    const shown = image.closest("a") ?? image.closest("picture") ?? image; // Sphinx links an image of given width to its file
    shown.replaceWith(box);
    box.append(shown);
    image.title = "Tap to enlarge or to fit";
    image.addEventListener("load", () => mark(box));
    image.addEventListener("click", (event) => {
      event.preventDefault();
      image.classList.toggle("enlarged");
      mark(box);
    });
  }
  const boxes = document.querySelectorAll(".figure-box, .ke-table, .table-wrapper, .equation");
  boxes.forEach((box) => sizes.observe(box));
});
