// What tests of the page do in a browser: each function is one test, and returns what it asserts on.

function zooming() {
  const boxes = () => [...document.querySelectorAll("svg[data-time]")].map((one) => one.viewBox.baseVal);
  const seen = () => [...new Set(boxes().map((box) => `${box.x.toFixed(2)} ${box.width.toFixed(2)}`))];
  const ticks = () => document.querySelector(".x-ticks[data-time]").textContent;
  const told = {first: seen(), ticks: [ticks()], count: boxes().length};
  document.querySelector('[data-zoom="2"]').click(); told.zoomed = seen(); told.ticks.push(ticks());
  document.querySelector('[data-zoom="0"]').click(); told.again = seen(); told.ticks.push(ticks());
  const box = document.querySelector("#time .box"), {left, width, top} = box.getBoundingClientRect();
  const at = (share) => ({clientX: left + share * width, clientY: top + 5, button: 0, bubbles: true});
  box.dispatchEvent(new PointerEvent("pointerdown", at(0.25)));
  window.dispatchEvent(new PointerEvent("pointermove", at(0.5)));
  window.dispatchEvent(new PointerEvent("pointerup", at(0.5)));
  told.dragged = seen();
  box.click();
  told.folded = document.querySelector("#finding-1 details").open;
  document.querySelector('#finding-1 a[data-place="1"]').click();
  told.open = document.querySelector("#finding-1 details").open; told.place = seen();
  return told;
}

async function closeups() {
  const told = {reached: [], tips: []};
  for (const link of document.querySelectorAll('a[href^="#closeup-"]')) {
    scrollTo(0, 0);
    // A click where the link is drawn: nothing covers it, and nothing else takes it.
    link.scrollIntoView({block: "center"});
    const {left, top, width, height} = (link.querySelector("path") ?? link).getBoundingClientRect();
    const below = document.elementFromPoint(left + width / 2, top + height / 2);
    const follows = below.closest("a") === link;
    below.dispatchEvent(new MouseEvent("click", {bubbles: true, cancelable: true, view: window}));
    await new Promise((done) => setTimeout(done, 50));
    const target = document.querySelector(link.getAttribute("href")).getBoundingClientRect();
    const seen = target.top >= 0 && target.top < innerHeight;
    told.reached.push([link.getAttribute("href"), location.hash, follows, seen]);
  }
  const closeup = document.querySelector("#closeups svg"), bar = closeup.querySelector("rect[fill^='#']");
  const {left, top, width, height} = bar.getBoundingClientRect();
  bar.scrollIntoView({block: "center"});
  told.before = closeup.getAttribute("viewBox");
  document.querySelector('[data-zoom="2"]').click();
  told.after = closeup.getAttribute("viewBox");
  told.zoomed = document.querySelector("svg[data-time]").getAttribute("viewBox");
  told.tip = bar.querySelector("title").textContent;
  told.size = [width, height];
  return told;
}

function mark() {
  document.querySelector('svg a[data-place="2"]').dispatchEvent(new MouseEvent("click", {bubbles: true, cancelable: true}));
  return [...document.querySelectorAll(".findings details[open]")].map((one) => one.parentElement.id);
}

async function tableAndLink() {
  const place = document.getElementById("table-devices"), told = {before: place.querySelectorAll("td").length};
  place.open = true;
  await new Promise((done) => setTimeout(done, 0));
  told.first = place.querySelector("tbody td").textContent;
  told.bars = place.querySelectorAll("td.part").length;
  told.heads = [...place.querySelectorAll("th")].map((one) => one.textContent);
  const saved = [];
  URL.createObjectURL = (blob) => { saved.push(blob); return "#saved"; };
  place.querySelector("[data-csv]").click();
  told.csv = await saved[0].text();
  // A link into something folded opens it, and nothing else.
  location.hash = "#definition-findings";
  await new Promise((done) => setTimeout(done, 100));
  told.open = [document.querySelector("#definitions details").open, document.querySelector("#run details").open];
  return told;
}

async function digits() {
  const place = document.getElementById("table-sampled_summary");
  place.open = true;
  await new Promise((done) => setTimeout(done, 0));
  const heads = [...place.querySelectorAll("th")].map((one) => one.textContent);
  return [...place.querySelectorAll("tbody tr")].map((row) => row.children[heads.indexOf("weighted")].textContent);
}

async function tables() {
  const place = document.querySelector('[data-table="kernels"]'); place.open = true;
  place.dispatchEvent(new Event("toggle"));
  const cells = () => [...place.querySelectorAll("tbody tr")].map((row) => row.children[2].textContent);
  const heading = [...place.querySelectorAll("th button")].find((button) => button.textContent === "count");
  const told = {};
  heading.click(); told.down = cells(); heading.click(); told.up = cells();
  told.sort = heading.closest("th").getAttribute("aria-sort");
  const columns = () => place.querySelectorAll("th").length;
  told.main = columns(); place.querySelector("[aria-pressed]").click(); told.all = columns();
  const field = place.querySelector("input"); field.value = "NCCLDEV"; field.dispatchEvent(new Event("input"));
  await new Promise((done) => setTimeout(done, 1000));
  told.names = [...place.querySelectorAll("tbody tr")].map((row) => row.children[0].textContent);
  return told;
}

async function mapKeys() {
  await new Promise((done) => setTimeout(done, 8000));
  const map = document.querySelector(".mapped .drawn");
  map.focus();
  const press = (key) => map.dispatchEvent(new KeyboardEvent("keydown", {key, cancelable: true}));
  ["End", "ArrowDown", "ArrowLeft", "+", "-", "0"].forEach(press);
  return document.querySelector(".mapped output").textContent;
}

async function heightsOfTables() {
  for (const place of document.querySelectorAll("details.table")) place.open = true;
  await new Promise((done) => setTimeout(done, 300));
  document.querySelector("#table-changes th button").click();
  return [...document.querySelectorAll("details.table")].map((one) => one.querySelectorAll("tbody tr").length);
}

function search() {
  const shown = {};
  for (const words of ["", "gemm TENSOR", "communication", "<b>", "nothing at all", "OUT.prv"]) {
    const box = document.getElementById("search");
    box.value = words;
    box.dispatchEvent(new Event("input"));
    const rows = [...document.querySelectorAll("tbody tr")].filter((row) => row.checkVisibility());
    shown[words] = [rows.map((row) => row.querySelector("a").getAttribute("href")), document.getElementById("found").textContent];
  }
  return shown;
}
