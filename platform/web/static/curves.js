// Curves of metrics: small charts side by side, one line a group with a band over its seeds, one cursor for all.
// Data come from a stream of an experiment that runs, from the rows of several that are compared, or from the steps of an episode.
const charts = document.getElementById("charts"), legend = document.getElementById("legend"), slider = document.getElementById("smooth");
const numbers = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const COLOURS = 8, DASHES = [[], [9, 5], [3, 4]], HEIGHT = 190, WIDEST_TABLE = 12;
const groups = []; // their names, in the order in which they came: a group keeps its colour
const shown = new Map(); // by metric: chart, and by group and step the values of seeds

const style = (name) => () => { // a canvas needs the colour itself, where CSS has light-dark(…)
  charts.style.outlineColor = `var(${name})`;
  return getComputedStyle(charts).outlineColor;
};
const dashes = (k) => Math.floor(k / COLOURS) % DASHES.length; // of groups beyond the colours
const colour = (k) => style(`--c${k % COLOURS}`);
const band = (k) => () => colour(k)().replace("rgb(", "rgba(").replace(")", ", 0.18)");

// Exponential smoothing without a bias to the first value: Σ w^i x / Σ w^i.
const smooth = (values, w) => {
  let sum = 0, weight = 0;
  return values.map((value) => {
    if (value == null) return null;
    sum = sum * w + value * (1 - w);
    weight = weight * w + (1 - w);
    return sum / weight;
  });
};

// What a reader looks at first; the rest stands below, folded.
const main = (name) => !name.startsWith("time/") && !name.startsWith("system/") && (!name.startsWith("train/") || /loss|q_value$|td_error/.test(name));
const more = document.getElementById("more");
const rank = (name) => ["evaluation/return", "evaluation/", "holdout/", "scorers/", "train/"].findIndex((start) => name.startsWith(start)) + 1 || 9;
const axis = { stroke: style("--soft"), grid: { stroke: style("--edge"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
const ticks = (_, values, axis, space, step) => { // as many digits as tell one from the next
  const most = Math.max(...values.map(Math.abs)), digits = Math.ceil(Math.log10(most / step || 1)) + 1;
  const format = new Intl.NumberFormat("en", { maximumSignificantDigits: Math.min(Math.max(digits, 4), 15) });
  return values.map((value) => value == null ? "" : format.format(value));
};
const thousands = (_, values) => values.map((value) => Math.abs(value) >= 10_000 ? `${value / 1000}k` : value);

const chartOf = (name) => {
  if (shown.has(name)) return shown.get(name);
  const figure = document.createElement("figure"), caption = document.createElement("figcaption"), last = document.createElement("output");
  caption.append(name, " ", last);
  figure.append(caption);
  figure.setAttribute("aria-label", `Curve of ${name}`);
  figure.dataset.metric = name;
  const place = more && !main(name) ? more : charts;
  if (place === more) more.closest("details").hidden = false;
  const after = [...place.children].find((other) => rank(other.dataset.metric) > rank(name) || (rank(other.dataset.metric) === rank(name) && other.dataset.metric > name));
  place.insertBefore(figure, after ?? null);
  const made = { figure, last, values: new Map(), plot: null, drawn: 0 };
  new ResizeObserver(() => made.plot?.setSize({ width: figure.clientWidth - 26, height: HEIGHT })).observe(figure);
  shown.set(name, made);
  return made;
};

const groupOf = (name) => {
  if (!groups.includes(name)) {
    groups.push(name);
    if (legend && name) { // what differs in seeds alone needs none
      const item = document.createElement("li"), line = document.createElement("i");
      line.className = `line c${(groups.length - 1) % COLOURS} d${dashes(groups.length - 1)}`;
      item.append(line, " ", name);
      legend.append(item);
    }
  }
  return groups.indexOf(name);
};

const add = (rows) => {
  for (const { group, seed, step, metrics } of rows) {
    groupOf(group);
    for (const [name, value] of Object.entries(metrics)) {
      const chart = chartOf(name);
      if (!chart.values.has(group)) chart.values.set(group, new Map());
      const steps = chart.values.get(group);
      if (!steps.has(step)) steps.set(step, new Map());
      steps.get(step).set(seed, value);
    }
  }
  later();
};

const draw = (chart, w) => {
  const steps = [...new Set([...chart.values.values()].flatMap((one) => [...one.keys()]))].sort((a, b) => a - b);
  const data = [steps], series = [{}], bands = [], latest = [];
  groups.forEach((group, k) => {
    const found = chart.values.get(group);
    const of = (reduce) => smooth(steps.map((step) => found?.has(step) ? reduce([...found.get(step).values()]) : null), w);
    const mean = of((x) => x.reduce((a, b) => a + b) / x.length);
    data.push(of((x) => Math.max(...x)), of((x) => Math.min(...x)), mean);
    const from = series.length;
    series.push({ stroke: "transparent", points: { show: false }, spanGaps: true }, { stroke: "transparent", points: { show: false }, spanGaps: true });
    series.push({ stroke: colour(k), width: 2, dash: DASHES[dashes(k)], points: { show: steps.length < 3 }, spanGaps: true });
    bands.push({ series: [from, from + 1], fill: band(k) });
    latest.push(mean);
  });
  const tell = (at) => {
    chart.last.textContent = latest.map((mean) => at == null ? mean.findLast((v) => v != null) : mean[at]).map((v) => v == null ? "–" : numbers.format(v)).join(" · ");
  };
  if (chart.plot && chart.drawn === groups.length) chart.plot.setData(data);
  else {
    chart.plot?.destroy();
    chart.drawn = groups.length;
    chart.plot = new uPlot({
      width: Math.max(chart.figure.clientWidth - 26, 120), height: HEIGHT, legend: { show: false }, scales: { x: { time: false } },
      cursor: { sync: { key: "all" }, y: false }, axes: [{ ...axis, size: 28, values: thousands }, { ...axis, size: 66, values: ticks }], series, bands,
      hooks: { setCursor: [(plot) => chart.tell?.(plot.cursor.idx)] },
    }, data, chart.figure);
  }
  chart.tell = tell;
  tell(chart.plot.cursor.idx);
};

let due = 0;
const later = () => {
  due ||= requestAnimationFrame(() => {
    due = 0;
    for (const chart of shown.values()) draw(chart, slider ? +slider.value : 0);
    fill();
  });
};

const fill = () => { // the same as a table: of the first group, which is the only one of most experiments
  const table = document.getElementById("table");
  if (!table?.closest("details").open) return;
  const names = [...shown.keys()].sort((a, b) => rank(a) - rank(b) || (a > b ? 1 : -1)).slice(0, WIDEST_TABLE);
  const line = (tag, cells) => {
    const row = document.createElement("tr");
    for (const cell of cells) row.appendChild(document.createElement(tag)).textContent = cell;
    return row;
  };
  const steps = [...new Set(names.flatMap((name) => [...(shown.get(name).values.get(groups[0])?.keys() ?? [])]))].sort((a, b) => a - b);
  const mean = (seeds) => seeds ? numbers.format([...seeds.values()].reduce((a, b) => a + b) / seeds.size) : "–";
  table.replaceChildren(line("th", ["step", ...names]), ...steps.map((step) => line("td", [step, ...names.map((name) => mean(shown.get(name).values.get(groups[0])?.get(step)))])));
};

slider?.addEventListener("input", later);
document.getElementById("table")?.closest("details").addEventListener("toggle", later);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => shown.forEach((one) => one.plot?.redraw(false)));

// ---- where the data come from

const told = document.getElementById("stream");
let source = null;
const listen = () => { // a browser has six streams a server: a page that nobody sees gives its own back
  if (document.hidden || source) return;
  source = new EventSource(charts.dataset.events);
  source.addEventListener("rows", (event) => { told.textContent = ""; add(JSON.parse(event.data)); });
  source.addEventListener("end", (event) => {
    source.close();
    document.removeEventListener("visibilitychange", follow);
    if (!shown.size) told.textContent = "Nothing was measured.";
    charts.dataset.ended = JSON.parse(event.data);
  });
  source.onerror = () => { if (source.readyState !== EventSource.CLOSED) told.textContent = "The connection broke; trying again."; };
};
const follow = () => {
  if (document.hidden) { source?.close(); source = null; } else listen();
};
if (charts.dataset.events) {
  document.addEventListener("visibilitychange", follow);
  listen();
}

const json = async (path) => (await fetch(path)).json();
if (charts.dataset.compare) {
  const paths = charts.dataset.compare.split(" "), missing = [];
  Promise.allSettled(paths.map(json)).then((found) => found.forEach(({ value: rows }, k) => { // in the order of the address, which decides colours
    const name = decodeURIComponent(paths[k].split("/").at(-2));
    if (Array.isArray(rows)) add(rows.map((row) => ({ ...row, group: row.group ? `${name}, ${row.group}` : name })));
    else told.textContent = `No curves came of ${missing.push(name) && missing.join(", ")}: load this page again.`;
  }));
}
if (charts.dataset.steps) {
  json(charts.dataset.steps).then(({ steps, columns }) => {
    groups.push("");
    for (const [name, values] of Object.entries(columns)) chartOf(name).values.set("", new Map(steps.map((step, k) => [step, new Map([[0, values[k]]])])));
    later();
  });
}
