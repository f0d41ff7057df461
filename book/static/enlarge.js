// A figure fits its page; a tap shows it at its full size in a box that scrolls, another tap fits it again.
document.addEventListener("DOMContentLoaded", () => {
  for (const image of document.querySelectorAll("article img")) {
    image.title = "Tap to enlarge or to fit";
    image.parentElement.closest("p, div").style.overflowX = "auto";
    image.addEventListener("click", (event) => {
      event.preventDefault(); // Sphinx links an image of given width to its file
      image.classList.toggle("enlarged");
    });
  }
});
