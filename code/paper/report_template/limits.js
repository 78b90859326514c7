// What binds a job: the formulas of wallclock.predict.Pipeline without variance, and the page.
// Times are seconds per image, rates are images per second. `Infinity`: never binds.
"use strict";

// The order in which Pipeline breaks ties.
const RESOURCES = ["accelerator", "main", "transform", "storage"];

// job: load_s (core seconds of a loader), engine ("threads" or "dataloader"), cores, bytes,
// bytes_per_s (of the storage or link), forward_s, on_cpu (the model runs on the loader's cores).
function predict(job) {
  const transform = job.load_s ? job.cores / job.load_s : Infinity;
  const storage = job.bytes && job.bytes_per_s ? job.bytes_per_s / job.bytes : Infinity;
  const seconds = coreSeconds(job);
  const cores = coresSupply(job, seconds);
  const img_per_s = Math.min(transform, storage, job.forward_s ? 1 / job.forward_s : Infinity, cores);
  const paces = { main: job.forward_s, transform: 1 / transform, storage: 1 / storage };
  const slowest = Math.max(paces.main, paces.transform, paces.storage);
  const shared = 1 / cores > slowest * (1 + 1e-9);
  let bottleneck = largest(shared ? seconds : paces);
  if (!shared && bottleneck === "main") bottleneck = "accelerator";
  const supply = { storage, transform, accelerator: 1 / job.forward_s, cores };
  // `limit`: what the page names. Where all parts share the cores, no part alone is the limit.
  return { img_per_s, bottleneck, limit: shared ? "cores" : bottleneck, supply, on_cpu: job.on_cpu };
}

// Core seconds of an image by resource. A DataLoader's host spins while it waits for a GPU.
function coreSeconds(job) {
  const spins = !job.on_cpu && job.engine !== "threads";
  return {
    accelerator: job.on_cpu ? job.forward_s * job.cores : 0,
    main: spins ? job.forward_s : 0,
    transform: job.load_s,
  };
}

function coresSupply(job, seconds) {
  const spent = seconds.accelerator + seconds.main + seconds.transform;
  if (!spent) return Infinity;
  const conserved = job.cores / spent;
  if (!job.on_cpu) return conserved;
  // The pass has all cores: no loader finds a free one.
  const delay = Math.max(Math.min(job.load_s, job.forward_s), job.load_s / job.cores);
  return Math.min(conserved, 1 / (job.forward_s + delay));
}

function largest(seconds) {
  const names = RESOURCES.filter((name) => name in seconds);
  return names.reduce((most, name) => (seconds[name] > seconds[most] ? name : most));
}

// --- the page -----------------------------------------------------------------------------------

const NAMES = {
  storage: "the storage or link",
  transform: "the loader on the CPU: read, decode, resize",
  accelerator: "the model",
  cores_on_cpu: "the CPU cores, for loader and model",
  cores_with_gpu: "the CPU cores, for loader and main process",
};

function start(document) {
  const data = JSON.parse(document.getElementById("data").textContent);
  const form = document.getElementById("job");
  const kind = () => data.kinds[form.kind.value];
  const fillSizes = () => {
    form.kb.value = digits(kind().kb).replace(/,/g, "");
    form.megapixels.value = digits(kind().megapixels);
    const own = kind().loaders.map((loader, index) => new Option(loader.name, index));
    form.loader.replaceChildren(...own);
  };
  form.kind.addEventListener("change", fillSizes);
  form.addEventListener("input", () => show(document, data, form));
  fillSizes();
  show(document, data, form);
}

function show(document, data, form) {
  const invalid = [...form.elements].find((field) => !field.checkValidity());
  if (invalid) {
    say(document, `Enter a number above 0 for “${invalid.dataset.name}”.`);
    return;
  }
  const kind = data.kinds[form.kind.value];
  const chosen = kind.loaders[form.loader.value];
  const ours = kind.loaders.find((loader) => loader.ours);
  const result = predict(jobOf(data, form, kind, chosen));
  const faster = predict(jobOf(data, form, kind, ours));
  say(document, verdict(form, result, chosen, faster));
  drawBars(document, result);
  drawCompared(document, form, kind, (loader) => predict(jobOf(data, form, kind, loader)));
}

function jobOf(data, form, kind, loader) {
  const value = (name) => Number(form[name].value);
  const own = { own: value("own"), cpu: value("own") }[form.model.value];
  const listed = own ? null : data.accelerators[form.model.value];
  const rate = own || (listed.low * data.gflops) / value("gflops");
  return {
    // An image of another size costs in proportion to its pixels: an assumption, marked on the page.
    load_s: (loader.load_s * value("megapixels")) / kind.megapixels,
    engine: loader.engine,
    cores: value("cores"),
    bytes: value("kb") * 1e3,
    bytes_per_s: value("mb_per_s") * 1e6,
    forward_s: 1 / rate,
    on_cpu: form.model.value === "cpu",
  };
}

function verdict(form, result, chosen, faster) {
  const first = `Limited by ${nameOf(result.limit, result)}: ${rate(result)}, ${bill(form, result)}.`;
  if (chosen.ours) return first;
  const gain = faster.img_per_s / result.img_per_s;
  if (gain < 1.03) return `${first} A faster loader would not help.`;
  const then = `${first} With wallclock’s loader ${digits(gain)} × as fast: ${bill(form, faster)}`;
  return faster.limit === result.limit ? `${then}.` : `${then}, limited by ${nameOf(faster.limit, faster)}.`;
}

function nameOf(name, result) {
  if (name !== "cores") return NAMES[name];
  return result.on_cpu ? NAMES.cores_on_cpu : NAMES.cores_with_gpu;
}

function say(document, text) {
  document.getElementById("say").textContent = text;
}

function drawBars(document, result) {
  const parts = ["storage", "transform", "accelerator"];
  if (result.limit === "cores") parts.push("cores");
  const rows = parts.map((name) => [name, result.supply[name]]);
  const top = Math.max(...rows.map((row) => row[1]));
  const bars = rows.map(([name, supply]) => {
    const binds = name === result.limit;
    const row = document.createElement("div");
    row.className = binds ? "supply binds" : "supply";
    const label = document.createElement("b");
    label.textContent = nameOf(name, result);
    const track = document.createElement("div");
    const fill = document.createElement("i");
    // Logarithmic, three decades below the fastest part.
    fill.style.width = `${Math.max(2, 100 * (1 + Math.log10(supply / top) / 3))}%`;
    const text = document.createElement("span");
    text.textContent = `${digits(supply)} images/s${binds ? ": the limit" : ""}`;
    track.append(fill, text);
    row.append(label, track);
    return row;
  });
  document.getElementById("bars").replaceChildren(...bars);
}

function drawCompared(document, form, kind, predicted) {
  const rows = kind.loaders.map((loader) => {
    const result = predicted(loader);
    const cells = [loader.name, digits(result.img_per_s), duration(form, result), dollars(form, result), nameOf(result.limit, result)];
    const row = document.createElement("tr");
    row.append(...cells.map((text, index) => {
      const cell = document.createElement(index ? "td" : "th");
      cell.textContent = text;
      if (index > 0 && index < 4) cell.className = "r";
      return cell;
    }));
    return row;
  });
  document.getElementById("compared").replaceChildren(...rows);
}

const rate = (result) => `${digits(result.img_per_s)} images/s`;
const seconds = (form, result) => Number(form.images.value) / result.img_per_s;
const duration = (form, result) => timeOf(seconds(form, result));
const dollars = (form, result) => ((seconds(form, result) / 3600) * Number(form.usd_per_hour.value)).toFixed(2);
const bill = (form, result) => `${duration(form, result)}, $${dollars(form, result)}`;

function timeOf(seconds) {
  const units = [["days", 86400, 2], ["hours", 3600, 1.5], ["minutes", 60, 1.5], ["seconds", 1, 0]];
  const [name, unit] = units.find(([, unit, least]) => seconds >= least * unit);
  return `${digits(seconds / unit)} ${name}`;
}

function digits(value) {
  if (value >= 99.95) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

if (typeof document !== "undefined") start(document);
