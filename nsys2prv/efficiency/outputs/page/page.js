"use strict";
/* Draws the figures and tables of the page from the JSON in it. Texts of a run come in as text nodes only, never as HTML. */
(() => {
  const island = JSON.parse(document.getElementById("data").textContent);
  const ROWS = 15, MORE = 200, LONGEST = 80;
  const COLOURS = [[0x2f, 0x74, 0xd0], [0xe8, 0x83, 0x0c], [0x12, 0xa3, 0x7f]];
  const NAMES = ["kernels", "NCCL", "copies and memsets"];
  const LEAST_VISIBLE = 0.25;

  const made = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };

  /* -- values as text ------------------------------------------------------ */

  const scaled = (value, units, smallest) => {
    for (const [factor, name] of units) if (Math.abs(value) >= factor) return `${(value / factor).toFixed(3)} ${name}`;
    return `${Math.round(value)} ${smallest}`;
  };
  const grouped = (value) => value.toLocaleString("en");
  const forms = {
    "text": String,
    "count": grouped,
    "number": (value) => Number.isInteger(value) ? grouped(value) : String(Number(value.toPrecision(4))),
    "0 to 1": (value) => `${(value * 100).toFixed(1)} %`,
    "ns": (value) => scaled(value, [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]], "ns"),
    "bytes": (value) => scaled(value, [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]], "B"),
    "bytes/s": (value) => scaled(value, [[1e12, "TB/s"], [1e9, "GB/s"], [1e6, "MB/s"], [1e3, "kB/s"]], "B/s"),
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
      this.columns = packed.columns;
      this.count = this.columns[0].values.length;
      this.all = Array.from({length: this.count}, (_, row) => row);
      this.order = this.all;
      this.shown = ROWS;
      this.sorted = null;
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
      bar.append(this.more, this.fewer, this.status);
      return bar;
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
        const button = made("button", {type: "button", title: column.meaning}, column.heading);
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

    body() {
      const texts = this.columns.filter((column) => column.form === "text");
      const found = this.filter === "" ? this.order
        : this.order.filter((row) => texts.some((column) => (this.value(column, row) ?? "").toLowerCase().includes(this.filter)));
      const columns = this.visible();
      const rows = found.slice(0, this.shown).map((row) => made("tr", {}, ...columns.map((column) => {
        const value = this.value(column, row);
        if (value === null) return made("td", {class: column.form === "text" ? "text none" : "none"}, "-");
        return column.form === "text" ? textCell(value) : made("td", {}, forms[column.form](value));
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

  for (const place of document.querySelectorAll("[data-table]")) new Table(place, island.tables[place.dataset.table]);

  /* -- heat maps ----------------------------------------------------------- */

  const bytes = (packed) => Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));

  class HeatMap {
    constructor(map, figure) {
      this.map = map;
      this.figure = figure;
      this.percent = bytes(map.percent);
      this.rows = map.rows.length;
      this.bins = map.edges_ns.length - 1;
      this.at = null;
      this.drawn = document.getElementById(map.figure);
      const place = this.drawn.closest(".mapped");
      this.output = place.querySelector("output");
      this.scale = figure.tags[0].scale;
      const all = [...figure.references()];
      this.pixels = all.find((one) => one.name === "pixels");
      this.cursor = all.find((one) => one.name === "cursor");
      this.whole = {x: [figure.x_range.start, figure.x_range.end], y: [figure.y_range.start, figure.y_range.end]};
      this.fill();
      figure.on_event("mousemove", (event) => this.point(event.x, event.y));
      this.drawn.addEventListener("keydown", (event) => this.key(event));
      this.drawn.addEventListener("focus", () => { if (this.at === null) this.go(0, 0); });
      for (const button of place.querySelectorAll("[data-zoom]"))
        button.addEventListener("click", () => this.zoom(Number(button.dataset.zoom)));
      const groups = place.querySelector("[data-groups]");
      if (groups) groups.addEventListener("change", () => this.group(groups.value));
    }

    fill() {
      const image = new Uint32Array(this.rows * this.bins);
      for (let cell = 0; cell < image.length; cell++) {
        const parts = [0, 1, 2].map((kind) => this.percent[3 * cell + kind]);
        const busy = parts[0] + parts[1] + parts[2];
        if (busy === 0) continue;
        const mixed = [0, 1, 2].map((channel) =>
          Math.round(parts.reduce((sum, part, kind) => sum + part * COLOURS[kind][channel], 0) / busy));
        const alpha = Math.round(255 * (LEAST_VISIBLE + (1 - LEAST_VISIBLE) * Math.min(busy, 100) / 100));
        image[cell] = ((alpha << 24) | (mixed[2] << 16) | (mixed[1] << 8) | mixed[0]) >>> 0;
      }
      const {data} = this.pixels;
      // BokehJS needs an array with a shape: of the same class as the present one.
      const pixels = new data.image[0].constructor(image, [this.rows, this.bins]);
      this.pixels.data = {...data, image: [pixels]};
    }

    point(x, y) {
      const time = x * this.scale, edges = this.map.edges_ns;
      let bin = 0;
      while (bin < this.bins - 1 && edges[bin + 1] <= time) bin++;
      const row = Math.round(y);
      if (row < 0 || row >= this.rows || time < edges[0] || time > edges[this.bins]) return;
      this.describe(row, bin);
    }

    describe(row, bin) {
      const edges = this.map.edges_ns, cell = 3 * (row * this.bins + bin);
      const shares = NAMES.map((name, kind) => `${name} ${this.percent[cell + kind]} %`);
      const idle = Math.max(0, 100 - this.percent[cell] - this.percent[cell + 1] - this.percent[cell + 2]);
      const when = `${forms.ns(edges[bin])} to ${forms.ns(edges[bin + 1])}`;
      this.output.replaceChildren(made("bdi", {}, this.map.rows[row]), `, ${when}: ${shares.join(", ")}, idle ${idle} %`);
    }

    go(row, bin) {
      this.at = [Math.min(Math.max(row, 0), this.rows - 1), Math.min(Math.max(bin, 0), this.bins - 1)];
      [row, bin] = this.at;
      const edges = this.map.edges_ns;
      this.cursor.data = {
        left: [edges[bin] / this.scale], right: [edges[bin + 1] / this.scale], top: [row - 0.5], bottom: [row + 0.5],
      };
      this.see(this.figure.x_range, edges[bin] / this.scale, edges[bin + 1] / this.scale);
      this.see(this.figure.y_range, row - 0.5, row + 0.5);
      this.describe(row, bin);
    }

    /* Moves what is shown until it holds a cell. */
    see(range, first, last) {
      const low = Math.min(range.start, range.end), high = Math.max(range.start, range.end);
      const by = first < low ? first - low : last > high ? last - high : 0;
      if (by !== 0) range.setv({start: range.start + by, end: range.end + by});
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
      const {x_range, y_range} = this.figure;
      if (factor === 0) {
        [[x_range, this.whole.x], [y_range, this.whole.y]].forEach(([range, [start, end]]) => range.setv({start, end}));
        return;
      }
      const edges = this.map.edges_ns;
      const centre = this.at === null ? [(x_range.start + x_range.end) / 2, (y_range.start + y_range.end) / 2]
        : [(edges[this.at[1]] + edges[this.at[1] + 1]) / 2 / this.scale, this.at[0]];
      this.around(x_range, centre[0], factor, this.whole.x);
      this.around(y_range, centre[1], factor, this.whole.y);
    }

    around(range, centre, factor, [first, last]) {
      const [low, high] = [Math.min(first, last), Math.max(first, last)];
      const length = Math.min(Math.abs(range.end - range.start) / factor, high - low);
      const start = Math.min(Math.max(centre - length / 2, low), high - length);
      range.setv(first < last ? {start, end: start + length} : {start: start + length, end: start});
    }

    group(value) {
      const [start, end] = this.whole.y;
      if (value === "") {
        this.figure.y_range.setv({start, end});
        return;
      }
      const first = Number(value);
      const next = this.map.groups.map(([place]) => place).find((place) => place > first) ?? this.rows;
      this.figure.y_range.setv({start: next - 0.5, end: first - 0.5});
      this.go(first, this.at === null ? 0 : this.at[1]);
    }
  }

  /* -- figures, in the colours of the scheme -------------------------------- */

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  const paint = (figures, colours) => {
    const {text, faint, line} = colours;
    for (const figure of figures) {
      for (const model of figure.references()) {
        if (/Axis$/.test(model.type)) {
          model.setv({
            axis_line_color: line, major_tick_line_color: line, minor_tick_line_color: null,
            major_label_text_color: text, axis_label_text_color: faint, axis_label_text_font_style: "normal",
          });
        } else if (model.type === "Grid") {
          model.setv({grid_line_color: model.grid_line_color === null ? null : line, grid_line_alpha: 0.6});
        } else if (model.type === "GlyphRenderer" && model.data_source.name === "cursor") {
          model.glyph.setv({line_color: {value: text}});
        }
      }
    }
  };

  const ofScheme = () => ({text: colour("text"), faint: colour("faint"), line: colour("line")});
  const ON_PAPER = {text: "#000000", faint: "#3c434e", line: "#c5cad3"};

  const draw = async () => {
    const {document: content, places} = island.figures;
    if (Object.keys(places).length === 0) return;
    const views = (await Bokeh.embed.embed_items(
      {page: content}, [{docid: "page", roots: places, root_ids: Object.keys(places)}]
    ))[0];
    // Bokeh adds roots too.
    const roots = [...views.roots].filter((view) => view.model.id in places);
    const figures = roots.map((view) => view.model);
    const byPlace = Object.fromEntries(figures.map((figure) => [places[figure.id], figure]));
    for (const map of island.maps) new HeatMap(map, byPlace[map.figure]);
    const repaint = () => paint(figures, ofScheme());
    repaint();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
    document.addEventListener("scheme", repaint);

    // A canvas can't adapt to the width of the paper: each figure is printed as an SVG of about that width.
    const asPicture = (view) => {
      view.after_resize();
      const place = document.getElementById(places[view.model.id]);
      const {canvas} = view.export("svg", false);
      const {width, height} = view.bbox;
      canvas.setAttribute("viewBox", `0 0 ${width} ${height}`);
      canvas.removeAttribute("width");
      canvas.removeAttribute("height");
      const picture = made("div", {class: "printed"}, canvas);
      place.after(picture);
      return picture;
    };
    let pictures = [];
    const prepare = () => {
      if (pictures.length) return;
      document.documentElement.classList.add("printing");
      paint(figures, ON_PAPER);
      pictures = roots.map(asPicture);
    };
    const restore = () => {
      for (const picture of pictures) picture.remove();
      pictures = [];
      document.documentElement.classList.remove("printing");
      repaint();
    };
    addEventListener("beforeprint", prepare);
    addEventListener("afterprint", restore);
    document.documentElement.dataset.drawn = "yes";
  };

  /* -- the switch ---------------------------------------------------------- */

  const switched = document.getElementById("scheme");
  const remembered = (() => { try { return localStorage.getItem("nsys2prv-scheme") ?? ""; } catch { return ""; } })();
  const choose = (scheme) => {
    if (scheme) document.documentElement.dataset.scheme = scheme;
    else delete document.documentElement.dataset.scheme;
    try { localStorage.setItem("nsys2prv-scheme", scheme); } catch { /* a file may have no memory */ }
    document.dispatchEvent(new Event("scheme"));
  };
  switched.value = remembered;
  if (remembered) choose(remembered);
  switched.addEventListener("change", () => choose(switched.value));

  draw();
})();
