// Line charts: axes, ribbons, labels at the ends, and values by pointer, tap and arrow keys.

// Round numbers between two, about so many. 1e-9 and 0.999: rounding must not lose a tick at an end.
function ticks(low, high, about) {
  const rough = (high - low) / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const marks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) marks.push(k * step);
  const extra = step / power === 2.5 ? 1 : 0;
  return { marks, decimals: Math.max(0, -Math.floor(Math.log10(step) + 1e-9) + extra) };
}

// The first tick at or above a share, so that no line leaves the grid.
function roundUp(share) {
  const { marks } = ticks(0, share, 4);
  const step = marks[1] - marks[0];
  return Math.min(1, Math.ceil(share / step - 1e-9) * step);
}

// Labels at the right end, moved apart where they would overlap; those that do not fit are left out.
function spread(labels, top, bottom, gap) {
  const room = Math.max(1, Math.floor((bottom - top) / gap) + 1);
  const kept = [...labels].sort((a, b) => a.rank - b.rank).slice(0, room);
  kept.sort((a, b) => a.y - b.y);
  kept.forEach((label, i) => {
    label.at = Math.max(label.y, i ? kept[i - 1].at + gap : top);
  });
  let limit = bottom;
  for (const label of [...kept].reverse()) {
    label.at = Math.min(label.at, limit);
    limit = label.at - gap;
  }
  return kept;
}

// On paper a chart has the width of an A4 page, whatever the window's.
let onPaper = false;

function chartSize(figure) {
  const height = Number(figure.dataset.height);
  if (!onPaper) return [figure.clientWidth, height];
  if (figure.closest(".multiples")) return [220, height];
  return [figure.closest(".pair") ? 330 : 690, 0.8 * height];
}

// chart: x, the numbers of the episodes; times, of some of them; y, [low, high]; series, see `addLine`; xName, label,
// readout; share, for percentages; small, for one of many; bars; ends, the place where the log ends;
// read(place), the words of the readout.
function lineChart(figure, chart) {
  const [width, height] = chartSize(figure);
  figure.textContent = "";
  if (!width) return;
  const labelled = chart.series.filter((series) => series.rank !== null);
  const longest = Math.max(0, ...labelled.map((series) => [...series.name].length));
  const room = chart.small ? 0 : Math.min(longest * 7, width > 560 ? 150 : 92, 0.3 * width);
  const left = chart.small ? 46 : 44;
  const right = chart.small ? width - 6 : width - Math.max(room + 22, 14 + chart.xName.length * 7);
  const top = 10;
  const bottom = height - (chart.small ? 20 : 30);
  const last = chart.x.length - 1;
  const [low, high] = chart.y;
  const span = chart.x[last] - chart.x[0] || 1;
  // Bars need room at both ends.
  const inset = chart.bars ? (right - left) / (2 * (last + 1)) : 0;
  const frame = {
    left,
    right,
    top,
    bottom,
    room,
    last,
    tickCount: chart.small ? 2 : height > 300 ? 6 : height < 200 ? 3 : 4,
    xOf: (episode) => left + inset + ((episode - chart.x[0]) / span) * (right - left - 2 * inset),
    x: (place) => frame.xOf(chart.x[place]),
    y: (value) => bottom - ((value - low) / (high - low || 1)) * (bottom - top),
  };
  const svg = add(figure, "svg", {
    viewBox: `0 0 ${width} ${height}`,
    height,
    role: "img",
    tabindex: 0,
    "aria-label": chart.label,
  });
  addAxes(svg, chart, frame);
  addEnd(svg, chart, frame);
  const cursor = add(svg, "line", { class: "cursor", y1: top, y2: bottom, visibility: "hidden" });
  // The weightiest are drawn last, over the others.
  const drawn = [...chart.series].sort((a, b) => (b.rank ?? 1e9) - (a.rank ?? 1e9));
  const lines = drawn.map((series) => (chart.bars ? addBars(svg, series, frame) : addLine(svg, series, frame)));
  if (!chart.small && !chart.bars) addLabels(lines, frame);
  takeReadings(svg, chart, frame, cursor, lines);
}

function addAxes(svg, chart, { left, right, bottom, last, tickCount, xOf, y }) {
  const [low, high] = chart.y;
  const { marks, decimals } = ticks(low, high, tickCount);
  for (const tick of marks) {
    const kind = Math.abs(tick) < 1e-12 * (high - low) ? "base" : "grid";
    const text = chart.share ? `${Math.round(100 * tick)}%` : number(tick, decimals);
    add(svg, "line", { class: kind, x1: left, x2: right, y1: y(tick), y2: y(tick) });
    // Many decimals of a small weight: the number, not its zeros.
    const whole = text.length <= 6 || kind === "base";
    const fits = whole ? text.replace(/^0\.0+$/, "0") : plain(Number(tick.toPrecision(2)).toExponential());
    add(svg, "text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, fits);
  }
  const first = chart.x[0];
  const end = chart.x[last];
  const dated = chart.times && chart.times[0] !== null;
  const longest = dated ? Math.max(...chart.times.map((time) => (time || "").length)) : 0;
  const pitch = dated ? Math.max(70, 7 * longest + 14) : chart.small ? 60 : 80;
  const episodes = ticks(first, Math.max(end, first + 1), Math.max(1, (right - left) / pitch)).marks;
  for (const tick of episodes) {
    if (!Number.isInteger(tick) || tick > end) continue;
    const place = chart.x.indexOf(tick);
    const text = dated ? chart.times[place] : plain(tick);
    // A text that would touch the axis' name, or leave the chart, is left out.
    const half = text ? 3.4 * text.length : 0;
    if (!text || xOf(tick) + half > right + (chart.small ? 6 : 10)) continue;
    const inside = xOf(tick) - half < 0 ? "start" : "middle";
    const at = inside === "start" ? Math.max(0, left - 8) : xOf(tick);
    add(svg, "text", { class: "tick", x: at, y: bottom + (chart.small ? 14 : 18), "text-anchor": inside }, text);
  }
  if (!chart.small) add(svg, "text", { x: right + 14, y: bottom + 18 }, dated ? "" : chart.xName);
}

// A rule where the log ends and the forecast begins.
function addEnd(svg, chart, { right, top, bottom, x }) {
  if (chart.ends === undefined) return;
  const at = x(chart.ends);
  add(svg, "line", { class: "ends", x1: at, x2: at, y1: top, y2: bottom });
  if (chart.small) return;
  const left = right - at < 60;
  const place = { class: "ends-label", x: left ? at - 5 : at + 5, y: bottom - 6 };
  add(svg, "text", { ...place, "text-anchor": left ? "end" : "start" }, "log ends");
}

// series: name; values, null where there is none; colour; rank, of its label, null for none; ahead, the place from
// which on it is dashed; dotted, for all of it; thin; low and high, of its ribbon.
function addLine(svg, series, { last, x, y }) {
  const group = add(svg, "g", { "data-series": series.name });
  const thin = series.rank === null || series.thin || last > 120 ? " thin" : "";
  if (series.low) addRibbon(group, series, x, y);

  function trace(from, to, dashed) {
    let path = "";
    let on = false;
    for (let i = from; i <= to; i++) {
      if (series.values[i] === null) {
        on = false;
        continue;
      }
      path += `${on ? "L" : "M"}${x(i).toFixed(1)} ${y(series.values[i]).toFixed(1)}`;
      on = true;
    }
    if (!path) return;
    add(group, "path", { class: `series${thin}${dashed ? " ahead" : ""}`, d: path, stroke: series.colour });
  }

  const ahead = series.ahead ?? last;
  trace(0, ahead, series.dotted);
  if (ahead < last) trace(ahead, last, true);
  const known = [...series.values.keys()].filter((i) => series.values[i] !== null);
  // One point makes no line.
  if (known.length === 1) {
    add(group, "circle", { cx: x(known[0]), cy: y(series.values[known[0]]), r: 3, fill: series.colour });
  }
  const dot = add(group, "circle", { r: 4, fill: series.colour, visibility: "hidden" });
  return { series, group, dot, end: known[known.length - 1] };
}

function addRibbon(group, { low, high, colour }, x, y) {
  const known = [...low.keys()].filter((i) => low[i] !== null);
  if (known.length < 2) return;
  const point = (value) => (i) => `${x(i).toFixed(1)} ${y(value[i]).toFixed(1)}`;
  const there = known.map(point(high));
  const back = known.map(point(low)).reverse();
  add(group, "path", { class: "ribbon", d: `M${[...there, ...back].join("L")}Z`, fill: colour });
}

function addBars(svg, series, { left, right, bottom, last, x, y }) {
  const group = add(svg, "g", { "data-series": series.name });
  const width = Math.max(1, Math.min(26, (0.7 * (right - left)) / (last + 1)));
  series.values.forEach((value, i) => {
    add(group, "rect", { x: x(i) - width / 2, width, y: y(value), height: Math.max(0, bottom - y(value)), fill: series.colour });
  });
  return { series, group, dot: add(group, "circle", { r: 3, fill: series.colour, visibility: "hidden" }), end: last };
}

function addLabels(lines, { right, top, bottom, room, x, y }) {
  const named = lines.filter((line) => line.series.rank !== null && line.end !== undefined);
  const wanted = named.map((line) => ({ line, y: y(line.series.values[line.end]), rank: line.series.rank }));
  const start = right + 14;
  for (const { line, y: from, at } of spread(wanted, top + 4, bottom - 6, 15)) {
    const { series, group, end } = line;
    const leader = `M${x(end) + 3} ${from.toFixed(1)}L${start - 3} ${at.toFixed(1)}`;
    add(group, "path", { class: "leader", d: leader, stroke: series.colour });
    const place = { class: "label", x: start, y: at + 4, direction: "ltr", "unicode-bidi": "isolate" };
    const text = add(group, "text", place, series.name);
    fitText(text, series.name, room);
    add(text, "title", {}, series.name);
  }
}

// The pointer, a tap or the arrow keys choose an episode, whose values are written below the chart.
function takeReadings(svg, chart, { last, x, y }, cursor, lines) {
  const readout = chart.readout;
  let at = null;

  function clear() {
    at = null;
    cursor.setAttribute("visibility", "hidden");
    readout.textContent = "\u00a0";
    for (const line of lines) line.dot.setAttribute("visibility", "hidden");
  }

  function read(place) {
    at = place;
    set(cursor, { visibility: "visible", x1: x(at), x2: x(at) });
    for (const line of lines) {
      const value = line.series.values[at];
      if (value === null) line.dot.setAttribute("visibility", "hidden");
      else set(line.dot, { visibility: "visible", cx: x(at), cy: y(value) });
    }
    const words = chart.read(at);
    if (readout.textContent !== words) readout.textContent = words;
  }

  function under(event) {
    const box = svg.getBoundingClientRect();
    const across = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    let nearest = 0;
    for (let i = 1; i <= last; i++) if (Math.abs(x(i) - across) < Math.abs(x(nearest) - across)) nearest = i;
    read(nearest);
  }

  const moves = {
    ArrowLeft: () => Math.max(0, (at ?? 0) - 1),
    ArrowRight: () => Math.min(last, (at ?? -1) + 1),
    Home: () => 0,
    End: () => last,
  };
  svg.addEventListener("pointerdown", under);
  svg.addEventListener("pointermove", under);
  svg.addEventListener("pointerleave", (event) => {
    // A finger that is lifted leaves what it tapped.
    if (event.pointerType === "mouse" && document.activeElement !== svg) clear();
  });
  svg.addEventListener("focus", () => {
    if (at === null) read(last);
  });
  svg.addEventListener("blur", clear);
  svg.addEventListener("keydown", (event) => {
    if (!moves[event.key] || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    read(moves[event.key]());
  });
}
