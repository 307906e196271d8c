"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";

  // -- small helpers -----------------------------------------------------------------------------------------------

  function $(selector) {
    return document.querySelector(selector);
  }

  function $all(selector) {
    return document.querySelectorAll(selector);
  }

  // A new element inside another; attributes that are null are left out. Text only ever enters as text.
  function add(parent, tag, attributes = {}, text) {
    const svg = parent.namespaceURI === SVG || tag === "svg";
    const node = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== null) node.setAttribute(name, value);
    }
    if (text !== undefined) node.textContent = text;
    parent.appendChild(node);
    return node;
  }

  function set(node, attributes) {
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  }

  // -- numbers and words -------------------------------------------------------------------------------------------

  // Decimals that leave four digits to the largest; the same for a whole column, so that points align.
  function decimalsFor(values) {
    const most = Math.max(0, ...values.map(Math.abs));
    return most > 0 ? Math.min(8, Math.max(0, 3 - Math.floor(Math.log10(most)))) : 3;
  }

  function plain(x) {
    return String(x).replace("-", "\u2212");
  }

  // Nothing is -0.
  function number(x, decimals) {
    return plain(x.toFixed(decimals).replace(/^-(0(\.0*)?)$/, "$1"));
  }

  // Values keep the digits that they have, up to four decimals; whole numbers stay whole.
  function valueDecimals(values) {
    const decimals = values.map((x) => (String(x).split(".")[1] || "").length);
    return Math.min(4, Math.max(...decimals));
  }

  function value(x, decimals) {
    return x !== 0 && Math.abs(x) < 10 ** -decimals ? plain(x) : number(x, decimals);
  }

  function percent(x) {
    return (100 * x).toFixed(1) + "%";
  }

  function count(n) {
    return n.toLocaleString("en-US");
  }

  function many(n, what) {
    return `${count(n)} ${what}${n === 1 ? "" : "s"}`;
  }

  // By signs, not code units: half a sign is no text.
  function short(text, most) {
    const signs = [...text];
    return signs.length > most ? signs.slice(0, most - 1).join("") + "\u2026" : text;
  }

  // -- light and dark ----------------------------------------------------------------------------------------------

  const toggle = $("#theme");
  const system = matchMedia("(prefers-color-scheme: dark)");

  function isDark() {
    const theme = document.documentElement.dataset.theme || (system.matches ? "dark" : "light");
    return theme === "dark";
  }

  function nameToggle() {
    toggle.textContent = isDark() ? "Light" : "Dark";
    toggle.setAttribute("aria-label", `Show this page ${isDark() ? "light" : "dark"}`);
  }

  function startToggle() {
    toggle.hidden = false;
    toggle.onclick = () => {
      document.documentElement.dataset.theme = isDark() ? "light" : "dark";
      nameToggle();
    };
    system.addEventListener("change", nameToggle);
    nameToggle();
  }

  // -- the table of weights begins short ---------------------------------------------------------------------------

  function startWeights() {
    const more = $("[data-more]");
    if (!more) return;
    more.hidden = false;
    more.onclick = () => {
      $(".weights").classList.add("all");
      more.remove();
    };
  }

  // -- line charts -------------------------------------------------------------------------------------------------

  // Round numbers between two, about so many. 1e-9 and 0.999: rounding must not lose a tick at an end.
  function ticks(low, high, about) {
    const rough = (high - low) / about;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
    const extra = step / power === 2.5 ? 1 : 0;
    return { found, decimals: Math.max(0, -Math.floor(Math.log10(step) + 1e-9) + extra) };
  }

  // The first tick at or above a share, so that no line leaves the grid.
  function roundUp(share) {
    const { found } = ticks(0, share, 4);
    const step = found[1] - found[0];
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
    return [figure.closest(".pair") ? 330 : 690, 0.8 * height];
  }

  // chart: x, the numbers of the episodes; y, [low, high]; series, see `addLine`; xName, label, readout;
  // share, for percentages; all, to read all lines at once; read(place, series), the words of the readout.
  function lineChart(figure, chart) {
    const [width, height] = chartSize(figure);
    figure.textContent = "";
    if (!width) return;
    const labelled = chart.series.filter((series) => series.rank !== null);
    const longest = Math.max(...labelled.map((series) => [...series.name].length));
    const signs = Math.min(longest, width > 560 ? 22 : 13);
    const left = 44;
    const right = width - 22 - Math.round(signs * 6.7);
    const top = 10;
    const bottom = height - 30;
    const last = chart.x.length - 1;
    const [low, high] = chart.y;
    const span = chart.x[last] - chart.x[0] || 1;
    const frame = {
      left,
      right,
      top,
      bottom,
      signs,
      last,
      tickCount: height > 300 ? 6 : 4,
      xOf: (episode) => left + ((episode - chart.x[0]) / span) * (right - left),
      x: (place) => frame.xOf(chart.x[place]),
      y: (value) => bottom - ((value - low) / (high - low || 1)) * (bottom - top),
    };
    const svg = add(figure, "svg", {
      viewBox: `0 0 ${width} ${height}`,
      height,
      role: "img",
      "aria-label": chart.label,
    });
    addAxes(svg, chart, frame);
    const cursor = add(svg, "line", { class: "cursor", y1: top, y2: bottom, visibility: "hidden" });
    // The weightiest are drawn last, over the others.
    const drawn = [...chart.series].sort((a, b) => (b.rank ?? 1e9) - (a.rank ?? 1e9));
    const lines = drawn.map((series) => addLine(svg, series, frame));
    addLabels(lines, frame);
    followPointer(svg, chart, frame, cursor, lines);
  }

  function addAxes(svg, chart, { left, right, bottom, last, tickCount, xOf, y }) {
    const [low, high] = chart.y;
    const { found, decimals } = ticks(low, high, tickCount);
    for (const tick of found) {
      const kind = Math.abs(tick) < 1e-12 ? "base" : "grid";
      const text = chart.share ? `${Math.round(100 * tick)}%` : number(tick, decimals);
      add(svg, "line", { class: kind, x1: left, x2: right, y1: y(tick), y2: y(tick) });
      add(svg, "text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, text);
    }
    const first = chart.x[0];
    const end = chart.x[last];
    const episodes = ticks(first, Math.max(end, first + 1), Math.max(2, (right - left) / 80)).found;
    for (const tick of episodes) {
      // A number that would touch the axis' name is left out.
      const fits = xOf(tick) + 4 * String(tick).length < right + 8;
      if (Number.isInteger(tick) && tick <= end && fits) {
        add(svg, "text", { x: xOf(tick), y: bottom + 18, "text-anchor": "middle" }, plain(tick));
      }
    }
    add(svg, "text", { x: right + 14, y: bottom + 18 }, chart.xName);
  }

  // series: name; values, null where there is none; colour; rank, of its label, null for none; ahead, the place from
  // which on it is dashed; dotted, for all of it; thin.
  function addLine(svg, series, { last, x, y }) {
    const group = add(svg, "g", { "data-series": series.name });
    const thin = series.rank === null || series.thin || last > 120 ? " thin" : "";

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

  function addLabels(lines, { right, top, bottom, signs, x, y }) {
    const named = lines.filter((line) => line.series.rank !== null && line.end !== undefined);
    const wanted = named.map((line) => ({ line, y: y(line.series.values[line.end]), rank: line.series.rank }));
    const start = right + 14;
    for (const { line, y: from, at } of spread(wanted, top + 4, bottom - 6, 15)) {
      const { series, group, end } = line;
      const leader = `M${x(end) + 3} ${from.toFixed(1)}L${start - 3} ${at.toFixed(1)}`;
      add(group, "path", { class: "leader", d: leader, stroke: series.colour });
      const place = { class: "label", x: start, y: at + 4, direction: "ltr", "unicode-bidi": "isolate" };
      const text = add(group, "text", place, short(series.name, signs));
      add(text, "title", {}, series.name);
    }
  }

  function followPointer(svg, chart, { last, x, y }, cursor, lines) {
    const readout = chart.readout;
    const rest = readout.textContent;

    function clear() {
      cursor.setAttribute("visibility", "hidden");
      readout.textContent = rest;
      for (const line of lines) {
        line.group.classList.remove("faint");
        line.dot.setAttribute("visibility", "hidden");
      }
    }

    function nearest(items, distance) {
      return items.reduce((best, item) => (distance(item) < distance(best) ? item : best), items[0]);
    }

    function read(event) {
      const box = svg.getBoundingClientRect();
      const places = Array.from({ length: last + 1 }, (_, i) => i);
      const at = nearest(places, (i) => Math.abs(x(i) - (event.clientX - box.left)));
      const height = (line) => y(line.series.values[at]);
      const here = lines.filter((line) => line.series.values[at] !== null);
      const near = nearest(here, (line) => Math.abs(height(line) - (event.clientY - box.top)));
      const marked = chart.all || !near ? here : [near];
      clear();
      set(cursor, { visibility: "visible", x1: x(at), x2: x(at) });
      for (const line of marked) set(line.dot, { visibility: "visible", cx: x(at), cy: height(line) });
      if (!chart.all) {
        for (const line of lines) line.group.classList.toggle("faint", line !== near);
      }
      const series = marked.map((line) => line.series);
      readout.textContent = chart.read(at, series);
    }

    svg.addEventListener("pointerleave", clear);
    svg.addEventListener("pointermove", read);
  }

  // -- the three charts --------------------------------------------------------------------------------------------

  const COLOURS = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6"].map((name) => `var(${name})`);
  const LABELLED = 14;
  const episodes = data.episodes.map((episode) => episode.number);

  // With room around the lines.
  function bounds(values, least) {
    const low = Math.min(0, ...values);
    const high = Math.max(least, ...values);
    const pad = 0.03 * (high - low);
    return [low < 0 ? low - pad : 0, high + pad];
  }

  function when(place) {
    if (place < episodes.length) return `Episode ${episodes[place]}`;
    if (place === episodes.length) return "Right after the log";
    return `After ${place - episodes.length + 1} updates`;
  }

  function shares(key) {
    return data.episodes.map((episode) => episode[key]);
  }

  function drawEvolution() {
    const rows = [...data.evolution, ...data.forecast];
    const values = data.lines.map((_, line) => rows.map((row) => row[line]));
    // Colours and labels for those that weigh most at the end, where the labels stand.
    const peak = values.map((line) => Math.max(...line.slice(-data.forecast.length - 1).map(Math.abs)));
    const order = [...peak.keys()].sort((a, b) => peak[b] - peak[a]);
    const decimals = decimalsFor(rows.flat());
    const next = episodes[episodes.length - 1] + 1;
    lineChart($("#chart-evolution"), {
      x: [...episodes, ...data.forecast.map((_, k) => next + k)],
      y: bounds(values.flat(), 1e-9),
      readout: $("#read-evolution"),
      xName: "episode",
      label:
        `Lines: weight of ${many(values.length, "feature")} over ${many(data.n_episodes, "episode")}. ` +
        "The table below has the same numbers.",
      series: values.map((line, f) => {
        const rank = order.indexOf(f);
        return {
          name: data.names[f],
          values: line,
          ahead: episodes.length - 1,
          rank: rank < LABELLED ? rank : null,
          colour: rank < COLOURS.length ? COLOURS[rank] : "var(--other)",
          thin: rank >= COLOURS.length,
        };
      }),
      read: (place, [series]) =>
        series ? `${when(place)}: ${short(series.name, 60)} ${number(series.values[place], decimals)}` : "",
    });
  }

  function drawPrediction() {
    lineChart($("#chart-prediction"), {
      x: episodes,
      y: [0, 1],
      share: true,
      all: true,
      readout: $("#read-prediction"),
      xName: "episode",
      label:
        "Lines: share of choices predicted by IBCB, by a choice model and by chance, per episode. " +
        "The table below has the same numbers.",
      series: [
        { name: "IBCB", values: shares("predicted"), colour: "var(--c1)", rank: 0 },
        { name: "choice model", values: shares("rival"), colour: "var(--other)", rank: 1 },
        { name: "chance", values: shares("chance"), colour: "var(--other)", rank: 2, dotted: true, thin: true },
      ],
      read: (place, series) => {
        const named = series.map((s) => `${s.name} ${percent(s.values[place])}`);
        return `${when(place)}: ${named.reverse().join(", ")}`;
      },
    });
  }

  function drawExploration() {
    const explored = shares("explored");
    const most = Math.max(0.05, ...explored.filter((share) => share !== null));
    lineChart($("#chart-exploration"), {
      x: episodes,
      y: [0, roundUp(most)],
      share: true,
      all: true,
      readout: $("#read-exploration"),
      xName: "episode",
      label: "Line: share of choices that exploration decided, per episode. The table below has the same numbers.",
      series: [{ name: "exploration", values: explored, colour: "var(--c2)", rank: 0 }],
      read: (place, [series]) => (series ? `${when(place)}: exploration ${percent(series.values[place])}` : ""),
    });
  }

  function drawCharts() {
    drawEvolution();
    drawPrediction();
    drawExploration();
  }

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

  // -- explorer: which step ----------------------------------------------------------------------------------------

  // Steps come as lists, to keep the page small; these are the names of `SampledStep`, in order.
  const FIELDS = [
    "step",
    "id",
    "time",
    "n",
    "chosen",
    "picked",
    "greedy",
    "predicted",
    "explored",
    "contradicts",
    "candidates",
    "expected",
    "width",
    "values",
  ];
  const sample = (data.sample || []).map((episode) => ({ ...episode, steps: episode.steps.map(namedStep) }));
  const FILTERS = [
    { key: "all", name: "All steps", test: () => true, none: "No steps." },
    {
      key: "disagree",
      name: "Model disagrees",
      test: disagrees,
      none: "The recovered policies make every choice shown here as the decider did.",
    },
    {
      key: "surprise",
      name: "Not predicted",
      test: surprises,
      none: "Every choice shown here was predicted one episode ahead.",
    },
    {
      key: "explored",
      name: "Exploration decided",
      test: (step) => step.explored,
      none: "No choice shown here was decided by exploration.",
      left: !data.bonus,
    },
    {
      key: "contradicts",
      name: "Contradicting",
      test: (step) => step.contradicts,
      none: "No step contradicts others.",
      left: !sample.some((episode) => episode.steps.some((step) => step.contradicts)),
    },
  ].filter((filter) => !filter.left);
  // `rival`: the candidate that was clicked; `all`: the tables that somebody wanted to see whole.
  const state = { filter: FILTERS[0], episode: 0, step: 0, rival: null, all: new Set() };
  // The episodes that have steps of the filter, with these steps alone.
  let lists = [];

  function namedStep(row) {
    return Object.fromEntries(FIELDS.map((name, i) => [name, row[i]]));
  }

  function disagrees(step) {
    return step.picked !== step.chosen;
  }

  function surprises(step) {
    return step.predicted !== null && step.predicted !== step.chosen;
  }

  // Stays with the step that is shown, if it is of the filter; else with its episode, or the next.
  function setFilter(filter) {
    const episode = lists[state.episode];
    const here = episode?.steps[state.step];
    const from = episode?.number ?? 0;
    lists = sample
      .map((each) => ({ ...each, steps: each.steps.filter(filter.test) }))
      .filter((each) => each.steps.length);
    state.filter = filter;
    state.episode = Math.max(
      0,
      lists.findIndex((each) => each.number >= from),
    );
    state.step = Math.max(0, lists[state.episode]?.steps.indexOf(here) ?? 0);
    state.rival = null;
    const select = $("#pick-episode");
    select.textContent = "";
    lists.forEach((each, i) => {
      add(select, "option", { value: i }, `Episode ${each.number} (${many(each.steps.length, "step")})`);
    });
    show();
  }

  function moveTo(episode, step) {
    state.episode = episode;
    state.step = step;
    state.rival = null;
    show();
  }

  function goEpisode(by) {
    const to = Math.min(lists.length - 1, Math.max(0, state.episode + by));
    moveTo(to, to === state.episode ? state.step : 0);
  }

  // Over the end of an episode into the next.
  function goStep(by) {
    const to = state.step + by;
    const { episode } = state;
    if (to < 0) {
      if (episode > 0) moveTo(episode - 1, lists[episode - 1].steps.length - 1);
    } else if (to >= lists[episode].steps.length) {
      if (episode < lists.length - 1) moveTo(episode + 1, 0);
    } else {
      moveTo(episode, to);
    }
  }

  function go(what, by) {
    if (!lists.length) return;
    if (what === "episode") goEpisode(by);
    else goStep(by);
  }

  function drawStrip() {
    const strip = $("#strip");
    const episode = lists[state.episode];
    if (!strip) return;
    strip.textContent = "";
    const width = strip.clientWidth;
    if (!width || !episode) return;
    const svg = add(strip, "svg", { viewBox: `0 0 ${width} 30`, preserveAspectRatio: "none" });
    const pitch = Math.min(14, width / episode.steps.length);
    const gap = pitch > 3 ? 1 : 0;
    episode.steps.forEach((step, i) => {
      const here = i === state.step;
      let kind = step.explored ? "explored" : "";
      if (disagrees(step) || surprises(step)) kind = "odd";
      if (here) kind = "here";
      add(svg, "rect", {
        class: kind,
        x: i * pitch,
        width: Math.max(1, pitch - gap),
        y: here ? 0 : 8,
        height: here ? 30 : 14,
      });
    });
    svg.onclick = (event) => {
      const at = Math.floor((event.clientX - svg.getBoundingClientRect().left) / pitch);
      moveTo(state.episode, Math.min(episode.steps.length - 1, Math.max(0, at)));
    };
  }

  // -- explorer: the step ------------------------------------------------------------------------------------------

  function sentence(step) {
    const parts = [`The decider took candidate ${step.chosen}.`];
    const same = step.expected.every((e) => e === step.expected[0]);
    const blank = same && step.candidates.length > 1;
    if (!blank || data.bonus) {
      parts.push(disagrees(step) ? `The model would take ${step.picked}.` : "The model would, too.");
    }
    if (step.predicted !== null) {
      const predict = surprises(step) ? step.predicted : "it";
      parts.push(`The episodes before predict ${predict}.`);
    }
    if (step.explored && blank) {
      parts.push(`Nothing had been learned yet: ${data.bonus ? "exploration" : "luck"} decided.`);
    } else if (step.explored && data.bonus) {
      parts.push(`Without the bonus it would be ${step.greedy}: exploration decided.`);
    } else if (step.explored) {
      parts.push(`The best expected is ${step.greedy}: chance decided.`);
    }
    if (step.contradicts) parts.push("This choice contradicts others.");
    return parts.join(" ");
  }

  function show() {
    const episode = lists[state.episode];
    $("#stage").textContent = "";
    drawStrip();
    if (episode) showStep(episode, episode.steps[state.step]);
    else showNothing();
  }

  function showNothing() {
    for (const button of $all("[data-go]")) button.disabled = true;
    $("#place").textContent = "no step";
    add($("#stage"), "p", { class: "empty" }, state.filter.none);
    $("#spoken").textContent = state.filter.none;
  }

  function showStep(episode, step) {
    const stage = $("#stage");
    const lastEpisode = state.episode === lists.length - 1;
    const lastStep = state.step === episode.steps.length - 1;
    $('[data-go="step-1"]').disabled = state.episode === 0 && state.step === 0;
    $('[data-go="step+1"]').disabled = lastEpisode && lastStep;
    $('[data-go="episode-1"]').disabled = state.episode === 0;
    $('[data-go="episode+1"]').disabled = lastEpisode;
    $("#pick-episode").value = state.episode;
    $("#place").textContent = `step ${state.step + 1} of ${count(episode.steps.length)}`;
    add(stage, "h3", {}, `Episode ${episode.number}, step ${step.step}`);
    addMeta(stage, step);
    add(stage, "p", { class: "says" }, sentence(step));
    addCandidates(stage, step);
    addWhy(stage, episode, step);
    $("#spoken").textContent = `Episode ${episode.number}, step ${step.step}. ${sentence(step)}`;
  }

  // Id and time, each on its own: text of one must not turn the direction of the other.
  function addMeta(stage, step) {
    const meta = [step.id, step.time].filter((text) => text !== null);
    if (!meta.length) return;
    const line = add(stage, "p", { class: "meta" });
    meta.forEach((text, i) => {
      const long = text.length > 120;
      if (i) line.append(" \u00b7 ");
      add(line, "bdi", { class: long ? "name" : null, title: long ? text : null }, text);
    });
  }

  // -- explorer: its candidates ------------------------------------------------------------------------------------

  // Roles are given: a table that is laid out as a grid loses its own.
  function addCandidates(stage, step) {
    addLegend(stage);
    const table = add(stage, "table", { class: "candidates", role: "table" });
    add(table, "caption", { class: "unseen" }, "Candidates, best score first");
    const head = add(add(table, "thead", { role: "rowgroup" }), "tr", { role: "row" });
    const titles = data.bonus
      ? ["candidate", "", "expected", "bonus", "score"]
      : ["candidate", "", ...(data.narrows ? ["spread H"] : []), "expected"];
    titles.forEach((title, i) => {
      const kind = { class: i > 1 ? "num" : null, "aria-hidden": i === 1 ? "true" : null };
      add(head, "th", { scope: "col", role: "columnheader", ...kind }, title);
    });
    const body = add(table, "tbody", { role: "rowgroup" });
    const total = step.expected.map((e, i) => e + (data.bonus ? step.width[i] : 0));
    const least = Math.min(...step.expected);
    const scale = {
      total,
      least,
      most: Math.max(...total) - least || 1,
      digits: decimalsFor([...step.expected, ...total]),
    };
    const shown = candidatesShown(step);
    step.candidates.forEach((candidate, i) => {
      if (shown.has(candidate)) addCandidate(body, step, candidate, i, scale);
    });
    if (shown.size < step.candidates.length) {
      addExpander(stage, "candidates", step.candidates.length);
    } else if (step.n > step.candidates.length) {
      const text = `The best ${step.candidates.length} of ${many(step.n, "candidate")}.`;
      add(stage, "p", { class: "fine" }, text);
    }
  }

  function addLegend(stage) {
    const legend = add(stage, "ul", { class: "legend" });
    const entries = [["swatch-e", "expected, above the least expected candidate"]];
    if (data.bonus) entries.push(["swatch-h", "exploration bonus"]);
    for (const [swatch, text] of entries) {
      const item = add(legend, "li");
      add(item, "i", { class: swatch });
      item.append(text);
    }
  }

  // The first twelve and those that the text speaks of; all of them if that leaves out but one or two.
  function candidatesShown(step) {
    const spoken = [step.chosen, step.picked, step.predicted];
    const few = step.candidates.filter((candidate, i) => i < 12 || spoken.includes(candidate));
    const cut = few.length + 2 < step.candidates.length && !state.all.has("candidates");
    return new Set(cut ? few : step.candidates);
  }

  function addCandidate(body, step, candidate, i, { total, least, most, digits }) {
    const taken = candidate === step.chosen;
    const row = add(body, "tr", { role: "row", class: taken ? "chosen" : null, "data-candidate": candidate });
    const who = add(row, "th", { scope: "row", role: "rowheader", class: "who" });
    const compare = "compare with the one taken";
    const button = add(
      who,
      "button",
      {
        type: "button",
        "aria-pressed": String(candidate === rivalOf(step)),
        "aria-label": `Candidate ${candidate}: ${compare}`,
        title: compare,
      },
      candidate,
    );
    button.onclick = () => {
      state.rival = candidate;
      show();
      // The table is a new one: the focus would be lost.
      $(`tr[data-candidate="${candidate}"] button`).focus();
    };
    if (taken) add(who, "span", { class: "mark chosen" }, "taken");
    if (candidate === step.picked && disagrees(step)) add(who, "span", { class: "mark" }, "model");
    if (candidate === step.predicted && surprises(step)) add(who, "span", { class: "mark" }, "predicted");

    const draw = add(row, "td", { class: "draw", role: "cell", "aria-hidden": "true" });
    const track = add(draw, "span", { class: "track" });
    const expected = ((100 * (step.expected[i] - least)) / most).toFixed(2);
    const bonus = ((100 * step.width[i]) / most).toFixed(2);
    add(track, "i", { class: "e", style: `left:0;width:${expected}%` });
    if (data.bonus) add(track, "i", { class: "h", style: `left:${expected}%;width:${bonus}%` });

    if (data.bonus) add(row, "td", { class: "num part", role: "cell" }, number(step.expected[i], digits));
    if (data.bonus || data.narrows) add(row, "td", { class: "num part", role: "cell" }, number(step.width[i], digits));
    add(row, "td", { class: "num total", role: "cell" }, number(total[i], digits));
  }

  // Long tables begin short, on every step until somebody asks for all.
  function addExpander(stage, what, length) {
    const button = add(stage, "button", { type: "button", class: "plain" }, `Show all ${length} ${what}`);
    button.onclick = () => {
      state.all.add(what);
      show();
      focusStage();
    };
  }

  function focusStage() {
    $("#stage").focus({ preventScroll: true });
  }

  // -- explorer: why this one and not another ----------------------------------------------------------------------

  // Whom to compare the taken one with: a candidate that was clicked, else the model's pick, else the next best.
  function rivalOf(step) {
    if (state.rival !== null && state.rival !== step.chosen) return state.rival;
    if (disagrees(step)) return step.picked;
    return step.candidates.find((candidate) => candidate !== step.chosen);
  }

  function addWhy(stage, episode, step) {
    const other = rivalOf(step);
    if (other === undefined) {
      add(stage, "p", { class: "fine" }, "There was no other candidate.");
      return;
    }
    const one = step.candidates.indexOf(step.chosen);
    const two = step.candidates.indexOf(other);
    const rows = episode.features.map((feature, i) => {
      const weight = episode.weights[i];
      const [a, b] = [step.values[one][i], step.values[two][i]];
      return { name: data.columns[feature], weight, a, b, effect: weight * (a - b) };
    });
    rows.sort((p, q) => Math.abs(q.effect) - Math.abs(p.effect));

    const lead = step.expected[one] - step.expected[two];
    const digits = decimalsFor([...rows.map((row) => row.effect), lead]);
    // What is shown as 0 has no sign.
    const signed = (x) => (x > 0 && Number(x.toFixed(digits)) !== 0 ? "+" : "") + number(x, digits);
    let text = `Expected: ${signed(lead)} for ${step.chosen}`;
    if (data.bonus) {
      const bonus = step.width[one] - step.width[two];
      text += `; exploration bonus: ${signed(bonus)}; together ${signed(lead + bonus)}`;
    }
    text += ".";
    if (rows.length < data.columns.length) {
      text += ` The ${rows.length} of ${count(data.columns.length)} features that matter most here.`;
    }
    add(stage, "h4", {}, `Why ${step.chosen} and not ${other}?`);
    add(stage, "p", { class: "fine" }, text);
    addEffects(stage, rows, step.chosen, other, signed);
  }

  function addEffects(stage, rows, chosen, other, signed) {
    const table = add(add(stage, "div", { class: "scroll" }), "table", { class: "why" });
    const caption = `What each feature adds to the lead of candidate ${chosen} over ${other}`;
    add(table, "caption", { class: "unseen" }, caption);
    const head = add(add(table, "thead"), "tr");
    add(head, "th", { scope: "col" }, "feature");
    add(head, "th", { scope: "col", class: "num weight" }, "weight");
    for (const title of [`of ${chosen}`, `of ${other}`, "effect"]) {
      add(head, "th", { scope: "col", class: "num" }, title);
    }
    const body = add(table, "tbody");
    const weightDigits = decimalsFor(rows.map((row) => row.weight));
    const valueDigits = valueDecimals(rows.flatMap((row) => [row.a, row.b]));
    const cut = rows.length > 12 && !state.all.has("features");
    for (const row of cut ? rows.slice(0, 10) : rows) {
      const line = add(body, "tr");
      add(add(line, "th", { scope: "row" }), "bdi", { class: "name", title: row.name }, row.name);
      add(line, "td", { class: "num weight" }, number(row.weight, weightDigits));
      add(line, "td", { class: "num" }, value(row.a, valueDigits));
      add(line, "td", { class: "num" }, value(row.b, valueDigits));
      add(line, "td", { class: "num" }, signed(row.effect));
    }
    if (cut) addExpander(stage, "features", rows.length);
  }

  // -- explorer: its controls --------------------------------------------------------------------------------------

  function startFilters() {
    for (const filter of FILTERS) {
      const label = add($(".filters"), "label");
      const radio = add(label, "input", { type: "radio", name: "filter", value: filter.key });
      const found = sample.reduce((sum, episode) => sum + episode.steps.filter(filter.test).length, 0);
      label.append(filter.name);
      add(label, "b", {}, count(found));
      radio.checked = filter.key === "all";
      radio.onchange = () => setFilter(filter);
    }
  }

  function startButtons() {
    for (const button of $all("[data-go]")) {
      const [, what, by] = button.dataset.go.match(/(\w+)([+-]1)/);
      button.onclick = () => go(what, Number(by));
    }
    $("#pick-episode").onchange = (event) => moveTo(Number(event.target.value), 0);
  }

  function startKeys() {
    const moves = {
      ArrowLeft: ["step", -1],
      ArrowRight: ["step", 1],
      ArrowUp: ["episode", -1],
      ArrowDown: ["episode", 1],
    };
    $("#explorer").addEventListener("keydown", (event) => {
      const move = moves[event.key];
      // Fields and the browser have uses of their own for these keys.
      const taken = event.altKey || event.ctrlKey || event.metaKey || event.target.matches("input, select");
      if (!move || taken) return;
      event.preventDefault();
      go(...move);
      // What had the focus may be gone with the last step.
      if (!document.activeElement || document.activeElement === document.body) focusStage();
    });
  }

  // Links from the list of contradictions.
  function startLinks() {
    for (const link of $all("[data-show]")) {
      const [number, step] = link.dataset.show.split(":").map(Number);
      link.onclick = () => {
        $('.filters input[value="all"]').checked = true;
        setFilter(FILTERS[0]);
        const at = lists.findIndex((episode) => episode.number === number);
        if (at < 0) return;
        moveTo(
          at,
          Math.max(
            0,
            lists[at].steps.findIndex((each) => each.step === step),
          ),
        );
        focusStage();
      };
    }
  }

  function startExplorer() {
    if (!$("#explore")) return;
    $("#explore").hidden = false;
    startFilters();
    startButtons();
    startKeys();
    startLinks();
    setFilter(FILTERS[0]);
  }

  startToggle();
  startWeights();
  startPrinting();
  startExplorer();
  addEventListener("resize", redraw);
  redraw();
})();
