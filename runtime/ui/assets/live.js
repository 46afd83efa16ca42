// A page of a run that its server keeps up to date.

(() => {
  const { run, version } = JSON.parse(byId("head").textContent).live;
  const address = `/api/runs/${encodeURIComponent(run)}`;
  const stop = make("button", { type: "button", id: "stop", onclick: async () => {
    stop.disabled = true;
    const response = await fetch(`${address}/stop`, { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" });
    if (!response.ok) window.report.say((await response.json()).error.message);
  } }, "Stop this run");
  const bar = make("nav", { "aria-label": "Project" }, make("a", { href: "/" }, "All runs and questions"), " ", stop);
  bar.style.padding = ".5rem 1.25rem 0";
  byId("header").before(bar);
  let turn = Promise.resolve();
  const show = () => { stop.hidden = window.report.runs[0].about.status !== "running"; };
  const begin = () => {
    if (!document.documentElement.dataset.ready) { setTimeout(begin, 20); return; }
    show();
    const source = new EventSource(`${address}/events?from=${encodeURIComponent(version)}`);
    source.addEventListener("message", (event) => {
      turn = turn.then(() => window.report.update(JSON.parse(event.data))).then(show);
    });
    source.addEventListener("reset", () => location.reload());
    for (const name of ["end", "gone"]) source.addEventListener(name, () => { source.close(); show(); });
  };
  begin();
})();
