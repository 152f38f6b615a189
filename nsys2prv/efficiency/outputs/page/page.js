"use strict";
/* Makes the tables of the page from the JSON in it, and zooms its drawings. Texts of a run come in as text nodes only, never as
   HTML. */
(() => {
  const island = JSON.parse(document.getElementById("data").textContent);
  const ROWS = 15, MORE = 200, LONGEST = 80;
  const NAMES = ["kernels", "NCCL", "copies and memsets"];
  const SIDE = 1000, SVG = "http://www.w3.org/2000/svg";

  const made = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };

  /* -- values as text ------------------------------------------------------ */

  const UNITS = {
    "ns": [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]],
    "bytes": [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]],
    "bytes/s": [[1e12, "TB/s"], [1e9, "GB/s"], [1e6, "MB/s"], [1e3, "kB/s"], [1, "B/s"]],
    "0 to 1": [[0.01, "%"]],
  };
  const grouped = (value) => value.toLocaleString("en");
  const scaled = (value, [factor, name]) => `${(value / factor).toFixed(factor === 1 ? 0 : 3)} ${name}`;
  const inTime = (value) => scaled(value, UNITS.ns.find(([factor]) => Math.abs(value) >= factor) ?? UNITS.ns[3]);
  const plain = (value) => Number.isInteger(value) ? grouped(value) : String(Number(value.toPrecision(4)));
  const fixed = (value, digits) => value.toLocaleString("en", {minimumFractionDigits: digits, maximumFractionDigits: digits});

  /* One unit for a column: the one that fits between its median and its largest value. */
  const unitOf = (column) => {
    const units = UNITS[column.form];
    if (!units) return null;
    const sizes = column.values.filter((value) => value).map(Math.abs).sort((one, other) => one - other);
    const middle = sizes.length ? Math.sqrt(sizes[sizes.length >> 1] * sizes.at(-1)) : 1;
    return units.find(([factor]) => middle >= factor) ?? units[units.length - 1];
  };
  /* Digits behind the point for a column of plain numbers: four in all for its median; none where all are whole. */
  const digitsOf = (column) => {
    const sizes = column.values.filter((value) => value).map(Math.abs).sort((one, other) => one - other);
    if (column.form !== "number" || sizes.every(Number.isInteger)) return null;
    return Math.min(Math.max(3 - Math.floor(Math.log10(sizes[sizes.length >> 1])), 0), 3);
  };
  const withDigits = (value, digits) => digits === null || (value !== 0 && Math.abs(value) < 0.5 / 10 ** digits) ? plain(value) : fixed(value, digits);
  const inUnit = (value, [factor]) => {
    const size = value / factor;
    if (factor === 1) return grouped(Math.round(size));
    if (factor === 0.01) return fixed(size, 1);
    return value !== 0 && Math.abs(size) < 0.0005 ? (size > 0 ? "< 0.001" : "> -0.001") : fixed(size, 3);
  };

  /* -- tables -------------------------------------------------------------- */

  const shortened = (text) => {
    const tail = Math.floor(LONGEST / 3);
    const points = Array.from(text);
    return points.length <= LONGEST ? text : `${points.slice(0, LONGEST - tail - 1).join("")}…${points.slice(-tail).join("")}`;
  };
  const onOneLine = (text) => text.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+/g, "␣");

  const textCell = (text) => {
    const cell = made("td", {class: "text"});
    const short = shortened(onOneLine(text));
    if (short === text) {
      cell.append(made("bdi", {}, text));
      return cell;
    }
    const name = made("bdi", {}, short);
    const button = made("button", {type: "button", class: "cut", "aria-expanded": "false", title: "whole text"}, name);
    button.addEventListener("click", () => {
      const open = button.getAttribute("aria-expanded") !== "true";
      button.setAttribute("aria-expanded", String(open));
      name.textContent = open ? text : short;
    });
    cell.append(button);
    return cell;
  };

  class Table {
    constructor(place, packed) {
      this.name = place.dataset.table;
      this.columns = packed.columns;
      for (const column of this.columns) {
        column.unit = unitOf(column);
        column.digits = digitsOf(column);
        const isSum = column.form === "ns" || column.form === "0 to 1" || column.form === "bytes";
        const isBound = column.name === "from_ns" || column.name === "to_ns";
        column.most = isSum && !isBound && !column.is_moment ? column.values.reduce((most, value) => Math.max(most, value ?? 0), column.form === "0 to 1" ? 1 : 0) : 0;
      }
      this.count = this.columns[0].values.length;
      this.all = Array.from({length: this.count}, (_, row) => row);
      this.order = this.all;
      this.shown = ROWS;
      const by = this.columns.find((column) => column.name === packed.sorted?.[0]);
      this.sorted = by ? {column: by, down: packed.sorted[1]} : null;
      this.wide = this.columns.every((column) => column.main);
      this.filter = "";
      this.title = place.querySelector("h3").textContent;
      this.table = made("table");
      this.grid = made("div", {class: "grid", tabindex: "0", role: "region", "aria-label": this.title}, this.table);
      this.status = made("span", {class: "facts-line", role: "status"});
      place.append(this.controls(), this.grid, this.meanings());
      this.head();
      this.body();
    }

    value(column, row) {
      const value = column.values[row];
      return value === null || column.form !== "text" ? value : column.texts[value];
    }

    controls() {
      const bar = made("div", {class: "tools filters"});
      if (this.count > ROWS && this.columns.some((column) => column.form === "text")) {
        const field = made("input", {type: "search", placeholder: "filter", "aria-label": `rows of ${this.title} that contain this text`});
        let waiting;
        field.addEventListener("input", () => {
          clearTimeout(waiting);
          waiting = setTimeout(() => { this.filter = field.value.trim().toLowerCase(); this.shown = ROWS; this.body(); }, 150);
        });
        bar.append(field);
      }
      if (!this.wide) {
        const all = made("button", {type: "button", "aria-pressed": "false"}, `all ${this.columns.length} columns`);
        all.addEventListener("click", () => {
          this.wide = !this.wide;
          all.setAttribute("aria-pressed", String(this.wide));
          all.textContent = this.wide ? "main columns" : `all ${this.columns.length} columns`;
          this.head();
          this.body();
        });
        bar.append(all);
      }
      this.more = made("button", {type: "button"});
      this.more.addEventListener("click", () => { this.shown = this.shown === ROWS ? MORE : this.shown + MORE; this.body(); });
      this.fewer = made("button", {type: "button"}, "fewer");
      this.fewer.addEventListener("click", () => { this.shown = ROWS; this.body(); });
      const file = made("button", {type: "button", "data-csv": ""}, "CSV");
      file.addEventListener("click", () => this.save());
      bar.append(this.more, this.fewer, file, this.status);
      return bar;
    }

    /* The rows of the page that the filter leaves, in their order, with all columns, in the units of the JSON. */
    csv() {
      const cell = (value) => {
        if (value === null) return "";
        if (typeof value === "number") return String(value);
        const text = onOneLine(value).replace(/^([=+\-@＝＋－＠])/, "'$1");
        return /[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
      };
      const lines = [this.columns.map((column) => column.name), ...this.found().map((row) => this.columns.map((column) => cell(this.value(column, row))))];
      return lines.map((line) => `${line.join(",")}\n`).join("");
    }

    save() {
      const link = made("a", {download: `${this.name}.csv`});
      link.href = URL.createObjectURL(new Blob([this.csv()], {type: "text/csv"}));
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    }

    meanings() {
      const list = made("dl");
      for (const column of this.columns) list.append(made("dt", {}, column.heading), made("dd", {}, column.meaning));
      return made("details", {class: "columns"}, made("summary", {}, "What the columns mean"), list);
    }

    visible() { return this.columns.filter((column) => this.wide || column.main); }

    head() {
      const row = made("tr");
      for (const column of this.visible()) {
        const name = column.unit ? `${column.heading} [${column.unit[1]}]` : column.heading;
        const button = made("button", {type: "button", title: column.meaning}, name);
        const head = made("th", {scope: "col", class: column.form === "text" ? "text" : "", "aria-sort": "none"}, button);
        if (this.sorted?.column === column) head.setAttribute("aria-sort", this.sorted.down ? "descending" : "ascending");
        button.addEventListener("click", () => {
          const again = this.sorted?.column === column;
          this.sorted = {column, down: again ? !this.sorted.down : column.form !== "text"};
          for (const other of row.children) other.setAttribute("aria-sort", "none");
          head.setAttribute("aria-sort", this.sorted.down ? "descending" : "ascending");
          this.sort();
          this.body();
        });
        row.append(head);
      }
      this.table.replaceChildren(made("thead", {}, row), made("tbody"));
    }

    sort() {
      const {column, down} = this.sorted;
      const sign = down ? -1 : 1;
      const isText = column.form === "text";
      this.order = [...this.all].sort((one, other) => {
        const first = this.value(column, one), second = this.value(column, other);
        if (first === null || second === null) return (first === null) - (second === null);
        return sign * (isText ? first.localeCompare(second, "en", {numeric: true}) : first - second);
      });
    }

    /* Rows that the filter leaves, in their order. */
    found() {
      if (this.filter === "") return this.order;
      const texts = this.columns.filter((column) => column.form === "text");
      return this.order.filter((row) => texts.some((column) => (this.value(column, row) ?? "").toLowerCase().includes(this.filter)));
    }

    numberCell(column, value) {
      const cell = made("td", {}, column.unit ? inUnit(value, column.unit) : column.form === "count" ? grouped(value) : withDigits(value, column.digits));
      if (column.most > 0 && this.count > 1) {
        cell.className = "part";
        cell.style.setProperty("--share", `${(100 * Math.max(value, 0) / column.most).toFixed(1)}%`);
      }
      return cell;
    }

    body() {
      const found = this.found();
      const columns = this.visible();
      const rows = found.slice(0, this.shown).map((row) => made("tr", {}, ...columns.map((column) => {
        const value = this.value(column, row);
        if (value === null) return made("td", {class: column.form === "text" ? "text none" : "none"}, "-");
        return column.form === "text" ? textCell(value) : this.numberCell(column, value);
      })));
      this.table.tBodies[0].replaceChildren(...rows);
      this.grid.classList.toggle("tall", rows.length > ROWS);
      const left = found.length - rows.length;
      this.more.hidden = left === 0;
      this.more.textContent = `${grouped(Math.min(left, MORE))} more rows`;
      this.fewer.hidden = this.shown === ROWS || this.count <= ROWS;
      this.status.textContent = this.count <= ROWS ? "" : `${grouped(rows.length)} of ${grouped(found.length)} rows`;
    }
  }

  /* A table is made when it is seen first. */
  const tables = {};
  const make = (place) => {
    const name = place.dataset.table;
    if (place.open && !(name in tables)) tables[name] = new Table(place, island.tables[name]);
  };
  for (const place of document.querySelectorAll("[data-table]")) {
    place.addEventListener("toggle", () => make(place));
    make(place);
  }

  /* -- time: all drawings over time show the same part of it ---------------- */

  const whole = island.time;
  const drawings = [...document.querySelectorAll("svg[data-time]")];
  const ticks = [...document.querySelectorAll(".x-ticks[data-time]")];
  const firstTicks = ticks.map((place) => [...place.children]);
  let seen = whole && {...whole};

  const roundNumbers = (low, high) => {
    const rough = (high - low) / 6, power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 2.5, 5, 10].find((one) => one * power >= rough * 0.999);
    const found = [];
    for (let number = Math.ceil(low / step); number * step <= high; number++) found.push(number * step);
    return [found, step];
  };

  const show = (begin, end) => {
    const length = Math.max(Math.min(end - begin, whole.end - whole.begin), 1);
    begin = Math.min(Math.max(begin, whole.begin), whole.end - length);
    seen = {begin, end: begin + length};
    const perNs = SIDE / (whole.end - whole.begin);
    for (const drawing of drawings) {
      const box = drawing.viewBox.baseVal;
      drawing.setAttribute("viewBox", `${(begin - whole.begin) * perNs} ${box.y} ${length * perNs} ${box.height}`);
    }
    const isWhole = length >= whole.end - whole.begin;
    const unit = UNITS.ns.find(([factor]) => whole.end >= factor) ?? UNITS.ns[3];
    const [places, step] = roundNumbers(begin / unit[0], seen.end / unit[0]);
    const digits = Math.max(0, Math.min(9, -Math.floor(Math.log10(step) + 1e-9) + (/^[15]|^10/.test(step.toPrecision(1)) ? 0 : 1)));
    ticks.forEach((place, number) => place.replaceChildren(...(isWhole ? firstTicks[number] : places.map((at) =>
      made("span", {style: `left:${100 * (at * unit[0] - begin) / length}%`}, fixed(at, digits))))));
  };

  const zoomTime = (factor, centre = (seen.begin + seen.end) / 2) => {
    if (factor === 0) return show(whole.begin, whole.end);
    const length = (seen.end - seen.begin) / factor;
    return show(centre - length / 2, centre + length / 2);
  };

  const timeAt = (drawing, clientX) => {
    const {left, width} = drawing.getBoundingClientRect();
    return seen.begin + Math.min(Math.max((clientX - left) / width, 0), 1) * (seen.end - seen.begin);
  };

  /* Drag over a drawing: that part of the time. */
  for (const drawing of drawings) {
    const box = drawing.parentElement;
    box.addEventListener("pointerdown", (down) => {
      if (down.button !== 0 || down.pointerType === "touch") return;
      const first = timeAt(drawing, down.clientX), {left} = box.getBoundingClientRect();
      const selection = made("div", {class: "selection"});
      const move = (event) => {
        if (Math.abs(event.clientX - down.clientX) > 4 && !selection.isConnected) box.append(selection);
        selection.style.left = `${Math.min(down.clientX, event.clientX) - left}px`;
        selection.style.width = `${Math.abs(event.clientX - down.clientX)}px`;
      };
      const up = (event) => {
        removeEventListener("pointermove", move);
        if (!selection.isConnected) return;
        selection.remove();
        // What is below the pointer must not take the end of a selection for a click.
        addEventListener("click", (click) => { click.stopPropagation(); click.preventDefault(); }, {capture: true, once: true});
        const second = timeAt(drawing, event.clientX);
        show(Math.min(first, second), Math.max(first, second));
      };
      addEventListener("pointermove", move);
      addEventListener("pointerup", up, {once: true});
      down.preventDefault();
    });
  }

  /* -- heat maps ----------------------------------------------------------- */

  class HeatMap {
    constructor(place) {
      this.map = island.maps[place.dataset.map];
      this.percent = Uint8Array.from(atob(this.map.percent), (character) => character.charCodeAt(0));
      this.rows = this.map.rows.length;
      this.bins = this.map.edges_ns.length - 1;
      this.at = null;
      this.drawing = place.querySelector("svg");
      this.names = place.querySelector(".y-ticks");
      this.firstNames = [...this.names.children];
      this.output = place.querySelector("output");
      this.cursor = document.createElementNS(SVG, "rect");
      this.cursor.setAttribute("class", "cursor");
      const focus = place.querySelector(".drawn");
      this.drawing.addEventListener("pointermove", (event) => this.point(event));
      focus.addEventListener("keydown", (event) => this.key(event));
      focus.addEventListener("focus", (event) => { if (this.at === null && event.target === focus) this.go(0, 0); });
      for (const button of place.querySelectorAll("[data-zoom]"))
        button.addEventListener("click", () => this.zoom(Number(button.dataset.zoom)));
      const groups = place.querySelector("[data-groups]");
      if (groups) groups.addEventListener("change", () => this.group(groups.value));
    }

    /* Rows that are shown: the first, and the one after the last. */
    shown() {
      const {y, height} = this.drawing.viewBox.baseVal;
      return [y / SIDE * this.rows, (y + height) / SIDE * this.rows];
    }

    point(event) {
      const {top, height} = this.drawing.getBoundingClientRect();
      const [first, last] = this.shown();
      const row = Math.floor(first + (event.clientY - top) / height * (last - first));
      const time = timeAt(this.drawing, event.clientX), edges = this.map.edges_ns;
      let bin = 0;
      while (bin < this.bins - 1 && edges[bin + 1] <= time) bin++;
      if (row >= 0 && row < this.rows) this.describe(row, bin);
    }

    describe(row, bin) {
      const edges = this.map.edges_ns, cell = 3 * (row * this.bins + bin);
      const shares = NAMES.map((name, kind) => `${name} ${this.percent[cell + kind]} %`);
      const idle = Math.max(0, 100 - this.percent[cell] - this.percent[cell + 1] - this.percent[cell + 2]);
      const when = `${inTime(edges[bin])} to ${inTime(edges[bin + 1])}`;
      this.output.replaceChildren(made("bdi", {}, this.map.rows[row]), `, ${when}: ${shares.join(", ")}, idle ${idle} %`);
    }

    go(row, bin) {
      this.at = [Math.min(Math.max(row, 0), this.rows - 1), Math.min(Math.max(bin, 0), this.bins - 1)];
      [row, bin] = this.at;
      const edges = this.map.edges_ns, perNs = SIDE / (whole.end - whole.begin);
      const place = {
        x: (edges[bin] - whole.begin) * perNs, width: (edges[bin + 1] - edges[bin]) * perNs,
        y: row / this.rows * SIDE, height: SIDE / this.rows,
      };
      for (const [name, value] of Object.entries(place)) this.cursor.setAttribute(name, value);
      this.drawing.append(this.cursor);
      const length = seen.end - seen.begin;
      if (edges[bin] < seen.begin) show(edges[bin], edges[bin] + length);
      if (edges[bin + 1] > seen.end) show(edges[bin + 1] - length, edges[bin + 1]);
      const [first, last] = this.shown();
      if (row < first) this.see(row, row + last - first);
      if (row + 1 > last) this.see(row + 1 - (last - first), row + 1);
      this.describe(row, bin);
    }

    /* Show some of the rows. */
    see(first, last) {
      const count = Math.min(last - first, this.rows);
      first = Math.min(Math.max(first, 0), this.rows - count);
      const {x, width} = this.drawing.viewBox.baseVal;
      this.drawing.setAttribute("viewBox", `${x} ${first / this.rows * SIDE} ${width} ${count / this.rows * SIDE}`);
      if (count >= this.rows) return this.names.replaceChildren(...this.firstNames);
      const most = Math.max(2, Math.min(12, Math.floor(this.names.clientHeight / 16)));
      const every = Math.max(1, Math.ceil(count / most)), names = [];
      for (let row = Math.ceil(first); row < first + count; row += every)
        names.push(made("span", {style: `top:${100 * (row + 0.5 - first) / count}%`}, made("bdi", {}, this.map.rows[row])));
      return this.names.replaceChildren(...names);
    }

    key(event) {
      const [row, bin] = this.at ?? [0, 0];
      const steps = {
        ArrowUp: [row - 1, bin], ArrowDown: [row + 1, bin], ArrowLeft: [row, bin - 1], ArrowRight: [row, bin + 1],
        PageUp: [row - 10, bin], PageDown: [row + 10, bin], Home: [row, 0], End: [row, this.bins - 1],
      };
      const zooms = {"+": 2, "=": 2, "-": 0.5, "0": 0};
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key in steps) this.go(...steps[event.key]);
      else if (event.key in zooms) this.zoom(zooms[event.key]);
      else return;
      event.preventDefault();
    }

    zoom(factor) {
      if (factor === 0) {
        zoomTime(0);
        this.see(0, this.rows);
        return;
      }
      const edges = this.map.edges_ns, [first, last] = this.shown();
      zoomTime(factor, this.at === null ? undefined : (edges[this.at[1]] + edges[this.at[1] + 1]) / 2);
      if (this.rows <= 16) return;
      const centre = this.at === null ? (first + last) / 2 : this.at[0] + 0.5, count = Math.max((last - first) / factor, 1);
      this.see(centre - count / 2, centre + count / 2);
    }

    group(value) {
      if (value === "") {
        this.see(0, this.rows);
        return;
      }
      const first = Number(value);
      const next = this.map.groups.map(([place]) => place).find((place) => place > first) ?? this.rows;
      this.see(first, next);
      this.go(first, this.at === null ? 0 : this.at[1]);
    }
  }

  for (const place of document.querySelectorAll(".mapped")) new HeatMap(place);
  for (const button of document.querySelectorAll("#time [data-zoom]"))
    button.addEventListener("click", () => zoomTime(Number(button.dataset.zoom)));

  /* -- places: a click on a finding's place shows it, and its evidence ------- */

  for (const link of document.querySelectorAll("[data-place]")) {
    link.addEventListener("click", (event) => {
      const number = link.dataset.place, [begin, end] = island.places[number];
      // Half as much again on both sides, and enough to see something.
      const around = Math.max((end - begin) / 2, (whole.end - whole.begin) / 200);
      show(begin - around, end + around);
      const finding = document.getElementById(`finding-${number}`);
      finding.querySelector("details").open = true;
      const target = link.closest("svg") ? finding : document.getElementById("map");
      target.scrollIntoView({block: "nearest"});
      event.preventDefault();
    });
  }

  /* A link into something folded opens it. */
  const unfold = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let place = target; place; place = place.parentElement) if (place.tagName === "DETAILS") place.open = true;
    const inner = target.tagName === "SECTION" ? target.querySelector(":scope > details") : null;
    if (inner && target.querySelectorAll(":scope > details").length === 1) inner.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", unfold);

  /* The section that is read is marked in the navigation. */
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(entry.target.id)?.setAttribute("aria-current", "true");
    }
  }, {rootMargin: "-10% 0px -80% 0px"});
  for (const section of document.querySelectorAll("main > section")) watcher.observe(section);

  /* -- the switch ---------------------------------------------------------- */

  const switched = document.getElementById("scheme");
  const remembered = (() => { try { return localStorage.getItem("nsys2prv-scheme") ?? ""; } catch { return ""; } })();
  const choose = (scheme) => {
    if (scheme) document.documentElement.dataset.scheme = scheme;
    else delete document.documentElement.dataset.scheme;
    try { localStorage.setItem("nsys2prv-scheme", scheme); } catch { /* a file may have no memory */ }
  };
  switched.value = remembered;
  if (remembered) choose(remembered);
  switched.addEventListener("change", () => choose(switched.value));

  if (location.hash) unfold();
  document.documentElement.dataset.drawn = "yes";
})();
