"use strict";
// The page: one current position, set by the list, slider, timeline, keys or address, and shown in all parts.

const ROW_HEIGHT = 30;
const byId = (id) => document.getElementById(id);

// Replace the content of an element; open details stay open, and the focus stays on the same summary or button.
function keepOpen(holder, replace) {
  const nameOf = (element) => element.textContent;
  const open = new Set([...holder.querySelectorAll("details[open] > summary")].map(nameOf));
  const focus = holder.contains(document.activeElement) ? nameOf(document.activeElement) : null;
  replace();
  for (const summary of holder.querySelectorAll("summary")) summary.parentElement.open = open.has(nameOf(summary));
  if (focus !== null) [...holder.querySelectorAll("summary, button")].find((element) => nameOf(element) === focus)?.focus();
}

class Page {
  // rows: for each row of the list, the position in each run or null, then the difference of two runs.
  constructor(runs, rows) {
    Object.assign(this, { runs, rows, row: 0, query: "", hits: null, range: null, drawing: false, turn: 0, offers: [] });
    this.list = byId("list");
    this.sheet = make("div", { class: "sheet", role: "presentation" });
    this.list.append(this.sheet);
    this.list.addEventListener("scroll", () => this.fillList(), { passive: true });
    new ResizeObserver(() => this.fillList()).observe(this.list);
    this.size();
    const slider = byId("slider");
    slider.addEventListener("input", () => this.go(Number(slider.value)));
    const buttons = { first: () => this.go(0), previous: () => this.go(this.row - 1), next: () => this.go(this.row + 1),
      last: () => this.go(this.rows.length - 1), failure: () => this.find((row) => this.failed(row), 1, "no failure after this step"),
      difference: () => this.find((row) => this.rows[row][2], 1, "no difference after this step") };
    for (const [id, action] of Object.entries(buttons)) byId(id).addEventListener("click", action);
    byId("difference").hidden = runs.length < 2;
    byId("search").addEventListener("submit", (event) => { event.preventDefault(); this.search(); });
    document.addEventListener("keydown", (event) => this.key(event));
    window.addEventListener("hashchange", () => this.follow());
    window.addEventListener("beforeprint", () => this.print());
    this.timeline = new Timeline(byId("chart"), byId("range"), runs[0], (position) => this.go(this.rowOf(position)),
      (range) => { this.range = range; this.fillList(); });
    this.figures();
  }

  // Apply an update of a live run. A cursor at the end stays at the end. The details are redrawn only if the
  // current step changed.
  async update(update) {
    const run = this.runs[0];
    const is_last = this.row === this.rows.length - 1;
    run.apply(update);
    for (let row = this.rows.length; row < run.steps.length; row += 1) this.rows.push([row]);
    this.rows.length = run.steps.length;
    this.size();
    this.timeline.layOut();
    await this.head();
    if (update.svg) this.redraw(update.svg);
    if (is_last ? update.steps.length : update.from <= this.row + 1) this.go(is_last ? this.rows.length - 1 : this.row);
    else this.place();
  }

  size() {
    const height = this.rows.length * ROW_HEIGHT;
    this.sheet.style.height = height + "px";
    this.list.style.maxHeight = Math.max(height, 3 * ROW_HEIGHT) + 2 + "px";
    byId("slider").max = String(this.rows.length - 1);
  }

  // Draw the headers of the runs, the legend, and the tables of states and bytecode.
  async head() {
    const titles = this.runs.length > 1 ? ["A", "B"] : [""];
    const headers = await Promise.all(this.runs.map((run, number) =>
      headerOf(run, (position) => this.go(this.rowOf(position, number)), titles[number] && `${titles[number]}: ${run.about.id}`)));
    keepOpen(byId("header"), () => byId("header").replaceChildren(...headers));
    byId("legend").replaceChildren(...legendOf(this.runs[0]));
    keepOpen(byId("states"), () => byId("states").replaceChildren(statesOf(this.runs[0]), bytecodeOf(this.runs[0])));
  }

  async start() {
    await this.head();
    if (this.runs.length > 1) {
      const first = this.rows.findIndex((row) => row[2]);
      byId("header").append(make("p", { class: "sentence", id: "verdict" }, first < 0 ? "The runs took the same steps with the same results."
        : `The first difference is at row ${first}: ${this.rows[first][2]}.`));
      if (first >= 0 && !location.hash) this.row = first;
    }
    this.follow();
    this.go(this.row, true);
    document.documentElement.dataset.ready = "yes";
  }

  rowOf(position, number = 0) {
    const found = this.rows.findIndex((row) => row[number] === position);
    return Math.max(0, found);
  }

  failed(row) {
    return this.runs.some((run, number) => (run.steps[this.rows[row][number]] || {}).failed);
  }

  find(matches, step, otherwise) {
    for (let row = this.row + step; row >= 0 && row < this.rows.length; row += step) {
      if (matches(row)) { this.go(row); return; }
    }
    this.say(otherwise);
  }

  follow() {
    const [, name, text] = /^#(step|e)=(\d+)$/.exec(location.hash) || [];
    if (name === "step") this.go(Number(text));
    else if (name === "e") {
      const position = this.runs[0].steps.findIndex((step) => step.seq === Number(text));
      if (position >= 0) this.go(this.rowOf(position));
    }
  }

  // Go to a row. It is drawn with the next animation frame, so that fast movements draw only the last row.
  go(row, now) {
    this.row = Math.max(0, Math.min(this.rows.length - 1, row || 0));
    if (this.drawing && !now) return;
    this.drawing = true;
    requestAnimationFrame(() => { this.drawing = false; this.show(); });
  }

  async show() {
    const row = this.row;
    const turn = ++this.turn;
    const top = row * ROW_HEIGHT;
    if (top < this.list.scrollTop || top + ROW_HEIGHT > this.list.scrollTop + this.list.clientHeight) {
      this.list.scrollTop = Math.max(0, top - this.list.clientHeight / 2);
    }
    this.place();
    const position = this.rows[row][0];
    if (position !== null) this.timeline.draw(position);
    this.mark();
    try { history.replaceState(null, "", `#step=${row}`); } catch { /* the browser forbids it for this address */ }
    const shown = await Promise.all(this.runs.map((run, number) => {
      const at = this.rows[row][number];
      return at === null ? make("p", { class: "soft" }, "This run has no such step.")
        : detailsOf(run, at, this.query, (wanted) => this.go(this.rowOf(wanted, number)), (text) => this.copy(text), number ? [] : this.offers);
    }));
    if (turn !== this.turn) return;
    const difference = this.rows[row][2];
    byId("details").replaceChildren(...(difference ? [make("p", { class: "note" }, `Different: ${difference}`)] : []),
      ...(this.rows[row][3] ? [textBlock(this.rows[row][3], this.query, "diff")] : []),
      make("div", { class: "columns" + (shown.length > 1 ? " two" : "") }, ...shown));
    document.documentElement.dataset.shown = String(row);
  }

  // Show the cursor in the slider, the position text and the list.
  place() {
    byId("slider").value = String(this.row);
    byId("slider").setAttribute("aria-valuetext", `step ${this.row}`);
    byId("position").textContent = `${this.row.toLocaleString("en")} of ${(this.rows.length - 1).toLocaleString("en")}`;
    this.fillList();
  }

  // --- list -------------------------------------------------------------------------------------

  fillList() {
    const first = Math.max(0, Math.floor(this.list.scrollTop / ROW_HEIGHT) - 5);
    const last = Math.min(this.rows.length, Math.ceil((this.list.scrollTop + this.list.clientHeight) / ROW_HEIGHT) + 5);
    const rows = [];
    for (let row = first; row < last; row += 1) rows.push(this.listRow(row));
    this.sheet.replaceChildren(...rows);
    this.list.setAttribute("aria-activedescendant", byId(`row-${this.row}`) ? `row-${this.row}` : "");
    if (!byId(`row-${this.row}`)) this.list.removeAttribute("aria-activedescendant");
  }

  listRow(row) {
    const [position, other, difference] = this.rows[row];
    const step = position === null ? this.runs[1].steps[other] : this.runs[0].steps[position];
    const classes = ["row"];
    if (row === this.row) classes.push("current");
    if (step.failed) classes.push("failed");
    if (difference) classes.push("different");
    if (this.hits && this.hits.has(row)) classes.push("hit");
    if (this.range && (position < this.range[0] || position > this.range[1])) classes.push("outside");
    const what = step.kind ? step.subject || step.kind : row === this.rows.length - 1 ? this.runs[0].about.status : "";
    const only = this.runs.length > 1 && (position === null || other === null) ? (position === null ? "only B" : "only A") : "";
    const element = make("div", { class: classes.join(" "), role: "option", id: `row-${row}`, "aria-selected": String(row === this.row),
      "aria-setsize": this.rows.length, "aria-posinset": row + 1, onclick: () => this.go(row) },
      make("span", { class: "number" }, row), make("span", { class: "state" }, step.state || ""),
      make("span", { class: "what" }, only ? `${only} · ${what}` : what),
      step.verdict ? make("span", { class: "verdict " + (step.tone || "") }, step.verdict) : "");
    element.style.top = row * ROW_HEIGHT + "px";
    return element;
  }

  // --- diagram ----------------------------------------------------------------------------------

  figures() {
    this.nodes = [...document.querySelectorAll(".figure")].map((figure, number) => this.nodesOf(figure, number));
    byId("diagram").classList.toggle("empty", !this.nodes.length);
    byId("fit").addEventListener("click", () => {
      const is_whole = byId("figures").classList.toggle("whole");
      byId("fit").setAttribute("aria-pressed", String(is_whole));
      this.mark();
    });
  }

  nodesOf(figure, number) {
    const nodes = [...figure.querySelectorAll("[data-node]")];
    for (const node of nodes) node.addEventListener("click", () => {
      const index = Number(node.dataset.node);
      const run = this.runs[number];
      const rows = this.rows.map((row, at) => [row[number], at]).filter(([position]) => position !== null && run.steps[position].node === index);
      const next = rows.find(([, at]) => at > this.row) || rows[0];
      if (next) this.go(next[1]);
      else this.say("this state was not entered");
    });
    return nodes;
  }

  // Show a new drawing of the diagram of a live run.
  redraw(svg) {
    const figure = document.querySelector(".figure");
    figure.replaceChildren(...new DOMParser().parseFromString(svg, "text/html").body.children);
    this.nodes[0] = this.nodesOf(figure, 0);
    this.mark();
  }

  mark() {
    this.nodes.forEach((nodes, number) => {
      const at = this.rows[this.row][number];
      const step = at === null ? {} : this.runs[number].steps[at];
      for (const node of nodes) {
        const is_here = Number(node.dataset.node) === step.node;
        node.classList.toggle("cursor", is_here);
        if (is_here) this.reveal(node);
      }
    });
  }

  // Scroll a large diagram to the current state.
  reveal(node) {
    const holder = byId("figures");
    const [outer, inner] = [holder.getBoundingClientRect(), node.getBoundingClientRect()];
    if (inner.left < outer.left || inner.right > outer.right) holder.scrollLeft += inner.left + inner.width / 2 - outer.left - outer.width / 2;
    if (inner.top < outer.top || inner.bottom > outer.bottom) holder.scrollTop += inner.top + inner.height / 2 - outer.top - outer.height / 2;
  }

  // --- search, keys -----------------------------------------------------------------------------

  async search() {
    const query = byId("query").value.trim().toLowerCase();
    if (query !== this.query || !this.hits) {
      this.query = query;
      this.hits = query ? new Set() : null;
      if (query) {
        for (const [number, run] of this.runs.entries()) {
          const values = await run.search(query);
          this.rows.forEach((row, at) => {
            const step = row[number] === null ? null : run.steps[row[number]];
            if (step && ([step.args, step.result, step.activity, step.diff, step.details].some((index) => index !== undefined && values.has(index))
              || [step.subject, step.state, step.verdict, ...(step.notes || [])].some((text) => text && text.toLowerCase().includes(query)))) this.hits.add(at);
          });
        }
      }
      byId("found").textContent = query ? `${this.hits.size.toLocaleString("en")} found` : "";
      if (query && this.hits.has(this.row)) { this.go(this.row); return; }
    }
    if (!query) { this.go(this.row); return; }
    const after = [...this.hits].sort((a, b) => a - b);
    const next = after.find((row) => row > this.row);
    if (next === undefined && !after.length) this.go(this.row);
    else this.go(next === undefined ? after[0] : next);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target;
    if (target.matches("input[type=search]")) {
      if (event.key === "Escape") { target.value = ""; this.search(); target.blur(); }
      return;
    }
    const scrolls = target.closest("pre, .wide, #figures") && ["ArrowUp", "ArrowDown", "PageUp", "PageDown", "ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key);
    if (scrolls) return;
    const commands = this.rows[this.row][0] === null ? {} : this.runs[0].steps[this.rows[this.row][0]];
    const id = this.runs[0].about.id;
    const actions = {
      ArrowRight: () => this.go(this.row + 1), ArrowDown: () => this.go(this.row + 1), j: () => this.go(this.row + 1),
      ArrowLeft: () => this.go(this.row - 1), ArrowUp: () => this.go(this.row - 1), k: () => this.go(this.row - 1),
      PageDown: () => this.go(this.row + 10), PageUp: () => this.go(this.row - 10), Home: () => this.go(0), End: () => this.go(this.rows.length - 1),
      n: () => this.find((row) => this.failed(row), 1, "no failure after this step"),
      p: () => this.find((row) => this.failed(row), -1, "no failure before this step"),
      d: () => this.runs.length > 1 && this.find((row) => this.rows[row][2], 1, "no difference after this step"),
      "[": () => { this.rangeFrom = this.rows[this.row][0]; this.say(`the range begins at step ${this.row}; ] ends it`); },
      "]": () => {
        const position = this.rows[this.row][0];
        if (position !== null) this.timeline.selectSteps(this.rangeFrom ?? 0, position);
      },
      "/": () => byId("query").focus(), Escape: () => this.timeline.select(null),
      t: () => commands.seq && this.copy(`llc trace ${id} --at ${commands.seq}`), f: () => commands.seq && this.copy(`llc fork ${id} --at ${commands.seq}`),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  async copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      this.say(`copied: ${text}`);
    } catch {
      this.say(text);
    }
  }

  // Add a button to the details of each effect. act: called with the number of the effect.
  offer(name, act) {
    this.offers.push([name, act]);
    this.go(this.row);
  }

  say(text) {
    const status = byId("status");
    status.textContent = safe(text);
    status.classList.add("shown");
    clearTimeout(this.saying);
    this.saying = setTimeout(() => status.classList.remove("shown"), 4000);
  }

  // Printed output has no cursor: show all steps as a table, up to a limit.
  print() {
    const limit = 2000;
    const rows = this.rows.slice(0, limit).map(([position, other], row) => {
      const step = position === null ? this.runs[1].steps[other] : this.runs[0].steps[position];
      return make("tr", {}, ...[row, step.state || "", step.subject || step.kind || "", step.verdict || "", step.route || ""].map((text) => make("td", {}, text)));
    });
    const head = make("tr", {}, ...["Step", "State", "What", "Verdict", "Next"].map((text) => make("th", {}, text)));
    byId("print").replaceChildren(make("h2", {}, "Steps"), make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)),
      this.rows.length > limit ? make("p", {}, `${(this.rows.length - limit).toLocaleString("en")} more steps`) : "");
  }
}

(async () => {
  const head = byId("head");
  if (!head) return;
  const data = JSON.parse(head.textContent);
  const text = (name) => byId(name).textContent;
  const runs = await Promise.all(data.runs.map(async (found) => {
    const run = new Run(found, text);
    run.steps = JSON.parse(await unpack(text(found.steps)));
    return run;
  }));
  const rows = data.rows === null ? runs[0].steps.map((step, position) => [position]) : JSON.parse(await unpack(text(data.rows)));
  const page = new Page(runs, rows);
  window.report = page;
  await page.start();
})();
