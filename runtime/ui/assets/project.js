// The page of a project: polls the server for changes and shows them.

const PERIOD_MS = 1000;
const byId = (id) => document.getElementById(id);
const known = {};  // by address: ETag and data of the last response
const is_read_only = "readOnly" in document.documentElement.dataset;
let refusal = "";  // error message of the last refused request
const forms = new Map();  // by open question: its element, kept so that typed text is not lost

// The data at an address; undefined if it has not changed.
async function fetchChanges(address) {
  const headers = known[address] ? { "If-None-Match": known[address].tag } : {};
  const response = await fetch(address, { headers, cache: "no-store" });
  if (response.status === 304) return undefined;
  const data = await response.json();
  if (!response.ok) throw Object.assign(new Error(data.error.message), { status: response.status });
  known[address] = { tag: response.headers.get("ETag"), data };
  return data;
}

async function send(address, body) {
  const response = await fetch(address, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  const data = await response.json();
  if (!response.ok) throw new Error([data.error.message, data.error.help].filter(Boolean).join("; "));
  return data;
}

function note(text, is_problem) {
  byId("notice").textContent = safe(text);
  byId("notice").className = is_problem ? "problem" : "soft";
}

function table(titles, rows, emptyText) {
  if (!rows.length) return make("p", { class: "soft" }, emptyText);
  const head = make("tr", {}, ...titles.map((title) => make("th", { scope: "col" }, title)));
  const body = rows.map((cells) => make("tr", {}, ...cells.map((cell) => make("td", {}, cell))));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
}

// Replace the content of an element; the focus stays on the same link or button.
function put(id, element) {
  const focus = document.activeElement && byId(id).contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  byId(id).replaceChildren(element);
  if (focus === undefined) return;
  const target = [...byId(id).querySelectorAll("[data-key]")].find((element) => element.dataset.key === focus);
  (target || byId(id)).focus();
}

const linkTo = (run) => make("a", { href: "/runs/" + encodeURIComponent(run), "data-key": "run " + run }, run);
const usd = (row) => row.usd || row.unpriced ? `${row.usd.toFixed(4)} USD${row.unpriced ? " at least" : ""}` : "";
const moment = (text) => text ? new Date(text).toLocaleString() : "";

function showRuns() {
  const { running, ended, total } = known["/api/runs"].data;
  put("running", table(["Run", "Status", "State", "Iteration", "Cost", "Started", ""], running.map((row) => [
    linkTo(row.run), statusBadge(row.status), row.state || "",
    row.iteration === null ? "" : row.iteration + (row.max_iterations ? ` of ${row.max_iterations}` : ""),
    usd(row), moment(row.started_at), is_read_only ? "" : row.status === "running" || row.status === "queued" ? actButton(row.run, "stop", "Stop") : actButton(row.run, "resume", "Resume")]),
  "No run is unfinished."));
  const wanted = byId("filter").value.trim().toLowerCase();
  const shown = ended.filter((row) => `${row.run} ${row.status}`.toLowerCase().includes(wanted));
  put("ended", table(["Run", "Status", "Last state", "Iterations", "Cost", "Ended"], shown.map((row) => [
    linkTo(row.run), statusBadge(row.status), row.final_state || "", row.iterations, usd(row), moment(row.ended_at)]),
  "No run has ended."));
  document.title = `${running.length} unfinished · llc`;
  return total;
}

// A button that sends a request about a run.
function actButton(run, what, name) {
  const button = make("button", { type: "button", "data-key": `${what} ${run}`, "aria-label": `${name} ${run}`, onclick: async () => {
    button.disabled = true;
    refusal = "";
    try { await send(`/api/runs/${encodeURIComponent(run)}/${what}`, {}); } catch (error) { refusal = error.message; }
    button.disabled = false;
    refresh();
  } }, name);
  return button;
}

function questionForm(question) {
  const input = make("input", { type: "text", autocomplete: "off", "aria-label": `Answer to: ${question.text}` });
  const problem = make("span", { class: "problem", role: "alert" });
  const answer = async (text) => {
    const fields = { question: question.question, text: question.text, answer: text };
    try {
      await send(`/api/runs/${encodeURIComponent(question.run)}/answer`, fields);
      refresh();
    } catch (error) { problem.textContent = safe(error.message); }
  };
  const choices = question.choices.map((choice) => make("button", { type: "button", onclick: () => answer(choice) }, choice));
  const free = question.choices.length ? [] : [input, make("button", { type: "submit" }, "Answer")];
  const form = is_read_only ? "" : make("form", { onsubmit: (event) => { event.preventDefault(); answer(input.value); } }, ...choices, ...free, problem);
  return make("div", { class: "question" }, make("p", {}, linkTo(question.run), question.state ? ` in ${question.state}` : ""),
    make("pre", {}, question.text), question.running ? "" : make("p", { class: "soft" }, `The run is not running. To resume it: llc resume ${question.run}`), form);
}

function showQuestions(questions) {
  const keys = questions.map((question) => JSON.stringify(question));
  for (const [key, element] of forms) {
    if (!keys.includes(key)) { element.remove(); forms.delete(key); }
  }
  questions.forEach((question, number) => {
    if (forms.has(keys[number])) return;
    forms.set(keys[number], questionForm(question));
    byId("questions").append(forms.get(keys[number]));
  });
  byId("inbox").hidden = !questions.length;
}

function showBudget({ ledgers, today }) {
  const amount = (row, value) => row.unit === "usd" ? `${value.toFixed(4)} USD` : `${value.toLocaleString("en")} ${row.unit}`;
  const rows = ledgers.map((row) => [[row.scope, row.name, row.period].filter(Boolean).join(" "), amount(row, row.limit),
    amount(row, row.spent) + (row.is_least ? " at least" : "")]);
  const used = `Today: ${today.usd.toFixed(4)} USD, ${today.tokens.toLocaleString("en")} tokens, ${today.calls.toLocaleString("en")} calls`;
  put("budgets", make("div", {}, table(["Ledger", "Limit", "Spent"], rows, "No limit is set."), make("p", { class: "soft" }, used)));
}

function showLoops(loops) {
  byId("loops").replaceChildren(...loops.map(({ name, file }) => make("li", {},
    make("a", { href: "/loops/" + encodeURIComponent(name) }, name), make("span", { class: "soft" }, ` ${file}`))));
}

const parts = [["/api/runs", showRuns], ["/api/questions", showQuestions], ["/api/budget", showBudget], ["/api/loops", showLoops]];
let is_busy = false;

async function refresh() {
  if (is_busy) return;
  is_busy = true;
  try {
    for (const [address, show] of parts) {
      const data = await fetchChanges(address);
      if (data !== undefined) show(data);
    }
    note(refusal, refusal !== "");
    document.documentElement.dataset.ready = "yes";
  } catch (error) {
    note(error.status ? error.message : "The server (llc ui) has ended.", true);
  }
  is_busy = false;
}

(async () => {
  byId("filter").addEventListener("input", () => known["/api/runs"] && showRuns());
  const [, token] = /^#token=(.+)$/.exec(location.hash) || [];
  if (token) {
    history.replaceState(null, "", "/");
    await fetch("/session", { method: "POST", headers: { Authorization: `Bearer ${token}` } });
  }
  await refresh();
  setInterval(refresh, PERIOD_MS);
})();
