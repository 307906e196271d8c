// The charts of this page, the table of weights, and printing.

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const episodes = data.episodes.map((episode) => episode.number);
const times = shortTimes(data.episodes.map((episode) => episode.time));
const ahead = data.forecast.map((_, k) => episodes[episodes.length - 1] + 1 + k);
const MULTIPLES = 12;
let allMultiples = false;

// Without the year where there is but one.
function shortTimes(dates) {
  if (!dates.length || dates[0] === null) return null;
  const year = dates[0].slice(0, 5);
  if (!dates.every((time) => time.startsWith(year))) return dates;
  return dates.map((time) => `${MONTHS[Number(time.slice(5, 7)) - 1]} ${Number(time.slice(8, 10))}${time.slice(10)}`);
}

function when(place) {
  if (place < episodes.length) {
    const time = data.episodes[place].time;
    return `Episode ${episodes[place]}${time ? ` (${time})` : ""}`;
  }
  if (place === episodes.length) return "Right after the log";
  return `After ${place - episodes.length + 1} updates`;
}

function shares(key) {
  return data.episodes.map((episode) => episode[key]);
}

function padded(values) {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const pad = 0.08 * (high - low) || 0.1 * Math.abs(high) || 1;
  return [low - pad, high + pad];
}

// A chart of shares by episode, with the updates after the log where `after` has them.
function shareChart(name, { series, top, label, after, ends, ...more }) {
  const figure = $(`#chart-${name}`);
  if (!figure) return;
  const x = after ? [...episodes, ...ahead] : episodes;
  lineChart(figure, {
    x,
    times,
    y: [0, top ?? 1],
    share: true,
    readout: $(`#read-${name}`),
    xName: "episode",
    label: `${label} The table below has the same numbers.`,
    series,
    ends,
    read: (place) => {
      const known = series.filter((each) => (each.values[place] ?? null) !== null);
      const words = known.map((each) => {
        const low = each.low?.[place] ?? null;
        const between = low === null ? "" : ` (${percent(low)} to ${percent(each.high[place])})`;
        return `${each.name} ${percent(each.values[place])}${between}`;
      });
      const unknown = more.unknown && data.episodes[place]?.[more.unknown] === null ? more.why : "";
      return `${when(place)}: ${[...words, unknown].filter(Boolean).join(", ") || "nothing to tell"}`;
    },
  });
}

function drawToday() {
  const values = [...shares("today"), ...data.forecast_today];
  shareChart("today", {
    after: true,
    ends: episodes.length - 1,
    label: "Line: share of today's choices that the policy of each episode would have made.",
    series: [{ name: "same choice", values, ahead: episodes.length - 1, colour: "var(--c1)", rank: 0 }],
  });
}

function drawRegret() {
  const values = shares("regret");
  const most = Math.max(0.05, ...values.filter((share) => share !== null));
  shareChart("regret", {
    top: roundUp(most),
    label: "Line: regret of each episode's choices, as a share of that of random choices.",
    series: [{ name: "regret", values, colour: "var(--c4)", rank: 0 }],
  });
}

function drawPrediction() {
  shareChart("prediction", {
    label: "Lines: share of choices predicted by IBCB, by a choice model and by chance, per episode.",
    unknown: "predicted",
    why: "could not be predicted: too little had been seen before it",
    series: [
      { name: "IBCB", values: shares("predicted"), colour: "var(--c1)", rank: 0 },
      { name: "choice model", values: shares("rival"), colour: "var(--other)", rank: 1 },
      { name: "chance", values: shares("chance"), colour: "var(--other)", rank: 2, dotted: true, thin: true },
    ],
  });
}

function drawExploration() {
  const values = shares("exploration");
  const highs = shares("exploration_high");
  const most = Math.max(0.05, ...[...values, ...highs].filter((share) => share !== null));
  const bounded = highs.some((share) => share !== null);
  shareChart("exploration", {
    top: roundUp(most),
    label: "Line: how much the decider explores, per episode.",
    series: [
      {
        name: "exploration",
        values,
        colour: "var(--c2)",
        rank: 0,
        low: bounded ? shares("exploration_low") : null,
        high: bounded ? highs : null,
      },
    ],
  });
}

function drawMisfits() {
  const figure = $("#chart-misfits");
  if (!figure) return;
  const values = shares("misfits");
  lineChart(figure, {
    x: episodes,
    times,
    y: [0, Math.max(1, ...values)],
    bars: true,
    readout: $("#read-misfits"),
    xName: "episode",
    label: "Bars: choices that do not fit, per episode. The table of episodes above has the same numbers.",
    series: [{ name: "do not fit", values, colour: "var(--c4)", rank: null }],
    read: (place) => {
      const { misfits, steps } = data.episodes[place];
      return `${when(place)}: ${count(misfits)} of ${many(steps, "choice")} (${percent(misfits / steps)})`;
    },
  });
}

// -- weights: small multiples -------------------------------------------------------------------------------------

function drawMultiples() {
  const place = $("#multiples");
  if (!place) return;
  place.textContent = "";
  const shown = allMultiples || onPaper ? data.names.length : Math.min(MULTIPLES, data.names.length);
  for (let line = 0; line < shown; line++) drawMultiple(place, line);
  const more = $("#more-multiples");
  more.hidden = shown === data.names.length;
  more.textContent = `Show all ${data.names.length}`;
  more.onclick = () => {
    allMultiples = true;
    drawMultiples();
    $all("#multiples svg")[MULTIPLES].focus();
  };
}

function drawMultiple(place, line) {
  const box = add(place, "div");
  const name = data.names[line];
  add(add(box, "h4"), "bdi", { class: "name", title: name }, short(name, 30));
  const past = data.evolution.map((row) => row[line]);
  const values = [...past, ...data.forecast.map((row) => row[line])];
  const low = data.lower && data.told[line] ? data.lower.map((row) => row[line]) : null;
  const high = low && data.upper.map((row) => row[line]);
  const decimals = decimalsFor(values);
  const figure = add(box, "figure", { class: "chart", "data-height": 120 });
  lineChart(figure, {
    x: [...episodes, ...ahead],
    times,
    y: padded([...values, ...(low || []), ...(high || [])]),
    small: true,
    readout: $("#read-evolution"),
    xName: "",
    ends: past.length - 1,
    label: `Line: weight of ${name} by episode. The table below has the same numbers.`,
    series: [{ name, values, low, high, ahead: past.length - 1, colour: "var(--c1)", rank: 0 }],
    read: (at) => {
      const known = low && at < low.length;
      const between = known ? ` (${number(low[at], decimals)} to ${number(high[at], decimals)})` : "";
      return `${when(at)}: ${short(name, 60)} ${number(values[at], decimals)}${between}`;
    },
  });
}

// The cards' pictures: no axes, for their text says it all.
function miniature(name) {
  const figure = $(`#${name}`);
  if (!figure) return [null, 0];
  figure.textContent = "";
  const width = onPaper ? 150 : figure.clientWidth;
  return [width ? add(figure, "svg", { viewBox: `0 0 ${width} 44`, height: 44 }) : null, width];
}

function drawMiniatures() {
  drawMini();
  const [svg, width] = miniature("mini-misfits");
  if (!svg) return;
  const values = shares("misfits");
  const most = Math.max(...values);
  const pitch = width / values.length;
  add(svg, "line", { class: "base", x1: 0, x2: width, y1: 40, y2: 40 });
  values.forEach((value, i) => {
    const height = (36 * value) / most;
    add(svg, "rect", { x: i * pitch, width: Math.max(1, 0.75 * pitch), y: 40 - height, height, fill: "var(--c4)" });
  });
}

function drawMini() {
  const [svg, width] = miniature("mini-today");
  if (!svg) return;
  const values = [...shares("today"), 1];
  const point = (value, i) => `${4 + (i / (values.length - 1)) * (width - 8)},${40 - 36 * value}`;
  add(svg, "line", { class: "base", x1: 0, x2: width, y1: 40, y2: 40 });
  add(svg, "polyline", { class: "series", points: values.map(point).join(" "), stroke: "var(--c1)" });
  add(svg, "circle", { cx: width - 4, cy: 4, r: 3, fill: "var(--c1)" });
}

function drawCharts() {
  drawMiniatures();
  drawToday();
  drawRegret();
  drawMultiples();
  drawPrediction();
  drawExploration();
  drawMisfits();
}

// -- tables that begin short, and the unit of weights --------------------------------------------------------------

function startWeights() {
  const more = $("[data-more]");
  if (more) {
    more.hidden = false;
    more.onclick = () => {
      $(".weights").classList.add("all");
      more.remove();
    };
  }
  $("#units").hidden = false;
  for (const radio of $all("#units input")) radio.onchange = () => showUnit(radio.value);
  for (const row of $all("tr.group")) startGroup(row);
}

function showUnit(unit) {
  $(".weights").classList.toggle("by-spread", unit === "spread");
}

function startGroup(row) {
  const members = [...$all("tr.member")].filter((each) => each.dataset.of === row.dataset.group);
  const opener = row.querySelector("button");
  const open = (yes) => {
    opener.setAttribute("aria-expanded", String(yes));
    for (const each of members) each.classList.toggle("closed", !yes);
  };
  opener.hidden = false;
  open(!members.some((each) => each.classList.contains("closed")));
  opener.onclick = () => open(opener.getAttribute("aria-expanded") === "false");
}

function startMisfits() {
  const more = $("[data-all-misfits]");
  if (!more) return;
  more.hidden = false;
  more.onclick = () => {
    $(".misfits").classList.add("all");
    more.remove();
  };
}

// -- printing, and windows that change --------------------------------------------------------------------------------

let drawnWidth = 0;

// Phones report a resize whenever their bars come and go; only the width matters.
function redraw() {
  if (innerWidth === drawnWidth) return;
  drawnWidth = innerWidth;
  drawCharts();
  drawStrip();
}

// Paper cannot be clicked: the table of the episodes is printed open.
function startPrinting() {
  const table = $("#episode-table");
  let opened = false;
  addEventListener("beforeprint", () => {
    onPaper = true;
    drawCharts();
    opened = opened || !table.open;
    table.open = true;
  });
  addEventListener("afterprint", () => {
    onPaper = false;
    drawCharts();
    if (opened) table.open = false;
    opened = false;
  });
}
