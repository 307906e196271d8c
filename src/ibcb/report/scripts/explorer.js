// The explorer: one step at a time, why this candidate and not another, and an address for each step.

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
  "strayed",
  "candidates",
  "expected",
  "width",
  "values",
  "ahead",
];
const sample = (data.sample || []).map((episode) => ({ ...episode, steps: episode.steps.map(namedStep) }));
// `whole`: how many there are in the log, of which the sample may hold some.
const FILTERS = [
  { key: "all", name: "All steps", test: () => true, none: "No steps.", whole: data.n_steps },
  {
    key: "misfit",
    name: "Does not fit",
    test: astray,
    none: "Every choice shown here fits the rest of its episode.",
    whole: data.counts.misfits,
  },
  {
    key: "surprise",
    name: "Not predicted",
    test: surprises,
    none: "Every choice shown here was predicted one episode ahead.",
    whole: data.counts.surprised,
  },
  {
    key: "disagree",
    name: "Model disagrees",
    test: disagrees,
    none: "The recovered policies make every choice shown here as the decider did.",
    whole: data.counts.disagreed,
  },
  {
    key: "explored",
    name: "Exploration decided",
    test: (step) => step.explored,
    none: "No choice shown here was decided by exploration.",
    whole: data.counts.explored,
    left: !data.bonus,
  },
].filter((filter) => !filter.left);
// `rival`: the candidate that was clicked; `then`: whether to show what was foreseen, instead of what is now believed;
// `all`: the tables that somebody wanted to see whole; `touched`: whether the address tells the step.
const state = { filter: FILTERS[0], episode: 0, step: 0, rival: null, then: false, all: new Set(), touched: false };
// The episodes that have steps of the filter, with these steps alone.
let lists = [];

function namedStep(row) {
  return Object.fromEntries(FIELDS.map((name, i) => [name, row[i]]));
}

function astray(step) {
  return step.strayed > 0.5;
}

function disagrees(step) {
  return step.picked !== step.chosen;
}

function surprises(step) {
  return step.predicted !== null && step.predicted !== step.chosen;
}

// -- which step ---------------------------------------------------------------------------------------------------

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
  $(`.filters input[value="${filter.key}"]`).checked = true;
  const select = $("#pick-episode");
  select.textContent = "";
  lists.forEach((each, i) => {
    const unforeseen = each.ahead === null ? ", could not be predicted" : "";
    add(select, "option", { value: i }, `Episode ${each.number} (${count(each.steps.length)} shown${unforeseen})`);
  });
  show();
}

function moveTo(episode, step) {
  state.episode = episode;
  state.step = step;
  state.rival = null;
  state.touched = true;
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

// Shows a step by its numbers, among all steps unless it is of the filter; whether it is shown at all.
function jump(number, step) {
  const placed = () => {
    const at = lists.findIndex((each) => each.number === number);
    return [at, at < 0 ? -1 : lists[at].steps.findIndex((each) => each.step === step)];
  };
  if (placed()[1] < 0 && state.filter !== FILTERS[0]) setFilter(FILTERS[0]);
  const [episode, place] = placed();
  if (place < 0) return false;
  moveTo(episode, place);
  return true;
}

// -- the address --------------------------------------------------------------------------------------------------

// Such as #step=2:7&show=surprise&as=then.
function address() {
  const episode = lists[state.episode];
  if (!episode) return null;
  const parts = [`step=${episode.number}:${episode.steps[state.step].step}`];
  if (state.filter !== FILTERS[0]) parts.push(`show=${state.filter.key}`);
  if (state.then) parts.push("as=then");
  return `#${parts.join("&")}`;
}

function remember() {
  const here = state.touched ? address() : null;
  if (here) history.replaceState({ here }, "", here);
}

// Whether there is such a step.
function follow(hash) {
  const [, number, step] = hash.match(/[#&]step=(\d+):(\d+)/) || [];
  if (number === undefined) return false;
  const key = (hash.match(/[#&]show=(\w+)/) || [])[1] || "all";
  const filter = FILTERS.find((each) => each.key === key) || FILTERS[0];
  if (filter !== state.filter) setFilter(filter);
  state.then = /[#&]as=then/.test(hash);
  const shown = jump(Number(number), Number(step));
  said(shown, number, step);
  return shown;
}

function said(shown, number, step) {
  $("#jump-said").textContent = shown ? "" : `Episode ${number}, step ${step} is not among the steps shown.`;
}

// A link, an address that was typed, or the way back.
function arrive(hash) {
  follow(hash);
  $("#explorer").scrollIntoView({ behavior: "instant" });
  focusStage();
}

// A reload finds the step again, even after a link to another section.
function startAddresses() {
  addEventListener("hashchange", () => {
    if (/^#step=/.test(location.hash)) arrive(location.hash);
    else if (state.touched) history.replaceState({ here: address() }, "", location.hash);
  });
  if (/^#step=/.test(location.hash)) arrive(location.hash);
  else if (history.state?.here) follow(history.state.here);
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
    if (astray(step) || surprises(step)) kind = "odd";
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

// -- the step -----------------------------------------------------------------------------------------------------

// What the candidates looked like: now that the episode was seen, or as foreseen from the episodes before.
function seenFrom(episode, step) {
  const then = state.then && step.ahead !== null;
  const expected = then ? step.ahead : step.expected;
  return {
    then,
    expected,
    weights: then ? episode.ahead : episode.weights,
    picked: then ? step.predicted : step.picked,
    total: expected.map((e, i) => e + (data.bonus ? step.width[i] : 0)),
  };
}

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
  } else {
    parts.push("This episode could not be predicted: too little had been seen before it.");
  }
  if (step.explored && blank) {
    parts.push(`Nothing had been learned yet: ${data.bonus ? "exploration" : "luck"} decided.`);
  } else if (step.explored && data.bonus) {
    parts.push(`Without the bonus it would be ${step.greedy}: exploration decided.`);
  } else if (step.explored) {
    parts.push(`The best expected is ${step.greedy}.`);
  }
  if (astray(step)) parts.push(`The choice does not fit: it went astray with probability ${percent(step.strayed)}.`);
  if (step.contradicts) parts.push("It is part of the proof that no exact explanation exists.");
  return parts.join(" ");
}

function show() {
  const episode = lists[state.episode];
  $("#stage").textContent = "";
  drawStrip();
  if (episode) showStep(episode, episode.steps[state.step]);
  else showNothing();
  remember();
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
  $("#place").textContent = `${count(state.step + 1)} of ${count(episode.steps.length)} shown`;
  const head = add(stage, "div", { class: "head" });
  add(head, "h3", {}, `Episode ${episode.number}, step ${step.step}`);
  const seen = seenFrom(episode, step);
  addCopy(head, episode, step, seen);
  addMeta(stage, step);
  add(stage, "p", { class: "says" }, sentence(step));
  if (step.ahead !== null && surprises(step)) addViews(stage, seen);
  addCandidates(stage, step, seen);
  addWhy(stage, episode, step, seen);
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

function addViews(stage, seen) {
  const box = add(stage, "fieldset", { class: "switch" });
  add(box, "legend", { class: "unseen" }, "Scores");
  for (const [key, text] of [
    ["now", "as now believed"],
    ["then", "as then foreseen"],
  ]) {
    const label = add(box, "label");
    const radio = add(label, "input", { type: "radio", name: "view", value: key });
    radio.checked = seen.then === (key === "then");
    label.append(text);
    radio.onchange = () => {
      state.then = key === "then";
      state.touched = true;
      show();
      $(`input[name="view"][value="${key}"]`).focus();
    };
  }
}

function addCopy(head, episode, step, seen) {
  const button = add(head, "button", { type: "button", class: "copy" }, "Copy as CSV");
  button.onclick = async () => {
    const names = episode.features.map((feature) => data.columns[feature]);
    const parts = data.bonus ? ["expected", "bonus"] : ["expected"];
    const rows = step.candidates.map((candidate, i) => [
      episode.number,
      step.step,
      candidate,
      Number(candidate === step.chosen),
      seen.expected[i],
      ...(data.bonus ? [step.width[i]] : []),
      ...step.values[i],
    ]);
    button.textContent = (await copied(csv([["episode", "step", "candidate", "taken", ...parts, ...names], ...rows])))
      ? "Copied"
      : "Could not copy";
  };
}

// Where the clipboard is not given to pages from disk, by way of a field.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = add(document.body, "textarea", { class: "unseen", "aria-hidden": "true" });
    field.value = text;
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

// -- its candidates -----------------------------------------------------------------------------------------------

// Roles are given: a table that is laid out as a grid loses its own.
function addCandidates(stage, step, seen) {
  addLegend(stage);
  const table = add(stage, "table", { class: "candidates", role: "table" });
  add(table, "caption", { class: "unseen" }, "Candidates, best score first");
  const head = add(add(table, "thead", { role: "rowgroup" }), "tr", { role: "row" });
  const titles = data.bonus
    ? ["candidate", "", "expected", "bonus", "score"]
    : ["candidate", "", ...(data.spread ? [data.spread] : []), "expected"];
  titles.forEach((title, i) => {
    const kind = { class: i > 1 ? "num" : null, "aria-hidden": i === 1 ? "true" : null };
    add(head, "th", { scope: "col", role: "columnheader", ...kind }, title);
  });
  const body = add(table, "tbody", { role: "rowgroup" });
  const least = Math.min(...seen.expected);
  const scale = {
    least,
    most: Math.max(...seen.total) - least || 1,
    digits: decimalsFor([...seen.expected, ...seen.total]),
  };
  const shown = candidatesShown(step);
  const order = [...step.candidates.keys()];
  // As now believed they come in order, ties settled.
  if (seen.then) order.sort((a, b) => seen.total[b] - seen.total[a]);
  for (const i of order) {
    if (shown.has(step.candidates[i])) addCandidate(body, step, seen, i, scale);
  }
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

function addCandidate(body, step, seen, i, { least, most, digits }) {
  const candidate = step.candidates[i];
  const taken = candidate === step.chosen;
  const row = add(body, "tr", { role: "row", class: taken ? "chosen" : null, "data-candidate": candidate });
  const who = add(row, "th", { scope: "row", role: "rowheader", class: "who" });
  const compare = "compare with the one taken";
  const button = add(
    who,
    "button",
    {
      type: "button",
      "aria-pressed": String(candidate === rivalOf(step, seen)),
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
  const expected = ((100 * (seen.expected[i] - least)) / most).toFixed(2);
  const bonus = ((100 * step.width[i]) / most).toFixed(2);
  add(track, "i", { class: "e", style: `left:0;width:${expected}%` });
  if (data.bonus) add(track, "i", { class: "h", style: `left:${expected}%;width:${bonus}%` });

  if (data.bonus) add(row, "td", { class: "num part", role: "cell" }, number(seen.expected[i], digits));
  if (data.bonus || data.spread) add(row, "td", { class: "num part", role: "cell" }, number(step.width[i], digits));
  add(row, "td", { class: "num total", role: "cell" }, number(seen.total[i], digits));
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

// -- why this one and not another -----------------------------------------------------------------------------------

// Whom to compare the taken one with: a candidate that was clicked, else the model's pick, else the next best.
function rivalOf(step, seen) {
  if (state.rival !== null && state.rival !== step.chosen) return state.rival;
  if (seen.picked !== null && seen.picked !== step.chosen) return seen.picked;
  return step.candidates.find((candidate) => candidate !== step.chosen);
}

// A waterfall: what each feature adds to the lead of the one taken, and last the bonus.
function addWhy(stage, episode, step, seen) {
  const other = rivalOf(step, seen);
  if (other === undefined) {
    add(stage, "p", { class: "fine" }, "There was no other candidate.");
    return;
  }
  const one = step.candidates.indexOf(step.chosen);
  const two = step.candidates.indexOf(other);
  const features = episode.features.map((feature, i) => {
    const weight = seen.weights[i];
    const [a, b] = [step.values[one][i], step.values[two][i]];
    return { name: data.columns[feature], weight, a, b, effect: weight * (a - b) };
  });
  features.sort((p, q) => Math.abs(q.effect) - Math.abs(p.effect));
  const cut = features.length > 12 && !state.all.has("features");
  const rows = cut ? features.slice(0, 10) : features;
  const lead = seen.expected[one] - seen.expected[two];
  const left = data.columns.length - rows.length;
  const rest = lead - rows.reduce((sum, row) => sum + row.effect, 0);
  if (left) rows.push({ name: many(left, "other feature"), effect: rest, kind: "rest" });
  if (data.bonus) {
    rows.push({ name: "exploration bonus", effect: step.width[one] - step.width[two], kind: "bonus" });
  }
  const whole = lead + (data.bonus ? step.width[one] - step.width[two] : 0);
  add(stage, "h4", {}, `Why ${step.chosen} and not ${other}?`);
  const how = seen.then ? "by what the episodes before predicted" : "by what is now believed";
  const ahead = whole >= 0 ? "is ahead" : "is behind";
  add(stage, "p", { class: "fine" }, `Candidate ${step.chosen} ${ahead}, ${how}. Read from top to bottom: each bar begins where the last ended.`);
  addWaterfall(stage, rows, whole, step.chosen, other);
  if (cut) addExpander(stage, "features", features.length);
}

function addWaterfall(stage, rows, whole, chosen, other) {
  const digits = decimalsFor([...rows.map((row) => row.effect), whole]);
  // What is shown as 0 has no sign.
  const signed = (x) => (x > 0 && Number(x.toFixed(digits)) !== 0 ? "+" : "") + number(x, digits);
  const table = add(add(stage, "div", { class: "scroll" }), "table", { class: "why" });
  add(table, "caption", { class: "unseen" }, `What each feature adds to the lead of candidate ${chosen} over ${other}`);
  const head = add(add(table, "thead"), "tr");
  add(head, "th", { scope: "col" }, "feature");
  add(head, "th", { scope: "col", class: "draw", "aria-hidden": "true" });
  add(head, "th", { scope: "col", class: "num weight" }, "weight");
  for (const title of [`of ${chosen}`, `of ${other}`]) add(head, "th", { scope: "col", class: "num value" }, title);
  add(head, "th", { scope: "col", class: "num" }, "effect");
  const body = add(table, "tbody");
  const own = rows.filter((row) => row.kind === undefined);
  const weightDigits = decimalsFor(own.map((row) => row.weight));
  const valueDigits = own.length ? valueDecimals(own.flatMap((row) => [row.a, row.b])) : 0;
  let sum = 0;
  const edges = [0, ...rows.map((row) => (sum += row.effect)), whole];
  const [low, high] = [Math.min(...edges), Math.max(...edges)];
  const at = (x) => (100 * (x - low)) / (high - low || 1);
  let from = 0;
  for (const row of [...rows, { name: `lead of ${chosen}`, effect: whole, kind: "whole" }]) {
    const start = row.kind === "whole" ? 0 : from;
    const end = start + row.effect;
    from = end;
    const line = add(body, "tr", { class: row.kind ?? null });
    add(add(line, "th", { scope: "row" }), "bdi", { class: "name", title: row.name }, short(row.name, 80));
    const track = add(add(line, "td", { class: "draw", "aria-hidden": "true" }), "span", { class: "track" });
    add(track, "i", { class: "zero", style: `left:${at(0).toFixed(2)}%` });
    const [a, b] = [Math.min(start, end), Math.max(start, end)].map(at);
    const tone = row.kind === "bonus" ? "bonus" : row.effect < 0 ? "against" : "for";
    add(track, "i", { class: `fall ${tone}`, style: `left:${a.toFixed(2)}%;width:${Math.max(0.4, b - a).toFixed(2)}%` });
    const plainRow = row.kind === undefined;
    add(line, "td", { class: "num weight" }, plainRow ? value(row.weight, weightDigits) : "");
    add(line, "td", { class: "num value" }, plainRow ? value(row.a, valueDigits) : "");
    add(line, "td", { class: "num value" }, plainRow ? value(row.b, valueDigits) : "");
    add(line, "td", { class: "num effect" }, signed(row.effect));
  }
}

// -- its controls ---------------------------------------------------------------------------------------------------

function startFilters() {
  for (const filter of FILTERS) {
    const label = add($(".filters"), "label");
    add(label, "input", { type: "radio", name: "filter", value: filter.key, autocomplete: "off" }).onchange = () => {
      state.touched = true;
      setFilter(filter);
    };
    const matching = sample.reduce((sum, episode) => sum + episode.steps.filter(filter.test).length, 0);
    label.append(filter.name);
    add(label, "b", {}, matching === filter.whole ? count(matching) : `${count(matching)} shown of ${count(filter.whole)}`);
  }
}

function startButtons() {
  for (const button of $all("[data-go]")) {
    const [, what, by] = button.dataset.go.match(/(\w+)([+-]1)/);
    button.onclick = () => go(what, Number(by));
  }
  $("#pick-episode").onchange = (event) => moveTo(Number(event.target.value), 0);
  $("#jump").onsubmit = (event) => {
    event.preventDefault();
    const [, number, step] = $("#jump-to").value.match(/^\s*(\d+)\s*[:,; ]\s*(\d+)\s*$/) || [];
    if (number === undefined) $("#jump-said").textContent = "Write episode:step, such as 2:7.";
    else said(jump(Number(number), Number(step)), number, step);
  };
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

// Links to steps, from the list of misfits and the certificate.
function startLinks() {
  for (const link of $all("[data-show]")) {
    link.onclick = (event) => {
      event.preventDefault();
      history.pushState(null, "", link.hash);
      arrive(link.hash);
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
  startAddresses();
}
