// Live page of a run: applies the updates of the server and sends requests.

(() => {
  const { run, version, is_read_only } = JSON.parse(byId("head").textContent).live;
  const address = `/api/runs/${encodeURIComponent(run)}`;
  // Send a request; return the response data, or undefined after an error, which is shown.
  const send = async (action, body) => {
    const response = await fetch(`${address}/${action}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
    const data = await response.json();
    if (response.ok) return data;
    window.report.say([data.error.message, data.error.help].filter(Boolean).join("; "));
    return undefined;
  };
  const button = (id, text, act) => {
    const element = make("button", { type: "button", id, hidden: true, onclick: async () => {
      element.disabled = true;
      await act();
      element.disabled = false;
    } }, text);
    return element;
  };
  const stop = button("stop", "Stop this run", () => send("stop", {}));
  const resume = button("resume", "Resume this run", async () => { if (await send("resume", {})) location.reload(); });
  const bar = make("nav", { "aria-label": "Project" }, make("a", { href: "/" }, "All runs and questions"), " ", stop, " ", resume);
  bar.style.padding = ".5rem 1.25rem 0";
  byId("header").before(bar);
  const has_position = location.hash !== "";
  let turn = Promise.resolve();
  const updateButtons = () => {
    const { status, ended } = window.report.runs[0].about;
    stop.hidden = is_read_only || status !== "running";
    resume.hidden = is_read_only || status === "running" || Boolean(ended);
  };
  const begin = () => {
    if (!document.documentElement.dataset.ready) { setTimeout(begin, 20); return; }
    updateButtons();
    const { runs, rows } = window.report;
    if (!has_position && runs[0].about.status === "running") window.report.go(rows.length - 1);
    if (!is_read_only) window.report.offer("Fork here", async (seq) => {
      const fork = await send("fork", { at: seq });
      if (fork) location.assign("/runs/" + encodeURIComponent(fork.run));
    });
    const source = new EventSource(`${address}/events?from=${encodeURIComponent(version)}`);
    source.addEventListener("message", (event) => {
      turn = turn.then(() => window.report.update(JSON.parse(event.data))).then(updateButtons);
    });
    source.addEventListener("reset", () => location.reload());
    for (const name of ["end", "gone"]) source.addEventListener(name, () => { source.close(); updateButtons(); });
  };
  begin();
})();
