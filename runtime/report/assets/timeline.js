"use strict";
// The timeline: a row for the states and a row for each lane of the model, on the axis of the model. The axis of a run
// without duration, such as a scripted run, consists of step numbers.

const ROW = 18;
const MAX_ROWS = 10;
const BUDGET_HEIGHT = 40;  // height of the graph of the usage
const MAX_NAME_WIDTH = 120;
const FONT = "11px system-ui, sans-serif";
// Line dash by unit of a budget.
const DASHES = { usd: [], tokens: [5, 3], calls: [1, 3], seconds: [8, 3, 1, 3] };
const COLORS = { shell: "--shell", agent: "--agent", slash: "--agent", ask: "--ask", sleep: "--wait", clock: "--wait",
  evaluate: "--model", task: "--model", model: "--model", tool: "--tool" };

// The legend: the colours and lines that occur in the timeline.
function legendOf(run) {
  const kinds = {};
  for (const { kind } of [...run.steps, ...(run.head.pending || [])]) if (kind) (kinds[(COLORS[kind] || "--tool").slice(2)] ||= new Set()).add(kind);
  const found = Object.entries(kinds).map(([color, names]) => make("span", { class: "swatch " + color }, [...names].join(", ")));
  if (run.steps.some((step) => step.failed)) found.push(make("span", { class: "swatch failed" }, "failed"));
  const lines = { usd: "line", tokens: "dashed line", calls: "dotted line", seconds: "broken line" };
  for (const [unit, used] of usedUnits(run)) found.push(make("span", {}, `${lines[unit]}: ${usedText(run, unit, used)}`));
  return found;
}

// Usage before a position, by unit of a budget.
function usedBefore(run, position) {
  const used = Object.fromEntries(Object.keys(DASHES).map((unit) => [unit, 0]));
  for (let at = 0; at < Math.min(position, run.steps.length); at += 1) for (const unit in used) used[unit] += run.steps[at][unit] || 0;
  return used;
}

// The shown units with their usage: usd, tokens, and the other units with a limit.
function usedUnits(run) {
  return Object.entries(usedBefore(run, Infinity)).filter(([unit, used]) => used && (unit === "usd" || unit === "tokens" || limitOf(run, unit)));
}

function limitOf(run, unit) {
  const limit = (run.about.budget || {})[unit];
  return typeof limit === "number" && limit > 0 ? limit : 0;
}

function usedText(run, unit, used) {
  const limit = limitOf(run, unit);
  const shown = unit === "usd" ? used.toFixed(4) : unit === "seconds" ? used.toFixed(1) : used.toLocaleString("en");
  return `${shown} ${limit ? `of ${limit.toLocaleString("en")} ` : ""}${unit === "usd" ? "USD" : unit}`;
}

function spanText(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60000);
  return minutes < 60 ? `${minutes} m ${Math.round((ms % 60000) / 1000)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} m`;
}

class Timeline {
  // choose: called with a position. ranged: called with the first and last position of a range, or null.
  constructor(canvas, note, run, choose, ranged) {
    Object.assign(this, { canvas, note, run, choose, ranged, position: 0, range: null, drag: null });
    canvas.addEventListener("pointerdown", (event) => {
      this.drag = { from: this.offset(event), to: this.offset(event) };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (this.drag) { this.drag.to = this.offset(event); this.draw(); }
    });
    canvas.addEventListener("pointerup", (event) => {
      const drag = this.drag;
      this.drag = null;
      if (!drag) return;
      if (Math.abs(drag.from - drag.to) < 5) this.choose(this.nearest(this.offset(event), event.offsetY));
      else this.select(this.time(Math.min(drag.from, drag.to)), this.time(Math.max(drag.from, drag.to)));
    });
    canvas.addEventListener("dblclick", () => this.select(null));
    new ResizeObserver(() => this.layOut()).observe(canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.layOut());
    this.layOut();
  }

  offset(event) { return Math.max(0, Math.min(this.width, event.offsetX - this.gutter)); }

  // Whether the run has no duration.
  get isEven() {
    const axis = this.run.head.axis || [];
    return !axis.length || axis[axis.length - 1][1] <= 1;
  }

  // Start and end of a step on the axis; undefined if it has not started or ended.
  begin(step, number) { return step.start === undefined ? undefined : this.isEven ? number : step.start; }
  end(step, number) { return step.end === undefined ? undefined : this.isEven ? number + 1 : step.end; }

  // The pieces of the axis in the selected range: [begin, end, drawn length, label].
  pieces() {
    const count = Math.max(1, this.run.steps.length);
    const all = this.isEven ? [[0, count, count, ""]] : this.run.head.axis;
    if (!this.range) return all;
    const [from, to] = this.range;
    return all.filter(([begin, end]) => end > from && begin < to).map(([begin, end, drawn, label]) => {
      const part = (Math.min(end, to) - Math.max(begin, from)) / Math.max(end - begin, 1e-9);
      return [Math.max(begin, from), Math.min(end, to), label ? drawn : drawn * part, label];
    });
  }

  layOut() {
    const whole = this.canvas.parentElement.clientWidth;
    this.width = 0;
    if (!whole) return;  // hidden in printed output
    const { lanes } = this.run.head;
    const names = ["states", ...lanes.slice(0, MAX_ROWS)].map(safe);
    if (lanes.length > MAX_ROWS) names[MAX_ROWS] = `${lanes.length - MAX_ROWS + 1} more`;
    this.rows = names.length;
    this.units = usedUnits(this.run);
    const measure = this.canvas.getContext("2d");
    measure.font = FONT;
    this.gutter = Math.ceil(Math.min(MAX_NAME_WIDTH, whole / 4, Math.max(...names.map((name) => measure.measureText(name).width)) + 8));
    this.width = whole - this.gutter;
    this.axis = this.pieces();
    this.total = this.axis.reduce((sum, piece) => sum + piece[2], 0) || 1;
    this.bottom = this.rows * ROW + (this.units.length ? BUDGET_HEIGHT : 0) + 2;
    this.height = this.bottom + 20;
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = whole * scale;
    this.canvas.height = this.height * scale;
    this.canvas.style.height = this.height + "px";
    this.base = document.createElement("canvas");
    this.base.width = this.canvas.width;
    this.base.height = this.canvas.height;
    const pen = this.base.getContext("2d");
    pen.scale(scale, scale);
    this.paintNames(pen, names);
    pen.translate(this.gutter, 0);
    this.paint(pen);
    this.draw();
  }

  // The position of a time in pixels.
  x(ms) {
    let before = 0;
    for (const [begin, end, drawn] of this.axis) {
      if (ms <= begin) break;
      if (ms < end) return ((before + (drawn * (ms - begin)) / (end - begin)) / this.total) * this.width;
      before += drawn;
    }
    return (before / this.total) * this.width;
  }

  time(x) {
    let left = (x / this.width) * this.total;
    for (const [begin, end, drawn] of this.axis) {
      if (left <= drawn) return begin + (left / (drawn || 1)) * (end - begin);
      left -= drawn;
    }
    return this.axis.length ? this.axis[this.axis.length - 1][1] : 0;
  }

  nearest(x, y) {
    const lane = Math.floor(y / ROW) - 1;
    let best = 0;
    let least = Infinity;
    this.run.steps.forEach((step, number) => {
      if (step.start === undefined) return;
      const begin = this.x(this.begin(step, number));
      const end = step.end === undefined ? begin : this.x(this.end(step, number));
      const away = (x < begin ? begin - x : x > end ? x - end : 0) + (lane >= 0 && (step.lane || 0) !== lane ? 3 : 0);
      if (away < least) { least = away; best = number; }
    });
    return best;
  }

  select(from, to) {
    this.range = from === null ? null : [from, to];
    if (!this.range) {
      this.note.textContent = "";
      this.ranged(null);
    } else {
      const inside = [];
      this.run.steps.forEach((step, number) => {
        const [begin, end] = [this.begin(step, number), this.end(step, number)];
        if (begin !== undefined && begin < to && (end === undefined || end > from)) inside.push(number);
      });
      const usd = inside.reduce((sum, at) => sum + (this.run.steps[at].usd || 0), 0);
      const tokens = inside.reduce((sum, at) => sum + (this.run.steps[at].tokens || 0), 0);
      this.note.textContent = `${inside.length.toLocaleString("en")} effects` + (this.isEven ? "" : ` in ${spanText(to - from)}`) +
        (usd ? `, ${usd.toFixed(4)} USD` : "") + (tokens ? `, ${tokens.toLocaleString("en")} tokens` : "") + " · Esc shows all";
      this.ranged(inside.length ? [inside[0], inside[inside.length - 1]] : null);
    }
    this.layOut();
  }

  // Select the steps between two positions, inclusive.
  selectSteps(start, stop) {
    const { steps } = this.run;
    const [first, last] = start <= stop ? [start, stop] : [stop, start];
    const from = this.begin(steps[first], first);
    if (from === undefined) return;
    const ends = steps.slice(first, last + 1).map((step, at) => this.end(step, first + at) ?? this.begin(step, first + at) ?? from);
    this.select(from, Math.max(...ends, from + 1));
  }

  paintNames(pen, names) {
    pen.font = FONT;
    pen.textBaseline = "middle";
    pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--soft");
    pen.save();
    pen.beginPath();
    pen.rect(0, 0, this.gutter - 4, this.height);
    pen.clip();
    names.forEach((name, row) => pen.fillText(name, 0, (row + 0.5) * ROW));
    if (this.units.length) pen.fillText("used", 0, this.bottom - BUDGET_HEIGHT / 2);
    pen.restore();
  }

  paint(pen) {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim() || "#888";
    const known = {};
    const inkOf = (name) => known[name] || (known[name] = color(name));
    pen.font = FONT;
    pen.textBaseline = "middle";
    let at = 0;
    let free = 0;
    for (const [, , drawn, label] of this.axis) {
      const width = (drawn / this.total) * this.width;
      if (label) {
        pen.fillStyle = inkOf("--idle");
        pen.fillRect(at, 0, Math.max(width, 2), this.bottom);
        pen.fillStyle = inkOf("--soft");
        const text = "⋯ " + label;
        const wide = pen.measureText(text).width;
        const left = Math.max(0, Math.min(at, this.width - wide));
        if (left >= free) {
          pen.fillText(text, left, this.height - 9);
          free = left + wide + 8;
        }
      }
      at += width;
    }
    // States: a band for each interval in one state.
    let current = null;
    const paintBand = (end) => {
      if (!current) return;
      const x = this.x(current.start);
      const width = Math.max(1, this.x(end) - x);
      pen.fillStyle = inkOf("--state" + (current.node === undefined ? 0 : current.node % 6));
      pen.fillRect(x, 1, width, ROW - 3);
      if (width > 30) {
        pen.fillStyle = inkOf("--ink");
        pen.save();
        pen.beginPath();
        pen.rect(x, 0, width, ROW);
        pen.clip();
        pen.fillText(safe(current.state), x + 4, ROW / 2);
        pen.restore();
      }
    };
    let end = 0;
    const latest = this.axis.length ? this.axis[this.axis.length - 1][1] : 0;
    const now = this.run.steps.length - 1;
    const effects = [...this.run.steps.map((step, at) => [step, at]), ...(this.run.head.pending || []).map((effect) => [effect, now])]
      .filter(([step]) => step.start !== undefined);
    for (const [step, number] of effects) {
      const start = this.begin(step, number);
      if (!current || current.state !== (step.state || "")) {
        paintBand(start);
        current = { state: step.state || "", start, node: step.node };
      }
      end = Math.max(end, step.end === undefined ? latest : this.end(step, number));
    }
    paintBand(end);
    for (const [step, number] of effects) {
      const x = this.x(this.begin(step, number));
      const width = Math.max(1.5, this.x(step.end === undefined ? latest : this.end(step, number)) - x - 0.5);
      const y = (Math.min(step.lane || 0, MAX_ROWS - 1) + 1) * ROW;
      pen.fillStyle = inkOf(COLORS[step.kind] || "--tool");
      pen.fillRect(x, y + 2, width, ROW - 5);
      if (step.failed) {
        pen.fillStyle = inkOf("--error");
        pen.fillRect(x, y + ROW - 6, width, 3);
      }
    }
    this.paintUsed(pen, inkOf("--ink"), inkOf("--line"));
    for (const mark of this.run.about.marks || []) {
      if (mark.at === null) continue;
      pen.fillStyle = inkOf(mark.kind === "end" ? "--ink" : "--bad");
      pen.fillRect(Math.min(this.x(this.isEven ? mark.step : mark.at), this.width - 2), 0, 2, this.bottom);
    }
  }

  // Paint the cumulative usage of each unit, as a fraction of its limit or, without a limit, of the total usage.
  paintUsed(pen, ink, line) {
    if (!this.units.length) return;
    const [low, height] = [this.bottom - 4, BUDGET_HEIGHT - 8];
    pen.fillStyle = line;
    pen.fillRect(0, low - height - 1, this.width, 1);
    pen.fillRect(0, low + 1, this.width, 1);
    pen.strokeStyle = ink;
    pen.lineWidth = 1.2;
    for (const [unit, total] of this.units) {
      const limit = limitOf(this.run, unit) || total;
      const y = (used) => low - Math.min(1, used / limit) * height;
      let used = 0;
      pen.setLineDash(DASHES[unit]);
      pen.beginPath();
      pen.moveTo(this.x(0), y(0));
      this.run.steps.forEach((step, number) => {
        if (!step[unit]) return;
        const x = this.x(this.end(step, number));
        pen.lineTo(x, y(used));
        used += step[unit];
        pen.lineTo(x, y(used));
      });
      pen.lineTo(this.width, y(used));
      pen.stroke();
    }
    pen.setLineDash([]);
  }

  // Draw the painted timeline, the cursor, and the range during a drag.
  draw(position) {
    if (position !== undefined) this.position = position;
    if (!this.width) return;
    const pen = this.canvas.getContext("2d");
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    pen.drawImage(this.base, 0, 0);
    const scale = window.devicePixelRatio || 1;
    pen.scale(scale, scale);
    pen.translate(this.gutter, 0);
    const step = this.run.steps[this.position];
    const style = getComputedStyle(document.documentElement);
    pen.fillStyle = style.getPropertyValue("--focus");
    const moment = !step || step.start === undefined ? this.axis.length ? this.axis[this.axis.length - 1][1] : 0 : this.begin(step, this.position);
    pen.fillRect(Math.max(0, Math.min(this.x(moment) - 1, this.width - 2)), 0, 2, this.bottom + 2);
    if (this.drag) {
      pen.globalAlpha = 0.25;
      pen.fillRect(Math.min(this.drag.from, this.drag.to), 0, Math.abs(this.drag.from - this.drag.to), this.bottom + 2);
      pen.globalAlpha = 1;
    }
  }
}
