"use strict";
// Sliders: show the row at their position. The texts come from an attribute, and are only ever set as text.
for (const box of document.querySelectorAll("[data-rows]")) {
  const rows = JSON.parse(box.dataset.rows), intervals = JSON.parse(box.dataset.intervals);
  const slider = box.querySelector("input");
  const cells = box.querySelectorAll("output"), between = box.querySelectorAll("dd span");
  const show = () => {
    const k = Number(slider.value);
    cells.forEach((cell, j) => { cell.textContent = rows[k][j]; });
    between.forEach((span, j) => { span.textContent = intervals[k][j + 1]; });
    slider.setAttribute("aria-valuetext", rows[k][0]);
  };
  slider.addEventListener("input", show);
  box.hidden = false;
  show();
}
// Sections are folded on a narrow screen only, and open on paper.
const sections = document.querySelectorAll("details.section");
const unfold = () => sections.forEach((section) => { section.open = true; });
if (matchMedia("(min-width: 50rem)").matches) unfold();
addEventListener("beforeprint", unfold);
const reveal = () => {
  const aim = document.getElementById(location.hash.slice(1));
  if (aim && aim.matches("details.section")) { aim.open = true; aim.scrollIntoView(); }
};
addEventListener("hashchange", reveal);
reveal();
