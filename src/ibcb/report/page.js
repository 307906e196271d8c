"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (selector) => document.querySelector(selector);
  const SVG = "http://www.w3.org/2000/svg";

  // -- small helpers: text only ever enters as text ----------------------------------------------------------------

  function add(parent, tag, attributes = {}, text) {
    const svg = parent.namespaceURI === SVG || tag === "svg";
    const node = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) if (value !== null) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    parent.appendChild(node);
    return node;
  }
  const minus = (text) => text.replace("-", "\u2212");
  const decimalsFor = (values) => {
    const most = Math.max(0, ...values.map(Math.abs));
    return most > 0 ? Math.min(8, Math.max(0, 3 - Math.floor(Math.log10(most)))) : 3;
  };
  const number = (x, decimals) => minus(x.toFixed(decimals).replace(/^-(0(\.0*)?)$/, "$1"));
  const plain = (x) => minus(String(x));
  // Values keep the digits that they have, up to four decimals; whole numbers stay whole.
  const valueDecimals = (values) => Math.min(4, Math.max(...values.map((x) => (String(x).split(".")[1] || "").length)));
  const value = (x, decimals) => (x !== 0 && Math.abs(x) < 10 ** -decimals ? plain(x) : number(x, decimals));
  const percent = (x) => (100 * x).toFixed(1) + "%";
  const short = (text, most) => { const signs = [...text]; return signs.length > most ? signs.slice(0, most - 1).join("") + "\u2026" : text; };
  const many = (n, what) => `${n.toLocaleString("en-US")} ${what}${n === 1 ? "" : "s"}`;

  // -- light and dark ----------------------------------------------------------------------------------------------

  const toggle = $("#theme"), system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (document.documentElement.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const nameToggle = () => { toggle.textContent = dark() ? "Light" : "Dark"; toggle.setAttribute("aria-label", `Show this page ${dark() ? "light" : "dark"}`); };
  toggle.hidden = false;
  toggle.onclick = () => { document.documentElement.dataset.theme = dark() ? "light" : "dark"; nameToggle(); };
  system.addEventListener("change", nameToggle);
  nameToggle();

  const more = $("[data-more]");
  if (more) { more.hidden = false; more.onclick = () => { $(".weights").classList.add("all"); more.remove(); }; }

  // -- line charts -------------------------------------------------------------------------------------------------

  function ticks(low, high, about) {
    const rough = (high - low) / about, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
    return { found, decimals: Math.max(0, -Math.floor(Math.log10(step) + 1e-9) + (step / power === 2.5 ? 1 : 0)) };
  }

  // The first tick at or above a share, so that no line leaves the grid.
  const roundUp = (share) => { const { found } = ticks(0, share, 4); const step = found[1] - found[0]; return Math.min(1, Math.ceil(share / step - 1e-9) * step); };

  // Labels at the right end, moved apart where they would overlap; those that do not fit are left out.
  function spread(labels, top, bottom, gap) {
    const room = Math.max(1, Math.floor((bottom - top) / gap) + 1);
    const kept = [...labels].sort((a, b) => a.rank - b.rank).slice(0, room).sort((a, b) => a.y - b.y);
    kept.forEach((label, i) => { label.at = Math.max(label.y, i ? kept[i - 1].at + gap : top); });
    for (let i = kept.length - 1, limit = bottom; i >= 0; i--, limit = kept[i + 1].at - gap) kept[i].at = Math.min(kept[i].at, limit);
    return kept;
  }

  // On paper a chart has the width of an A4 page, whatever the window's.
  let paper = false;

  // chart: {x: numbers, series: [{name, values, ahead: from this index on dashed, colour, rank}], y: [low, high], show}
  function lineChart(figure, chart) {
    const width = paper ? (figure.closest(".pair") ? 330 : 690) : figure.clientWidth, height = Number(figure.dataset.height) * (paper ? 0.8 : 1);
    figure.textContent = "";
    if (!width) return;
    const wide = width > 560;
    const longest = Math.max(...chart.series.filter((s) => s.rank !== null).map((s) => [...s.name].length));
    const signs = Math.min(longest, wide ? 22 : 13);
    const right = 22 + Math.round(signs * 6.7), left = 44, top = 10, bottom = height - 30;
    const svg = add(figure, "svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": chart.label });
    const last = chart.x.length - 1, [low, high] = chart.y;
    const x = (i) => left + (last ? ((chart.x[i] - chart.x[0]) / (chart.x[last] - chart.x[0])) * (width - left - right) : 0);
    const y = (v) => bottom - ((v - low) / (high - low || 1)) * (bottom - top);
    const { found, decimals } = ticks(low, high, height > 300 ? 6 : 4);
    for (const tick of found) {
      add(svg, "line", { class: Math.abs(tick) < 1e-12 ? "base" : "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) });
      add(svg, "text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, chart.share ? `${Math.round(100 * tick)}%` : number(tick, decimals));
    }
    const episodes = ticks(chart.x[0], Math.max(chart.x[last], chart.x[0] + 1), Math.max(2, (width - left - right) / 80));
    for (const tick of episodes.found) {
      const at = left + ((tick - chart.x[0]) / (chart.x[last] - chart.x[0] || 1)) * (width - left - right);
      if (Number.isInteger(tick) && tick <= chart.x[last] && at + 4 * String(tick).length < width - right + 8)
        add(svg, "text", { x: at, y: bottom + 18, "text-anchor": "middle" }, plain(tick));
    }
    add(svg, "text", { x: width - right + 14, y: bottom + 18 }, chart.xName);

    const cursor = add(svg, "line", { class: "cursor", y1: top, y2: bottom, visibility: "hidden" });
    const lines = [...chart.series].sort((a, b) => (b.rank ?? 1e9) - (a.rank ?? 1e9)).map((series) => {
      const group = add(svg, "g", { "data-series": series.name });
      const trace = (from, to, extra) => {
        let path = "", on = false;
        for (let i = from; i <= to; i++) {
          if (series.values[i] === null) { on = false; continue; }
          path += `${on ? "L" : "M"}${x(i).toFixed(1)} ${y(series.values[i]).toFixed(1)}`; on = true;
        }
        if (path) add(group, "path", { class: `series${series.rank === null || series.thin || last > 120 ? " thin" : ""}${extra}`, d: path, stroke: series.colour });
        return path;
      };
      const ahead = series.ahead ?? last;
      trace(0, ahead, series.dotted ? " ahead" : "");
      if (ahead < last) trace(ahead, last, " ahead");
      const known = series.values.map((v, i) => (v === null ? -1 : i)).filter((i) => i >= 0);
      if (known.length === 1) add(group, "circle", { cx: x(known[0]), cy: y(series.values[known[0]]), r: 3, fill: series.colour });
      const dot = add(group, "circle", { r: 4, fill: series.colour, visibility: "hidden" });
      return { series, group, dot, end: known[known.length - 1] };
    });
    const named = lines.filter((l) => l.series.rank !== null && l.end !== undefined);
    const labels = spread(named.map((l) => ({ line: l, y: y(l.series.values[l.end]), rank: l.series.rank })), top + 4, bottom - 6, 15);
    for (const { line, y: from, at } of labels) {
      const edge = x(line.end) + 3, start = width - right + 14;
      add(line.group, "path", { class: "leader", d: `M${edge} ${from.toFixed(1)}L${start - 3} ${at.toFixed(1)}`, stroke: line.series.colour });
      const text = add(line.group, "text", { class: "label", x: start, y: at + 4, direction: "ltr", "unicode-bidi": "isolate" }, short(line.series.name, signs));
      add(text, "title", {}, line.series.name);
    }
    const readout = chart.readout, rest = readout.textContent;
    const clear = () => { cursor.setAttribute("visibility", "hidden"); readout.textContent = rest; for (const l of lines) { l.group.classList.remove("faint"); l.dot.setAttribute("visibility", "hidden"); } };
    svg.addEventListener("pointerleave", clear);
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
      let at = 0;
      for (let i = 0; i <= last; i++) if (Math.abs(x(i) - px) < Math.abs(x(at) - px)) at = i;
      clear();
      cursor.setAttribute("visibility", "visible"); cursor.setAttribute("x1", x(at)); cursor.setAttribute("x2", x(at));
      const here = lines.filter((l) => l.series.values[at] !== null);
      const near = here.reduce((best, l) => (best === null || Math.abs(y(l.series.values[at]) - py) < Math.abs(y(best.series.values[at]) - py) ? l : best), null);
      for (const l of here) if (chart.all || l === near) { l.dot.setAttribute("visibility", "visible"); l.dot.setAttribute("cx", x(at)); l.dot.setAttribute("cy", y(l.series.values[at])); }
      if (!chart.all) for (const l of lines) l.group.classList.toggle("faint", l !== near);
      readout.textContent = chart.read(at, chart.all ? here.map((l) => l.series) : near ? [near.series] : []);
    });
  }

  const colours = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6"].map((name) => `var(${name})`);
  const numbers = data.episodes.map((e) => e.number);
  const next = numbers[numbers.length - 1];
  const times = [...numbers, ...data.forecast.map((_, k) => next + 1 + k)];
  const decimals = decimalsFor([...data.evolution, ...data.forecast].flat());
  const bounds = (values, least) => { const all = values.filter((v) => v !== null); const low = Math.min(0, ...all), high = Math.max(least, ...all), pad = 0.03 * (high - low); return [low < 0 ? low - pad : 0, high + pad]; };
  const when = (i) => (i < numbers.length ? `Episode ${numbers[i]}` : i === numbers.length ? "Right after the log" : `After ${i - numbers.length + 1} updates`);

  function drawAll() {
    const values = data.lines.map((_, f) => [...data.evolution, ...data.forecast].map((row) => row[f]));
    const peak = values.map((v) => Math.max(...v.slice(-data.forecast.length - 1).map(Math.abs)));
    const order = peak.map((_, f) => f).sort((a, b) => peak[b] - peak[a]);
    const rank = new Map(order.map((f, place) => [f, place]));
    lineChart($("#chart-evolution"), {
      x: times, y: bounds(values.flat(), 1e-9), readout: $("#read-evolution"), xName: "episode",
      label: `Lines: weight of ${many(values.length, "feature")} over ${many(data.n_episodes, "episode")}. The table below has the same numbers.`,
      series: values.map((v, f) => ({ name: data.names[f], values: v, ahead: numbers.length - 1, rank: rank.get(f) < 14 ? rank.get(f) : null, colour: rank.get(f) < 6 ? colours[rank.get(f)] : "var(--other)", thin: rank.get(f) >= 6 })),
      read: (i, [series]) => (series ? `${when(i)}: ${short(series.name, 60)} ${number(series.values[i], decimals)}` : ""),
    });
    const shares = (key) => data.episodes.map((e) => e[key]);
    lineChart($("#chart-foresight"), {
      x: numbers, y: [0, 1], share: true, all: true, readout: $("#read-foresight"), xName: "episode",
      label: "Lines: share of choices foreseen by IBCB, by a choice model and by chance, per episode. The table below has the same numbers.",
      series: [
        { name: "IBCB", values: shares("foreseen"), colour: "var(--c1)", rank: 0 },
        { name: "choice model", values: shares("rival"), colour: "var(--other)", rank: 1 },
        { name: "chance", values: shares("chance"), colour: "var(--other)", rank: 2, dotted: true, thin: true },
      ],
      read: (i, series) => `${when(i)}: ${series.slice().reverse().map((s) => `${s.name} ${percent(s.values[i])}`).join(", ")}`,
    });
    lineChart($("#chart-exploration"), {
      x: numbers, y: [0, roundUp(Math.max(0.05, ...shares("explored").filter((v) => v !== null)))], share: true, all: true, readout: $("#read-exploration"), xName: "episode",
      label: "Line: share of choices that exploration decided, per episode. The table below has the same numbers.",
      series: [{ name: "exploration", values: shares("explored"), colour: "var(--c2)", rank: 0 }],
      read: (i, [s]) => (s ? `${when(i)}: exploration ${percent(s.values[i])}` : ""),
    });
  }
  let drawn = 0;
  const redraw = () => { if (innerWidth !== drawn) { drawn = innerWidth; drawAll(); drawStrip(); } };
  addEventListener("resize", redraw);
  const opened = [];
  addEventListener("beforeprint", () => { paper = true; drawAll(); for (const d of document.querySelectorAll("#episode-table")) if (!d.open) { d.open = true; opened.push(d); } });
  addEventListener("afterprint", () => { paper = false; drawAll(); for (const d of opened.splice(0)) d.open = false; });

  // -- explorer ----------------------------------------------------------------------------------------------------

  const FIELDS = ["step", "id", "time", "n", "chosen", "picked", "greedy", "foreseen", "explored", "contradicts", "candidates", "expected", "width", "values"];
  const sample = (data.sample || []).map((episode) => ({ ...episode, steps: episode.steps.map((row) => Object.fromEntries(FIELDS.map((name, i) => [name, row[i]]))) }));
  const FILTERS = [
    ["all", "All steps", () => true, "No steps."],
    ["disagree", "Model disagrees", (s) => s.picked !== s.chosen, "The recovered policies make every choice shown here as the decider did."],
    ["surprise", "Not foreseen", (s) => s.foreseen !== null && s.foreseen !== s.chosen, "Every choice shown here was foreseen from the episodes before it."],
    ["explored", "Exploration decided", (s) => s.explored, "No choice shown here was decided by exploration."],
    ["contradicts", "Contradicting", (s) => s.contradicts, "No step contradicts others."],
  ].filter(([key, , test]) => (key !== "contradicts" || sample.some((e) => e.steps.some(test))) && (key !== "explored" || data.bonus));
  const state = { filter: "all", episode: 0, step: 0, rival: null, all: new Set() };
  const predicate = () => FILTERS.find(([key]) => key === state.filter);
  const matching = (episode) => episode.steps.filter(predicate()[2]);
  let lists = [];

  function setFilter(key) {
    const here = lists[state.episode]?.steps[state.step];
    const number = lists[state.episode]?.number;
    state.filter = key;
    lists = sample.map((episode) => ({ ...episode, steps: matching(episode) })).filter((episode) => episode.steps.length);
    state.episode = Math.max(0, lists.findIndex((e) => e.number >= (number ?? 0)));
    state.step = Math.max(0, lists[state.episode]?.steps.indexOf(here) ?? 0);
    state.rival = null;
    const select = $("#pick-episode");
    select.textContent = "";
    lists.forEach((e, i) => add(select, "option", { value: i }, `Episode ${e.number} (${many(e.steps.length, "step")})`));
    show();
  }

  function go(what, by) {
    if (!lists.length) return;
    if (what === "episode") {
      const to = Math.min(lists.length - 1, Math.max(0, state.episode + by));
      if (to !== state.episode) { state.episode = to; state.step = 0; }
    } else {
      let to = state.step + by;
      if (to < 0) { if (state.episode === 0) return; state.episode--; to = lists[state.episode].steps.length - 1; }
      else if (to >= lists[state.episode].steps.length) { if (state.episode === lists.length - 1) return; state.episode++; to = 0; }
      state.step = to;
    }
    state.rival = null;
    show();
  }

  function drawStrip() {
    const strip = $("#strip"), episode = lists[state.episode];
    if (!strip) return;
    strip.textContent = "";
    const width = strip.clientWidth;
    if (!width || !episode) return;
    const svg = add(strip, "svg", { viewBox: `0 0 ${width} 30`, preserveAspectRatio: "none" });
    const pitch = Math.min(14, width / episode.steps.length);
    episode.steps.forEach((s, i) => {
      const kind = i === state.step ? "here" : s.picked !== s.chosen || (s.foreseen !== null && s.foreseen !== s.chosen) ? "odd" : s.explored ? "explored" : "";
      add(svg, "rect", { class: kind, x: i * pitch, width: Math.max(1, pitch - (pitch > 3 ? 1 : 0)), y: i === state.step ? 0 : 8, height: i === state.step ? 30 : 14 });
    });
    svg.onclick = (event) => { const box = svg.getBoundingClientRect(); state.step = Math.min(episode.steps.length - 1, Math.max(0, Math.floor((event.clientX - box.left) / pitch))); state.rival = null; show(); };
  }

  function sentence(s) {
    const parts = [`The decider took candidate ${s.chosen}.`];
    const blank = s.expected.every((e) => e === s.expected[0]) && s.candidates.length > 1;
    if (!blank || data.bonus) parts.push(s.picked === s.chosen ? "The model would, too." : `The model would take ${s.picked}.`);
    if (s.foreseen !== null) parts.push(s.foreseen === s.chosen ? "The episodes before foresee it." : `The episodes before foresee ${s.foreseen}.`);
    if (s.explored && blank) parts.push(`Nothing had been learned yet: ${data.bonus ? "exploration" : "luck"} decided.`);
    else if (s.explored && data.bonus) parts.push(`Without the bonus it would be ${s.greedy}: exploration decided.`);
    else if (s.explored) parts.push(`The best expected is ${s.greedy}: the draw decided.`);
    if (s.contradicts) parts.push("This choice contradicts others.");
    return parts.join(" ");
  }

  function show() {
    const episode = lists[state.episode], stage = $("#stage"), place = $("#place");
    stage.textContent = "";
    for (const button of document.querySelectorAll("[data-go]")) button.disabled = !episode;
    drawStrip();
    if (!episode) { place.textContent = "no step"; add(stage, "p", { class: "empty" }, predicate()[3]); $("#spoken").textContent = predicate()[3]; return; }
    const s = episode.steps[state.step];
    $("#pick-episode").value = state.episode;
    place.textContent = `step ${state.step + 1} of ${episode.steps.length.toLocaleString("en-US")}`;
    const atStart = state.episode === 0 && state.step === 0, atEnd = state.episode === lists.length - 1 && state.step === episode.steps.length - 1;
    $('[data-go="step-1"]').disabled = atStart; $('[data-go="step+1"]').disabled = atEnd;
    $('[data-go="episode-1"]').disabled = state.episode === 0; $('[data-go="episode+1"]').disabled = state.episode === lists.length - 1;
    add(stage, "h3", {}, `Episode ${episode.number}, step ${s.step}`);
    const meta = [s.id, s.time].filter((text) => text !== null);
    if (meta.length) { const line = add(stage, "p", { class: "meta" }); meta.forEach((text, i) => { if (i) line.append(" \u00b7 "); add(line, "bdi", { class: text.length > 120 ? "name" : null, title: text.length > 120 ? text : null }, text); }); }
    add(stage, "p", { class: "says" }, sentence(s));
    candidateTable(stage, s);
    whyTable(stage, episode, s);
    $("#spoken").textContent = `Episode ${episode.number}, step ${s.step}. ${sentence(s)}`;
  }

  function candidateTable(stage, s) {
    const legend = add(stage, "ul", { class: "legend" });
    const key = (swatch, text) => { const item = add(legend, "li"); add(item, "i", { class: swatch }); item.append(text); };
    key("swatch-e", "expected, above the least expected candidate");
    if (data.bonus) key("swatch-h", "exploration bonus");
    const total = s.expected.map((e, i) => e + (data.bonus ? s.width[i] : 0));
    const least = Math.min(...s.expected), most = Math.max(...total) - least || 1;
    const digits = decimalsFor([...s.expected, ...total]);
    const table = add(stage, "table", { class: "candidates", role: "table" });
    add(table, "caption", { class: "unseen" }, "Candidates, best score first");
    const head = add(add(table, "thead", { role: "rowgroup" }), "tr", { role: "row" });
    const heads = data.bonus ? ["candidate", "", "expected", "bonus", "score"] : ["candidate", "", "spread H", "expected"];
    for (const [i, text] of heads.entries()) add(head, "th", { scope: "col", role: "columnheader", class: i > 1 ? "num" : null, "aria-hidden": i === 1 ? "true" : null }, text);
    const body = add(table, "tbody", { role: "rowgroup" });
    const few = s.candidates.filter((c, i) => i < 12 || c === s.chosen || c === s.picked || c === s.foreseen);
    const shown = new Set(few.length + 2 < s.candidates.length && !state.all.has("candidates") ? few : s.candidates);
    s.candidates.forEach((c, i) => {
      if (!shown.has(c)) return;
      const row = add(body, "tr", { role: "row", class: c === s.chosen ? "chosen" : null, "data-candidate": c });
      const who = add(row, "th", { scope: "row", role: "rowheader", class: "who" });
      const button = add(who, "button", { type: "button", "aria-pressed": c === rivalOf(s) ? "true" : "false", "aria-label": `Candidate ${c}: compare with the one taken`, title: "compare with the one taken" }, c);
      button.onclick = () => { state.rival = c; show(); $(`tr[data-candidate="${c}"] button`).focus(); };
      if (c === s.chosen) add(who, "span", { class: "mark chosen" }, "taken");
      if (c === s.picked && s.picked !== s.chosen) add(who, "span", { class: "mark" }, "model");
      if (c === s.foreseen && s.foreseen !== s.chosen) add(who, "span", { class: "mark" }, "foreseen");
      const track = add(add(row, "td", { class: "draw", role: "cell", "aria-hidden": "true" }), "span", { class: "track" });
      const e = (100 * (s.expected[i] - least)) / most, h = data.bonus ? (100 * s.width[i]) / most : 0;
      add(track, "i", { class: "e", style: `left:0;width:${e.toFixed(2)}%` });
      if (data.bonus) add(track, "i", { class: "h", style: `left:${e.toFixed(2)}%;width:${h.toFixed(2)}%` });
      if (data.bonus) add(row, "td", { class: "num part", role: "cell" }, number(s.expected[i], digits));
      add(row, "td", { class: "num part", role: "cell" }, number(s.width[i], digits));
      add(row, "td", { class: "num total", role: "cell" }, number(total[i], digits));
    });
    if (shown.size < s.candidates.length) expander(stage, "candidates", s.candidates.length);
    else if (s.n > s.candidates.length) add(stage, "p", { class: "fine" }, `The best ${s.candidates.length} of ${many(s.n, "candidate")}.`);
  }

  // Long tables begin short, on every step until somebody asks for all.
  function expander(stage, what, count) {
    add(stage, "button", { type: "button", class: "plain" }, `Show all ${count} ${what}`).onclick = () => { state.all.add(what); show(); $("#stage").focus({ preventScroll: true }); };
  }

  // Whom to compare the taken one with: a candidate that was clicked, else the model's pick, else the next best.
  const rivalOf = (s) => (state.rival !== null && state.rival !== s.chosen ? state.rival : s.picked !== s.chosen ? s.picked : s.candidates.find((c) => c !== s.chosen));

  function whyTable(stage, episode, s) {
    const other = rivalOf(s);
    if (other === undefined) { add(stage, "p", { class: "fine" }, "There was no other candidate."); return; }
    const a = s.values[s.candidates.indexOf(s.chosen)], b = s.values[s.candidates.indexOf(other)];
    const rows = episode.features.map((f, i) => ({ name: data.columns[f], weight: episode.weights[i], a: a[i], b: b[i], effect: episode.weights[i] * (a[i] - b[i]) }));
    rows.sort((p, q) => Math.abs(q.effect) - Math.abs(p.effect));
    add(stage, "h4", {}, `Why ${s.chosen} and not ${other}?`);
    const place = (c) => s.candidates.indexOf(c);
    const lead = s.expected[place(s.chosen)] - s.expected[place(other)], digits = decimalsFor([...rows.map((r) => r.effect), lead]);
    const signed = (v) => (v > 0 && Number(v.toFixed(digits)) !== 0 ? "+" : "") + number(v, digits);
    const bonus = data.bonus ? s.width[place(s.chosen)] - s.width[place(other)] : null;
    add(stage, "p", { class: "fine" }, `Expected: ${signed(lead)} for ${s.chosen}${bonus === null ? "" : `; exploration bonus: ${signed(bonus)}; together ${signed(lead + bonus)}`}.${episode.features.length < data.columns.length ? ` The ${episode.features.length} of ${data.columns.length.toLocaleString("en-US")} features that matter most here.` : ""}`);
    const table = add(add(stage, "div", { class: "scroll" }), "table", { class: "why" });
    add(table, "caption", { class: "unseen" }, `What each feature adds to the lead of candidate ${s.chosen} over ${other}`);
    const head = add(add(table, "thead"), "tr");
    add(head, "th", { scope: "col" }, "feature");
    add(head, "th", { scope: "col", class: "num weight" }, "weight");
    for (const text of [`of ${s.chosen}`, `of ${other}`, "effect"]) add(head, "th", { scope: "col", class: "num" }, text);
    const body = add(table, "tbody"), weightDigits = decimalsFor(rows.map((r) => r.weight)), valueDigits = valueDecimals(rows.flatMap((r) => [r.a, r.b]));
    const short = rows.length > 12 && !state.all.has("features");
    for (const r of short ? rows.slice(0, 10) : rows) {
      const line = add(body, "tr");
      add(add(line, "th", { scope: "row" }), "bdi", { class: "name", title: r.name }, r.name);
      add(line, "td", { class: "num weight" }, number(r.weight, weightDigits));
      add(line, "td", { class: "num" }, value(r.a, valueDigits)); add(line, "td", { class: "num" }, value(r.b, valueDigits));
      add(line, "td", { class: "num" }, signed(r.effect));
    }
    if (short) expander(stage, "features", rows.length);
  }

  function startExplorer() {
    if (!$("#explore")) return;
    $("#explore").hidden = false;
    const group = $(".filters");
    for (const [key, name, test] of FILTERS) {
      const label = add(group, "label"), count = sample.reduce((sum, e) => sum + e.steps.filter(test).length, 0);
      const radio = add(label, "input", { type: "radio", name: "filter", value: key });
      label.append(name); add(label, "b", {}, count.toLocaleString("en-US"));
      radio.checked = key === "all";
      radio.onchange = () => setFilter(key);
    }
    for (const button of document.querySelectorAll("[data-go]")) button.onclick = () => { const [, what, by] = button.dataset.go.match(/(\w+)([+-]1)/); go(what, Number(by)); };
    $("#pick-episode").onchange = (event) => { state.episode = Number(event.target.value); state.step = 0; state.rival = null; show(); };
    const keys = { ArrowLeft: ["step", -1], ArrowRight: ["step", 1], ArrowUp: ["episode", -1], ArrowDown: ["episode", 1] };
    $("#explorer").addEventListener("keydown", (event) => {
      const move = keys[event.key];
      if (!move || event.altKey || event.ctrlKey || event.metaKey || event.target.matches("input, select")) return;
      event.preventDefault();
      go(...move);
      if (!document.activeElement || document.activeElement === document.body) $("#stage").focus({ preventScroll: true });
    });
    for (const link of document.querySelectorAll("[data-show]")) link.onclick = () => {
      const [number, step] = link.dataset.show.split(":").map(Number);
      $('.filters input[value="all"]').checked = true;
      setFilter("all");
      const at = lists.findIndex((e) => e.number === number);
      if (at >= 0) { state.episode = at; state.step = Math.max(0, lists[at].steps.findIndex((s) => s.step === step)); show(); $("#stage").focus({ preventScroll: true }); }
    };
    setFilter("all");
  }

  startExplorer();
  redraw();
})();
