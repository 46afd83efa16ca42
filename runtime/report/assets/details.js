"use strict";
// The details of a position of a run, and the header of a run.

function facts(rows) {
  const list = make("dl", { class: "facts" });
  for (const [name, value] of rows) {
    if (value === null || value === undefined || value === "" || value === 0) continue;
    list.append(make("div", {}, make("dt", {}, name), make("dd", {}, value)));
  }
  return list;
}

function localTime(ts) {
  if (!ts) return "";
  const moment = new Date(ts);
  return Number.isNaN(moment.getTime()) ? ts : moment.toLocaleString();
}

// The header of a run. go: called with a position.
async function headerOf(run, go, title) {
  const about = run.about;
  const jump = (position, text) => make("button", { type: "button", class: "link", onclick: () => go(position) }, text);
  const parts = [
    make("h1", {}, statusBadge(about.status), " ", about.program || about.id),
    make("p", { class: "sentence" }, about.sentence),
    facts([
      ["run", about.id], ["started", localTime(about.started)], ["ended", localTime(about.ended)],
      ["active", about.active], ["waiting", about.waiting], ["elapsed", about.elapsed], ["iterations", about.iterations], ["effects", about.effects],
      ["used", about.used_text],
      ["budget", Object.entries(about.budget).map(([unit, limit]) => `${limit.toLocaleString("en")} ${unit === "usd" ? "USD" : unit}`).join(", ")],
      ["first failure", about.first_failure === null ? "" : jump(about.first_failure, `step ${about.first_failure}`)],
      ["failed effects", about.failures], ["resumed", about.resumed ? `${about.resumed}×` : ""],
      ["fork of", about.forked_from ? `${about.forked_from.run} at ${about.forked_from.at}` : ""],
      ["program", about.path], ["version", [about.llc, (about.hash || "").slice(0, 12)].filter(Boolean).join(" · ")],
      ["scripted", about.scripted ? "yes: nothing was executed" : ""],
    ]),
  ];
  if (title) parts.unshift(make("h2", {}, title));
  for (const note of about.notes) parts.push(make("p", { class: "note" }, note));
  if (about.error) parts.push(faultOf(about.error));
  if (about.value !== null) {
    parts.push(make("details", {}, make("summary", {}, "Result"), await valueBlock(await run.value(about.value))));
  }
  const questions = run.steps.map((step, at) => [step, at]).filter(([step]) => step.kind === "ask");
  if (questions.length) parts.push(await questionsOf(run, questions.slice(0, 200), jump));
  if (about.files.length) parts.push(folded(`Files changed (${about.files.length})`, make("ul", { class: "files" },
    ...about.files.map(([letter, path]) => make("li", {}, make("b", {}, letter), " ", path)))));
  return make("div", { class: "run" }, ...parts);
}

function folded(title, ...content) {
  return make("details", {}, make("summary", {}, title), ...content);
}

function faultOf(error) {
  const lines = [error.span ? `at ${error.span}` : "", ...(error.backtrace || [])].filter(Boolean);
  const details = error.details && Object.keys(error.details).length ? JSON.stringify(error.details, null, 2) : "";
  return make("div", { class: "fault" }, make("p", {}, make("b", {}, error.kind || "error"), error.message ? ": " + error.message : ""),
    lines.length ? make("pre", { class: "text", tabindex: "0" }, lines.join("\n")) : "",
    details ? folded("Details", make("pre", { class: "text", tabindex: "0" }, details)) : "",
    error.help ? make("p", {}, error.help) : "");
}

async function questionsOf(run, questions, jump) {
  const rows = [];
  for (const [step, at] of questions) {
    const args = (await run.value(step.args)) || {};
    const result = (await run.value(step.result)) || {};
    const answer = result.output !== undefined ? result.output : result.value !== undefined ? result.value : "";
    rows.push(make("li", {}, jump(at, `step ${at}`), " ", brief(args.question || step.subject || "", 300), " — ",
      step.result === undefined ? "no answer yet" : brief(answer, 300), result.by ? ` (${result.by})` : ""));
  }
  return folded(`Questions (${questions.length})`, make("ul", {}, ...rows));
}

// Table of the states: number of entries, time, cost and verdicts.
function statesOf(run) {
  const entries = Object.entries(run.about.states || {});
  const longest = Math.max(1, ...entries.map(([, totals]) => totals.duration_ms));
  const rows = entries.map(([name, totals]) => {
    const bar = make("meter", { min: 0, max: longest, value: totals.duration_ms, "aria-label": `time in ${name}` });
    const verdicts = Object.entries(totals.verdicts).map(([verdict, count]) => `${verdict} ${count}×`).join(", ");
    return make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, `${totals.entered}×`),
      make("td", {}, bar, " ", spanText(totals.duration_ms)), make("td", {}, totals.usd ? totals.usd.toFixed(4) : ""), make("td", {}, verdicts));
  });
  if (!rows.length) return "";
  const head = make("tr", {}, ...["State", "Entered", "Time", "USD", "Verdicts"].map((name) => make("th", { scope: "col" }, name)));
  return folded("States", make("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "States" },
    make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows))));
}

function bytecodeOf(run) {
  const index = (run.head.program || {}).bytecode;
  if (index === undefined) return "";
  const holder = folded("Bytecode");
  holder.addEventListener("toggle", async () => {
    if (holder.open && holder.children.length === 1) holder.append(textBlock(await run.value(index)));
  });
  return holder;
}

function valueBlock(value, query) {
  if (typeof value === "string") return textBlock(value, query);
  return textBlock(JSON.stringify(value, null, 2) || "", query);
}

// The details of a position. go: called with a position. copy: called with a command. offers: names and functions of
// additional buttons.
async function detailsOf(run, position, query, go, copy, offers) {
  const step = run.steps[position] || {};
  const next = run.steps[position + 1];
  const parts = [];
  const [args, result, activity, diff, details] = await Promise.all(
    [step.args, step.result, step.activity, step.diff, step.details].map((index) => run.value(index)));
  const title = step.kind ? `${step.state ? step.state + " · " : ""}${step.kind}` : run.about.status === "success" || run.about.ended ? "End of the run" : step.state || "Current position";
  const heading = make("h2", {}, title);
  if (step.verdict) heading.append(" ", make("span", { class: "badge " + (step.tone || "") }, step.verdict));
  if (step.route) heading.append(" ", make("span", { class: "route" }, "→ " + step.route));
  parts.push(heading);
  const used = usedBefore(run, position);
  const commands = step.seq ? [`llc trace ${run.about.id} --at ${step.seq}`, `llc fork ${run.about.id} --at ${step.seq}`] : [];
  parts.push(facts([
    ["effect", step.seq], ["iteration", step.iteration],
    ["took", step.end !== undefined && step.start !== undefined ? spanText(result && result.duration_ms !== undefined ? result.duration_ms : step.end - step.start) : ""],
    ["at", step.start !== undefined ? "+" + spanText(step.start) : ""],
    ["exit", result && typeof result.exit_code === "number" && result.exit_code !== 0 ? String(result.exit_code) : ""],
    ["cost", step.usd ? step.usd.toFixed(4) + " USD" : ""], ["tokens", step.tokens ? step.tokens.toLocaleString("en") : ""],
    ["session", step.session], ["model", step.model], ["tools", step.tools],
    ["item", step.items ? step.items.join(", ") : ""],
    ["used before", usedUnits(run).filter(([unit]) => used[unit]).map(([unit]) => usedText(run, unit, used[unit])).join(", ")],
  ]));
  if (step.subject) {
    const whole = args && typeof args.command === "string" ? args.command : args && typeof args.question === "string" ? args.question : step.subject;
    parts.push(make("div", { class: "command" }, textBlock(whole, query)));
  }
  const pending = (run.head.pending || []).filter((effect) => position === run.steps.length - 1 && effect.seq !== step.seq);
  if (pending.length) parts.push(make("p", {}, "Not finished: ", pending.map((effect) => `${effect.kind} ${effect.subject || ""} (effect ${effect.seq})`).join(", ")));
  if (result !== undefined) parts.push(...outcomeOf(result, query));
  if (details && Object.keys(details).length) {
    if (details.reason) parts.push(make("p", { class: "because" }, `${step.verdict}: ${details.reason}`));
    parts.push(folded("Details of the verdict", valueBlock(details, query)));
  }
  if (activity && activity.length) parts.push(activityOf(activity, query));
  if (step.files && step.files.length && diff === undefined) parts.push(make("p", {}, "Files changed: ", step.files.map((row) => row.join(" ")).join(", ")));
  if (diff) parts.push(section("Files", textBlock(diff, query, "diff")));
  if (position === run.steps.length - 1 && run.about.error) parts.push(section("Fault", faultOf(run.about.error)));
  const slots = await slotsOf(run, position, next, go);
  if (slots) parts.push(slots);
  const notes = [...(step.notes || []).map((text) => ["before", text]), ...((next && next.notes) || []).map((text) => ["after", text])];
  if (notes.length) parts.push(section("Events", make("ul", { class: "events" }, ...notes.map(([when, text]) => make("li", { class: when }, text)))));
  if (args && Object.keys(args).length) parts.push(folded("Arguments", valueBlock(args, query)));
  const source = await sourceOf(run, step.place);
  if (source) parts.push(source);
  if (commands.length) parts.push(section("Commands", ...commands.map((text) => make("p", { class: "copy" }, make("code", {}, text), " ",
    make("button", { type: "button", onclick: () => copy(text) }, "Copy"))),
    ...offers.map(([name, act]) => make("p", { class: "copy" }, make("button", { type: "button", onclick: () => act(step.seq) }, name)))));
  return make("div", { class: "step" }, ...parts);
}

function section(title, ...content) {
  return make("section", { class: "part" }, make("h3", {}, title), ...content);
}

function outcomeOf(result, query) {
  const parts = [];
  const shown = ["output", "stderr"];
  if (typeof result !== "object" || result === null) return [section("Result", valueBlock(result, query))];
  if (typeof result.output === "string" && result.output) parts.push(section("Output", textBlock(result.output, query)));
  if (typeof result.stderr === "string" && result.stderr) parts.push(section("Standard error", textBlock(result.stderr, query)));
  const rest = Object.fromEntries(Object.entries(result).filter(([name, value]) =>
    !(shown.includes(name) && typeof value === "string") && !["duration_ms", "elapsed_ms"].includes(name) && !(name === "exit_code" && value === 0)));
  if (result.error) parts.unshift(make("p", { class: "fault" }, brief(typeof result.error === "object" ? result.error.message || result.error : result.error, 2000)));
  if (Object.keys(rest).length) parts.push(parts.length ? folded("Other fields of the result", valueBlock(rest, query)) : section("Result", valueBlock(rest, query)));
  if (!parts.length) parts.push(make("p", { class: "soft" }, "No output."));
  return parts;
}

function activityOf(activity, query) {
  const list = make("ol", { class: "activity" });
  for (const [kind, text] of activity) {
    const holder = make("li", { class: kind });
    if (text.length > 400 || text.includes("\n")) {
      const first = brief(text, 160);
      holder.append(kind === "text" || kind === "final" ? textBlock(text, query) : folded(first, textBlock(text, query)));
    } else appendText(holder, text, query);
    list.append(holder);
  }
  return section("Agent", list);
}

// The slots of the active functions before and after a step; changed slots come first.
async function slotsOf(run, position, next, go) {
  const frames = run.framesAt(position).map((frame) => ({ ...frame, slots: { ...frame.slots } }));
  if (!frames.length) return null;
  const after = next ? run.framesAt(position + 1) : null;
  const is_same = after && !next.entered;
  const tables = [];
  for (let depth = frames.length - 1; depth >= 0; depth -= 1) {
    const old = frames[depth].slots;
    const now = is_same ? after[depth].slots : {};
    const names = [...new Set([...Object.keys(old), ...Object.keys(now)])];
    const changed = (name) => is_same && old[name] !== now[name];
    names.sort((a, b) => Number(changed(b)) - Number(changed(a)));
    const rows = await Promise.all(names.map(async (name) => {
      const before = name in old ? await run.value(old[name]) : undefined;
      const cells = [make("th", { scope: "row" }, name), make("td", {}, slotValue(before, name in old))];
      if (is_same) cells.push(make("td", {}, changed(name) ? slotValue(await run.value(now[name]), name in now) : make("span", { class: "soft" }, "same")));
      const writer = name in old ? run.writerOf(position, depth, name) : null;
      cells.push(make("td", {}, writer === null ? "" : make("button", { type: "button", class: "link", title: "The step that set this value", onclick: () => go(Math.max(0, writer - 1)) }, `${Math.max(0, writer - 1)}`)));
      const reader = run.readerOf(position, depth, name);
      cells.push(make("td", {}, reader === null ? "" : make("button", { type: "button", class: "link", title: "The next step in a state that reads it", onclick: () => go(reader[0]) }, make("bdi", {}, reader[1]), ` (${reader[0]})`)));
      return make("tr", { class: changed(name) ? "changed" : "" }, ...cells);
    }));
    const head = make("tr", {}, ...["Slot", "Before", ...(is_same ? ["After"] : []), "Set by", "Read by"].map((name) => make("th", { scope: "col" }, name)));
    tables.push(make("h4", {}, `${frames[depth].name} · ${frames[depth].state}`),
      make("div", { class: "wide", tabindex: "0", role: "group", "aria-label": `Slots of ${frames[depth].name}` },
        make("table", { class: "slots" }, make("thead", {}, head), make("tbody", {}, ...rows))));
  }
  return section("Slots", ...tables);
}

function slotValue(value, is_there) {
  if (!is_there) return make("span", { class: "soft" }, "not set");
  const text = brief(value, 80);
  const whole = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  if (typeof value !== "object" && text === whole) return make("code", {}, text);
  if (value === null) return make("code", {}, "null");
  const holder = make("details", {}, make("summary", {}, make("code", {}, text)));
  holder.addEventListener("toggle", () => { if (holder.open && holder.children.length === 1) holder.append(valueBlock(value)); });
  return holder;
}

async function sourceOf(run, place) {
  const sources = (run.head.program || {}).sources || [];
  const found = place && sources.find(([path]) => path === place[0]);
  if (!found) return null;
  const lines = String(await run.value(found[1])).split("\n");
  const first = Math.max(0, place[1] - 6);
  const code = make("ol", { class: "source", start: String(first + 1) });
  lines.slice(first, place[1] + 6).forEach((line, number) => {
    code.append(make("li", { class: first + number + 1 === place[1] ? "here" : "", value: String(first + number + 1) }, make("code", {}, line.slice(0, FOLD_COLUMNS) || " ")));
  });
  return section(`${place[0]}:${place[1]}`, make("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Source" }, code));
}
