// The page is whole without this: it filters the claims, and opens the table that a number points at.
(function () {
  "use strict";
  const form = document.querySelector(".filter");
  const rows = Array.from(document.querySelectorAll(".verdicts tbody tr"));
  const folded = document.querySelector(".unjudged");
  const fields = form.elements;

  function filter() {
    const verdict = fields.verdict.value;
    const experiment = fields.experiment.value;
    const words = fields.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (folded && (verdict || experiment || words.length)) folded.open = true;
    let shown = 0;
    for (const row of rows) {
      const data = row.dataset;
      const fits =
        (!verdict || data.verdict === verdict) &&
        (!experiment || data.experiment === experiment) &&
        words.every((word) => data.text.includes(word));
      row.hidden = !fits;
      shown += fits ? 1 : 0;
    }
    form.querySelector("output").textContent = shown + " of " + rows.length + " claims";
  }

  // #verdict=differs&experiment=serial&text=decode is a filter that can be sent to someone.
  function remember() {
    const set = new URLSearchParams();
    for (const name of ["verdict", "experiment", "text"]) {
      if (fields[name].value) set.set(name, fields[name].value);
    }
    history.replaceState(null, "", "#" + (set.toString() || "verdicts"));
  }

  function recall() {
    const set = new URLSearchParams(location.hash.slice(1));
    const verdict = set.get("verdict") || "";
    for (const radio of fields.verdict) radio.checked = radio.value === verdict;
    fields.experiment.value = set.get("experiment") || "";
    fields.text.value = set.get("text") || "";
    filter();
  }

  function reveal() {
    for (const old of document.querySelectorAll(".aimed")) old.classList.remove("aimed");
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    // A claim that the filter hides is no place to go to.
    if (target.hidden) {
      form.reset();
      filter();
    }
    const closed = target.closest("details");
    if (closed) closed.open = true;
    // In a table that lies, a row is a column.
    if (target.matches(".transposed thead th")) {
      for (const row of target.closest("table").rows) row.cells[target.cellIndex].classList.add("aimed");
    }
    target.scrollIntoView({ block: closed === target ? "start" : "center", inline: "nearest" });
  }

  function follow() {
    if (location.hash.includes("=")) {
      recall();
      document.getElementById("verdicts").scrollIntoView();
    } else {
      reveal();
    }
  }

  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => {
    filter();
    remember();
  });
  window.addEventListener("hashchange", follow);
  filter();
  if (location.hash.length > 1) follow();
})();
