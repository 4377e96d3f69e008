// The patching explorer. It draws what the kernel says and sends what the reader does; it computes
// nothing. All text goes through textContent or attributes, so no token can become markup.

const QUIET = 120; // ms without a click before slower work is asked for

function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (value !== undefined && value !== null && value !== false)
      node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) node.append(child instanceof Node ? child : String(child ?? ""));
  return node;
}

const signed = (x) => (x === null ? "–" : `${x < 0 ? "−" : "+"}${plain(Math.abs(x))}`);
const plain = (x) =>
  x === null ? "–" : (x < 0 ? "−" : "") + (Math.abs(x) >= 1e-3 || x === 0 ? Math.abs(x).toFixed(3) : Math.abs(x).toExponential(1));
const percent = (p) => (p >= 0.001 ? `${(100 * p).toFixed(1)} %` : "< 0.1 %");
const NAMES = {
  logit_diff: "logit difference", answer_prob: "answer probability", kl: "KL divergence",
  denoise: "denoise: clean into corrupted", noise: "noise: corrupted into clean",
};
const named = (value) => NAMES[value] ?? value;

class View {
  constructor(model, el) {
    this.model = model;
    this.name = Math.random().toString(36).slice(2, 8);
    this.count = 0;
    this.pending = new Set();
    this.asking = null;
    this.timer = null;
    this.left = false;
    this.cells = new Map();
    this.focus = [0, 0];
    this.frame = null;
    this.build(el);
    this.receive = (reply) => this.take(reply);
    model.on("msg:custom", this.receive);
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.recolour = () => this.theme();
    this.dark.addEventListener("change", this.recolour);
    this.theme();
    this.act("start");
  }

  close() {
    this.model.off("msg:custom", this.receive);
    this.dark.removeEventListener("change", this.recolour);
    clearTimeout(this.timer);
  }

  // ---- messages -------------------------------------------------------------------------------

  send(type, fields = {}) {
    const id = `${this.name}-${this.count++}`;
    this.model.send({ type, id, ...fields });
    return id;
  }

  act(type, fields = {}) {
    clearTimeout(this.timer);
    this.timer = null;
    this.pending.add(this.send(type, fields));
    this.root.setAttribute("aria-busy", "true");
  }

  take(reply) {
    if (!reply || typeof reply !== "object") return;
    if (this.pending.delete(reply.re)) this.say("");
    if (reply.re === this.asking) this.asking = null;
    this.left = Boolean(reply.more);
    if (!this.frame && !["screen", "error"].includes(reply.kind)) return;
    const draw = {
      screen: () => this.screen(reply), picked: () => this.picked(reply.picked),
      map: () => this.colour(reply), attention: () => this.attention(reply),
      text: () => this.continuation(reply), code: () => this.code(reply.code),
      error: () => this.say(reply.text),
    }[reply.kind];
    if (draw) draw();
    if ("undo" in reply) this.undo.disabled = !reply.undo;
    this.root.setAttribute("aria-busy", String(this.pending.size > 0));
    this.root.dataset.idle = String(!this.left && this.pending.size === 0);
    this.more(reply.kind === "picked" ? QUIET : 0);
  }

  more(delay) {
    if (!this.left || this.asking !== null || this.timer !== null || this.pending.size) return;
    this.timer = setTimeout(() => {
      this.timer = null;
      this.asking = this.send("more");
    }, delay);
  }

  say(text) {
    this.error.textContent = text;
    this.error.hidden = !text;
  }

  // ---- the page -------------------------------------------------------------------------------

  build(el) {
    this.choices = {};
    const choice = (name, words) => {
      const list = h("select", { onchange: () => {
        const value = name === "example" ? Number(list.value) : list.value;
        this.act("show", { [name]: value });
      } });
      this.choices[name] = list;
      return h("label", { class: `choose-${name}` }, h("span", {}, words), list);
    };
    this.undo = h("button", { type: "button", class: "undo", title: "u", onclick: () => this.act("undo") }, "Undo");
    this.undo.disabled = true;
    const button = (name, words, title, act) =>
      h("button", { type: "button", class: name, title, onclick: act }, words);
    const bar = h("div", { class: "bar" },
      choice("example", "Pair"), choice("site", "Site"), choice("metric", "Metric"), choice("direction", "Direction"),
      h("span", { class: "buttons" }, this.undo,
        button("reset", "Reset", "r", () => this.act("reset")),
        button("to-code", "Copy as code", "The Python for what is on the screen", () => this.act("code")),
        button("to-png", "Save PNG", "The map as a picture", () => this.png())));
    this.error = h("div", { class: "error", role: "alert", hidden: true });
    this.listing = h("div", { class: "code", hidden: true });
    this.caption = h("p", { class: "caption" });
    this.legend = h("p", { class: "legend" });
    this.table = h("table", { role: "grid", class: "map", onkeydown: (event) => this.key(event),
      onclick: (event) => this.click(event), onfocusin: (event) => this.focused(event) });
    const map = h("section", { class: "left", "aria-label": "Map" }, this.caption,
      h("div", { class: "scroll", tabindex: "-1" }, this.table), this.legend);
    this.side = h("section", { class: "right", "aria-label": "What the change does", "aria-live": "polite", "aria-atomic": "false" });
    this.root = h("div", { class: "tlkit-explorer", "data-lm-suppress-shortcuts": "true",
      onkeydown: (event) => this.shortcut(event) },
      bar, this.editor(), this.error, this.listing, h("div", { class: "main" }, map,
        h("div", { class: "right-column" }, this.side, this.tools())));
    el.append(this.root);
    this.rest();
  }

  editor() {
    this.texts = {};
    const field = (name, words, rows) => {
      const area = h("textarea", { rows, spellcheck: "false", class: `text-${name}`, onkeydown: (event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) apply();
      } });
      this.texts[name] = area;
      return h("label", {}, h("span", {}, words), area);
    };
    const apply = () => this.act("edit", Object.fromEntries(
      Object.entries(this.texts).map(([name, area]) => [name, area.value])));
    return h("details", { class: "prompts" }, h("summary", {}, "Prompts"),
      h("div", { class: "fields" }, field("clean", "Clean", 2), field("corrupted", "Corrupted", 2),
        field("answer", "Answer", 1), field("wrong_answer", "Wrong answer", 1)),
      h("button", { type: "button", class: "apply", onclick: apply }, "Apply"));
  }

  tools() {
    const list = (name) => (this.tool[name] = h("select", { class: name }));
    const wrap = (words, node) => h("label", {}, h("span", {}, words), node);
    this.tool = {};
    const maybe = (node) => (node.value === "" ? null : Number(node.value));
    const cut = () => this.act("cut", {
      query: Number(this.tool.query.value), key: Number(this.tool.key.value),
      layer: maybe(this.tool["cut-layer"]), head: maybe(this.tool["cut-head"]) });
    const ablate = () => this.act("ablate", {
      layer: Number(this.tool["off-layer"].value), head: Number(this.tool["off-head"].value) });
    return h("section", { class: "tools", "aria-label": "Other changes" },
      h("fieldset", { class: "cut" }, h("legend", {}, "Cut an attention edge"),
        wrap("from", list("query")), wrap("to", list("key")), wrap("layer", list("cut-layer")),
        wrap("head", list("cut-head")), h("button", { type: "button", onclick: cut }, "Cut")),
      h("fieldset", { class: "ablate" }, h("legend", {}, "Ablate a head"),
        wrap("layer", list("off-layer")), wrap("head", list("off-head")),
        h("button", { type: "button", onclick: ablate }, "Ablate")));
  }

  // ---- the map --------------------------------------------------------------------------------

  screen(reply) {
    const frame = (this.frame = reply.frame);
    for (const [name, options] of Object.entries(frame.choices)) {
      this.options(this.choices[name], options.map((value, i) =>
        name === "example" ? [i, `${i + 1}: ${value}`] : [value, named(value)]), frame.chosen[name]);
    }
    for (const [name, text] of Object.entries(frame.texts)) this.texts[name].value = text;
    const tokens = frame.tokens.base.map((token, i) => [i, `${i}: ${token}`]);
    const layers = [...Array(frame.layers).keys()].map((i) => [i, i]);
    const heads = [...Array(frame.heads).keys()].map((i) => [i, i]);
    this.options(this.tool.query, tokens, tokens.length - 1);
    this.options(this.tool.key, tokens, 0);
    this.options(this.tool["cut-layer"], [["", "all"], ...layers], "");
    this.options(this.tool["cut-head"], [["", "all"], ...heads], "");
    this.options(this.tool["off-layer"], layers, 0);
    this.options(this.tool["off-head"], heads, 0);
    this.listing.hidden = true;
    this.draw();
    this.theme();
    this.picked(reply.picked);
  }

  options(list, pairs, chosen) {
    list.replaceChildren(...pairs.map(([value, words]) => h("option", { value }, words)));
    list.value = String(chosen);
  }

  draw() {
    const { layers, columns, axis, tokens, sides, chosen, unit } = this.frame;
    const held = this.table.contains(this.table.getRootNode().activeElement);
    this.cells.clear();
    this.values = new Map();
    this.scale = 0;
    const head = (name, words) => h("tr", { class: name }, h("th", { scope: "row", class: "corner" }, name),
      ...words.map((word, i) => {
        const differs = axis === "pos" && tokens.differs[i];
        const th = h("th", { scope: "col", class: differs ? "token differs" : "token",
          title: differs ? `${word} (differs)` : word }, h("span", {}, word));
        if (differs) th.setAttribute("aria-label", `${word}, differs`);
        return th;
      }));
    const top = axis === "pos" ? [head(sides.source, tokens.source), head(sides.base, tokens.base)]
      : [head(axis === "head" ? "head" : "kv head", [...Array(columns).keys()].map(String))];
    const rows = [];
    for (let layer = layers - 1; layer >= 0; layer--) {
      const row = h("tr", {}, h("th", { scope: "row", class: "layer" }, layer));
      for (let at = 0; at < columns; at++) {
        const cell = h("td", { role: "gridcell", tabindex: "-1", class: "cell waiting",
          "data-layer": layer, "data-at": at, "aria-label": this.place(layer, at) });
        this.cells.set(`${layer},${at}`, cell);
        row.append(cell);
      }
      rows.push(row);
    }
    this.table.replaceChildren(h("thead", {}, ...top), h("tbody", {}, ...rows));
    this.caption.textContent = `Effect of patching ${chosen.site} on the ${named(chosen.metric)} (${unit}): `
      + `${sides.source} activations into the ${sides.base} run. Layer against ${axis === "pos" ? "token" : axis.replace("_", " ")}.`;
    this.focus = [Math.min(this.focus[0], layers - 1), Math.min(this.focus[1], columns - 1)];
    const first = this.cells.get(this.focus.join(","));
    first.tabIndex = 0;
    if (held) first.focus();
    this.scaled();
  }

  place(layer, at) {
    const { axis, tokens } = this.frame;
    return axis === "pos" ? `layer ${layer}, position ${at} ${tokens.base[at]}` : `layer ${layer}, ${axis.replace("_", " ")} ${at}`;
  }

  colour({ cells, exact }) {
    for (const [layer, at, value] of cells) this.values.set(`${layer},${at}`, { value, exact });
    let largest = 0;
    for (const { value } of this.values.values()) largest = Math.max(largest, Math.abs(value ?? 0));
    const all = largest !== this.scale;
    this.scale = largest;
    for (const key of all ? this.values.keys() : cells.map(([layer, at]) => `${layer},${at}`)) this.paint(key);
    this.scaled();
  }

  paint(key) {
    const cell = this.cells.get(key), { value, exact } = this.values.get(key);
    if (!cell) return;
    const chosen = cell.classList.contains("chosen") ? " chosen" : "";
    cell.className = `cell${exact ? "" : " estimate"}${value === null ? " missing" : ""}${chosen}`;
    const share = value === null || !this.scale ? 0 : Math.abs(value) / this.scale;
    cell.style.backgroundColor = value === null ? ""
      : `color-mix(in srgb, var(--${value < 0 ? "negative" : "positive"}) ${(100 * share).toFixed(1)}%, var(--zero))`;
    const [layer, at] = key.split(",").map(Number);
    const words = `${this.place(layer, at)}: ${value === null ? "no such place" : `${signed(value)} ${this.frame.unit}`}${exact ? "" : ", estimate"}`;
    cell.setAttribute("aria-label", words);
    cell.title = words;
    cell.dataset.value = value ?? "";
    cell.dataset.exact = exact;
  }

  scaled() {
    const known = [...this.values.values()], exact = known.filter((one) => one.exact).length;
    const state = exact === this.cells.size ? "every cell exact"
      : `${exact} of ${this.cells.size} cells exact${known.length > exact ? "; hatched: estimates from gradients" : ""}`;
    this.legend.replaceChildren(h("span", { class: "key-low" }, `−${plain(this.scale)}`),
      h("span", { class: "ramp", "aria-hidden": "true" }), h("span", { class: "key-high" }, `+${plain(this.scale)} ${this.frame.unit}`),
      h("span", { class: "state" }, state));
    this.root.dataset.exact = `${exact}/${this.cells.size}`;
  }

  // ---- what the reader does -------------------------------------------------------------------

  click(event) {
    const cell = event.target.closest("td.cell");
    if (!cell) return;
    this.move(Number(cell.dataset.layer), Number(cell.dataset.at));
    this.pick(event.shiftKey);
  }

  pick(add) {
    const [layer, at] = this.focus;
    this.clicked = performance.now();
    this.act("pick", { layer, at, add });
  }

  move(layer, at) {
    const { layers, columns } = this.frame;
    const to = [Math.max(0, Math.min(layers - 1, layer)), Math.max(0, Math.min(columns - 1, at))];
    this.cells.get(this.focus.join(",")).tabIndex = -1;
    this.focus = to;
    const cell = this.cells.get(to.join(","));
    cell.tabIndex = 0;
    cell.focus();
  }

  focused(event) {
    const cell = event.target.closest?.("td.cell");
    if (!cell) return;
    this.cells.get(this.focus.join(",")).tabIndex = -1;
    this.focus = [Number(cell.dataset.layer), Number(cell.dataset.at)];
    cell.tabIndex = 0;
  }

  key(event) {
    if (!this.frame || event.ctrlKey || event.metaKey || event.altKey) return;
    const [layer, at] = this.focus;
    const to = { ArrowUp: [layer + 1, at], ArrowDown: [layer - 1, at], ArrowLeft: [layer, at - 1],
      ArrowRight: [layer, at + 1], Home: [layer, 0], End: [layer, this.frame.columns - 1] }[event.key];
    if (to) this.move(...to);
    else if (event.key === "Enter") this.pick(event.shiftKey);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  shortcut(event) {
    const typing = ["TEXTAREA", "INPUT", "SELECT"].includes(event.target.tagName);
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = { u: "undo", r: "reset" }[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    this.act(act);
  }

  // ---- beside the map -------------------------------------------------------------------------

  rest() {
    this.side.replaceChildren(h("p", { class: "hint" },
      "Click a cell to see what its patch does; shift-click adds one. Keys: arrows, Enter, shift+Enter, u undo, r reset."));
  }

  picked(found) {
    for (const cell of this.cells.values()) cell.classList.remove("chosen");
    if (!found) return this.rest();
    for (const { layer, at } of found.changes)
      if (layer !== null) this.cells.get(`${layer},${at}`)?.classList.add("chosen");
    const unit = this.frame.unit;
    const item = (name, words, value, shown) => h("div", { class: name }, h("dt", {}, words),
      h("dd", { "data-value": value ?? "" }, shown));
    const numbers = h("dl", { class: "numbers" },
      item("before", "before", found.before, plain(found.before)),
      item("after", "after", found.value, plain(found.value)),
      item("effect", `effect (${unit})`, found.effect, signed(found.effect)),
      item("recovered", "recovered", found.recovered, plain(found.recovered)));
    if (found.sum !== null) numbers.append(
      item("sum", "sum of parts", found.sum, signed(found.sum)),
      item("joint", "joint − sum", found.effect - found.sum, signed(found.effect - found.sum)));
    const changes = h("ul", { class: "changes" }, ...found.changes.map(({ label }, i) =>
      h("li", {}, h("span", {}, label), found.changes.length > 1 ? h("span", { class: "own" }, signed(found.effects[i])) : "")));
    this.attended = h("div", { class: "attention" });
    this.said = { before: h("span", {}), after: h("span", {}) };
    const lines = ["before", "after"].map((side) => h("p", { class: `continuation ${side}` },
      h("b", {}, side), this.said[side]));
    this.side.replaceChildren(changes, numbers,
      h("div", { class: "tops" }, this.top("before", found.top.before), this.top("after", found.top.after)),
      this.attended, h("div", { class: "continuations" }, h("h4", {}, "Continuation"), ...lines));
    if (this.clicked !== undefined) {
      this.root.dataset.latency = String(performance.now() - this.clicked);
      this.clicked = undefined;
    }
    this.root.dataset.picks = String(Number(this.root.dataset.picks ?? 0) + 1);
  }

  top(side, rows) {
    return h("table", { class: `top ${side}` }, h("caption", {}, `Next token ${side}`),
      h("tbody", {}, ...rows.map(({ token, p }) => h("tr", {}, h("td", { class: "token" }, token),
        h("td", { class: "bar-cell" }, h("span", { class: "p", style: `width:${(100 * p).toFixed(2)}%` })),
        h("td", { class: "number", "data-value": p }, percent(p))))));
  }

  attention({ layer, query, before, after }) {
    if (!this.attended) return;
    const tokens = this.frame.tokens.base, wide = query + 1, heads = after.length;
    const size = Math.max(3, Math.min(12, Math.floor(220 / wide)));
    const readout = h("p", { class: "readout" }, "Point at a weight to read it; click it to fill in the edge below.");
    const grid = (name, rows) => {
      const canvas = h("canvas", { width: wide * size, height: heads * 10, role: "img",
        "aria-label": `Attention of layer ${layer}, ${name}: ${heads} heads from position ${query} to ${wide} keys` });
      const paint = canvas.getContext("2d");
      const ink = getComputedStyle(this.root).getPropertyValue("--weight").trim();
      rows.forEach((row, head) => row.forEach((weight, key) => {
        paint.globalAlpha = Math.sqrt(weight);
        paint.fillStyle = ink;
        paint.fillRect(key * size, head * 10, size - 1, 9);
      }));
      const spot = (event) => {
        const box = canvas.getBoundingClientRect();
        const key = Math.min(wide - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * wide)));
        const head = Math.min(heads - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * heads)));
        return [head, key];
      };
      canvas.addEventListener("mousemove", (event) => {
        const [head, key] = spot(event);
        readout.textContent = `head ${head} to ${key}: ${tokens[key]}   ${before[head][key].toFixed(3)} → ${after[head][key].toFixed(3)}`;
      });
      canvas.addEventListener("click", (event) => {
        const [head, key] = spot(event);
        this.tool.query.value = query;
        this.tool.key.value = key;
        this.tool["cut-layer"].value = layer;
        this.tool["cut-head"].value = head;
      });
      return h("figure", {}, h("figcaption", {}, name), canvas);
    };
    this.attended.replaceChildren(
      h("h4", {}, `Attention of layer ${layer} from `, h("span", { class: "token" }, `${query}: ${tokens[query]}`), ` (${heads} heads × ${wide} keys)`),
      h("div", { class: "pair" }, grid("before", before), grid("after", after)), readout);
    this.attended.dataset.weights = JSON.stringify(after);
  }

  continuation({ side, text, done }) {
    if (!this.said) return;
    this.said[side].textContent = text;
    this.said[side].dataset.done = done;
  }

  // ---- taking it away -------------------------------------------------------------------------

  code(text) {
    const copy = () => navigator.clipboard?.writeText(text).catch(() => {});
    copy();
    this.listing.hidden = false;
    this.listing.replaceChildren(h("pre", { tabindex: "0" }, text),
      h("button", { type: "button", onclick: copy }, "Copy"),
      h("button", { type: "button", onclick: () => (this.listing.hidden = true) }, "Close"));
  }

  png() {
    const { layers, columns, axis, tokens, sides } = this.frame;
    const cell = 16, left = 40, rows = axis === "pos" ? [tokens.source, tokens.base] : [[...Array(columns).keys()].map(String)];
    const high = axis === "pos" ? 90 : 24, top = 28 + rows.length * high;
    const canvas = h("canvas", { width: left + columns * cell + 12, height: top + layers * cell + 30 });
    const paint = canvas.getContext("2d"), style = getComputedStyle(this.root);
    canvas.width = Math.max(canvas.width, 12 + paint.measureText(this.caption.textContent).width * 1.15);
    paint.fillStyle = style.backgroundColor;
    paint.fillRect(0, 0, canvas.width, canvas.height);
    paint.fillStyle = style.color;
    paint.font = "11px system-ui, sans-serif";
    paint.fillText(this.caption.textContent, 6, 16);
    rows.forEach((row, r) => row.forEach((word, i) => {
      paint.save();
      paint.translate(left + i * cell + 12, 24 + (r + 1) * high);
      if (axis === "pos") paint.rotate(-Math.PI / 2);
      paint.fillStyle = axis === "pos" && tokens.differs[i] ? style.getPropertyValue("--mark") : style.color;
      paint.fillText(word.slice(0, 14), 0, 0);
      paint.restore();
    }));
    for (const [key, td] of this.cells) {
      const [layer, at] = key.split(",").map(Number);
      paint.fillStyle = getComputedStyle(td).backgroundColor;
      paint.fillRect(left + at * cell, top + (layers - 1 - layer) * cell, cell - 1, cell - 1);
    }
    paint.fillStyle = style.color;
    for (let layer = 0; layer < layers; layer += layers > 12 ? 5 : 1)
      paint.fillText(String(layer), 14, top + (layers - 1 - layer) * cell + 12);
    paint.fillText(this.legend.textContent, 6, canvas.height - 10);
    canvas.toBlob((blob) => {
      const link = h("a", { href: URL.createObjectURL(blob), download: `explorer-${this.frame.chosen.site}-${sides.base}.png` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }

  // Notebooks have themes of their own, so what counts is what stands behind the widget.
  theme() {
    let node = this.root.parentNode;
    let dark = this.dark?.matches ?? false;
    let paper = "";
    while (node) {
      if (node instanceof Element) {
        const behind = getComputedStyle(node).backgroundColor;
        const [r, g, b, a = 1] = (behind.match(/[\d.]+/g) ?? []).map(Number);
        if (behind.startsWith("rgb") && a === 1) {
          dark = 0.299 * r + 0.587 * g + 0.114 * b < 128;
          paper = behind;
          break;
        }
      }
      node = node.parentNode ?? node.host;
    }
    this.root.dataset.theme = dark ? "dark" : "light";
    if (paper) this.root.style.setProperty("--paper", paper);
    else this.root.style.removeProperty("--paper");
  }
}

function render({ model, el }) {
  const view = new View(model, el);
  return () => view.close();
}

export default { render };
