"use strict";
{
  const box = document.getElementById("search");
  const found = document.getElementById("found");
  // The command names the trace, which is no word to find a view by.
  const textOf = (row) => row.textContent.replace(row.querySelector(".command").textContent, "");
  const sections = [...document.querySelectorAll("section")].map((section) => ({
    section,
    rows: [...section.querySelectorAll("tbody tr")].map((row) => ({
      row,
      text: `${section.querySelector("h2").textContent} ${textOf(row)}`.toLowerCase(),
    })),
  }));

  // A view is shown when it has all words.
  const filter = () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const { section, rows } of sections) {
      let here = 0;
      for (const { row, text } of rows) {
        row.hidden = !words.every((word) => text.includes(word));
        here += row.hidden ? 0 : 1;
      }
      section.hidden = here === 0;
      shown += here;
    }
    found.textContent = words.length ? `${shown} ${shown === 1 ? "view" : "views"}` : "";
  };

  box.parentElement.hidden = false;
  box.addEventListener("input", filter);
  // Browsers keep the text of a page that is loaded again.
  filter();
}
