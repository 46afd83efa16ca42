// A page of a run that its server keeps up to date.

(() => {
  const { run, version, is_read_only } = JSON.parse(byId("head").textContent).live;
  const address = `/api/runs/${encodeURIComponent(run)}`;
  // What the server did; undefined where it refused, which is said.
  const ask = async (what, body) => {
    const response = await fetch(`${address}/${what}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
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
  const stop = button("stop", "Stop this run", () => ask("stop", {}));
  const resume = button("resume", "Resume this run", async () => { if (await ask("resume", {})) location.reload(); });
  const bar = make("nav", { "aria-label": "Project" }, make("a", { href: "/" }, "All runs and questions"), " ", stop, " ", resume);
  bar.style.padding = ".5rem 1.25rem 0";
  byId("header").before(bar);
  const is_placed = location.hash !== "";
  let turn = Promise.resolve();
  const show = () => {
    const { status, ended } = window.report.runs[0].about;
    stop.hidden = is_read_only || status !== "running";
    resume.hidden = is_read_only || status === "running" || Boolean(ended);
  };
  const begin = () => {
    if (!document.documentElement.dataset.ready) { setTimeout(begin, 20); return; }
    show();
    const { runs, rows } = window.report;
    if (!is_placed && runs[0].about.status === "running") window.report.go(rows.length - 1);
    if (!is_read_only) window.report.offer("Fork here", async (seq) => {
      const made = await ask("fork", { at: seq });
      if (made) location.assign("/runs/" + encodeURIComponent(made.run));
    });
    const source = new EventSource(`${address}/events?from=${encodeURIComponent(version)}`);
    source.addEventListener("message", (event) => {
      turn = turn.then(() => window.report.update(JSON.parse(event.data))).then(show);
    });
    source.addEventListener("reset", () => location.reload());
    for (const name of ["end", "gone"]) source.addEventListener(name, () => { source.close(); show(); });
  };
  begin();
})();
