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

// A long notebook shows its first sections and its conclusion; later ones are a click away, the last ones
// first, until the page is short enough.
document.addEventListener("DOMContentLoaded", () => {
  const most = innerWidth < 740 ? 20000 : 11000; // pixels
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const sections = document.querySelectorAll("article:has(.cell) section section:has(> h2)");
  const [, , ...later] = sections;
  for (const section of later.reverse()) {
    if (document.documentElement.scrollHeight <= most) return;
    const title = section.querySelector("h2");
    if (section.offsetHeight < 500 || section.contains(target)) continue;
    if (title.innerText.includes("conclude")) continue;
    const parts = [...section.children]; // an anchor may precede the title
    const folded = document.createElement("details");
    folded.className = "long";
    folded.append(document.createElement("summary"), ...parts.slice(parts.indexOf(title) + 1));
    folded.firstChild.textContent = "Show this section";
    section.append(folded);
  }
});
