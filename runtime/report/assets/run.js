"use strict";
// Data of a run on the page: steps, the slots at each position, and values, which are decompressed on demand.
// The format is that of the model (spec/report.md).

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (ch) => ch.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}

class Run {
  constructor(head, blocks) {
    this.head = head;
    this.steps = [];
    this.blocks = blocks;
    this.values = [];
    this.chunks = (head.chunks || []).map(([first, name]) => ({ first, name, lines: null }));
    this.cache = { at: -1, frames: [] };
  }

  // Apply a result of `RunModel.update`; its steps replace the steps from position `from` on.
  apply(update) {
    this.head = { ...this.head, ...update, program: update.program || this.head.program };
    this.steps.length = Math.min(this.steps.length, update.from);
    for (const step of update.steps) this.steps.push(step);
    (update.values || []).forEach((value, number) => { this.values[update.first_value + number] = value; });
    this.cache = { at: -1, frames: [] };
  }

  get about() { return this.head.run; }

  // The active functions at a position, innermost last: {name, state, slots}; slots are value indices by name.
  framesAt(position) {
    const applyDelta = (frames, step) => {
      if (step.frames) return step.frames.map(([name, state, slots]) => ({ name, state, slots: { ...slots } }));
      if (!step.slots && !step.at) return frames;
      const next = frames.map((frame) => ({ ...frame, slots: { ...frame.slots } }));
      for (const [at, name, value] of step.slots || []) {
        if (value === null) delete next[at].slots[name];
        else next[at].slots[name] = value;
      }
      (step.at || []).forEach((state, at) => { next[at].state = state; });
      return next;
    };
    let { at, frames } = this.cache;
    if (at < 0 || at > position || position - at > 100) {
      at = position;
      while (at > 0 && !this.steps[at].frames) at -= 1;
      frames = applyDelta([], this.steps[at] || {});
    }
    for (; at < position; at += 1) frames = applyDelta(frames, this.steps[at + 1]);
    this.cache = { at: position, frames };
    return frames;
  }

  // The last position, not after `position`, at which a slot got its value, or at which its function was entered.
  // depth: index of the function. null if it is unknown.
  writerOf(position, depth, name) {
    for (let at = position; at > 0; at -= 1) {
      const step = this.steps[at];
      if (step.entered) return step.items ? null : at;  // unknown for parallel calls
      if ((step.slots || []).some(([frame, slot]) => frame === depth && slot === name)) return at;
    }
    return 0;
  }

  // The next position, from `position` on, in a state whose code reads a slot, while the same functions are active:
  // [position, state], or null. depth: index of the function.
  readerOf(position, depth, name) {
    const frame = this.framesAt(position)[depth];
    const readers = (((this.head.program || {}).readers || {})[frame.name] || {})[name] || [];
    let { state } = frame;
    for (let at = position; readers.length && at < this.steps.length; at += 1) {
      const step = this.steps[at];
      if (at > position) {
        if (step.entered || step.items) return null;
        if (step.frames) state = step.frames[depth][1];
        else if (step.at) state = step.at[depth];
      }
      const [author] = state.split("/");
      if (readers.includes(author)) return [at, author];
    }
    return null;
  }

  async lines(chunk) {
    if (chunk.lines === null) {
      if (!chunk.loading) chunk.loading = unpack(this.blocks(chunk.name)).then((text) => text.split("\n"));
      chunk.lines = await chunk.loading;
    }
    return chunk.lines;
  }

  async value(index) {
    if (index === undefined || index === null) return undefined;
    if (index in this.values) return this.values[index];
    let low = 0;
    let high = this.chunks.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.chunks[middle].first <= index) low = middle;
      else high = middle - 1;
    }
    const chunk = this.chunks[low];
    return JSON.parse((await this.lines(chunk))[index - chunk.first]);
  }

  // The indices of all values that contain a text. query: in lower case.
  async search(query) {
    const wanted = JSON.stringify(query).slice(1, -1);
    const found = new Set();
    this.values.forEach((value, index) => {
      if (JSON.stringify(value).toLowerCase().includes(wanted)) found.add(index);
    });
    for (const chunk of this.chunks) {
      (await this.lines(chunk)).forEach((line, number) => {
        if (line.toLowerCase().includes(wanted)) found.add(chunk.first + number);
      });
    }
    return found;
  }
}
