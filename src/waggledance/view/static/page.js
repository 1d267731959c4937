"use strict";
// The page: parts come as events, each is drawn by the function of its name. What a node or a peer wrote only
// ever becomes a text node or an attribute's value; nothing here parses markup.

const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const percent = (share) => (share === null || share === undefined ? "–" : (100 * share).toFixed(share < 0.0995 ? 1 : 0) + " %");
const whole = new Intl.NumberFormat("en");

function sized(count, unit = "") {
  for (const [power, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (count >= power) return `${Number((count / power).toPrecision(3))} ${letter}${unit}`;
  return `${Number(count.toPrecision(3))} ${unit}`.trim();
}

function clock(seconds) {
  const minutes = Math.floor(seconds / 60), rest = String(Math.round(seconds % 60)).padStart(2, "0");
  return minutes < 60 ? `${minutes}:${rest}` : `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${rest}`;
}

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function drawn(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function say(element, text) { if (element.textContent !== text) element.textContent = text; }

/* Rows that stay where they are: only what changed is touched. */
function fill(parent, items, key, create, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let child = known.get(name);
    if (child) known.delete(name);
    else { child = create(item); child.dataset.key = name; }
    update(child, item);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  for (const child of known.values()) child.remove();
}

/* ---- charts ---- */

const charts = new Map();
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const COLOURS = 5;

/* Lines of different rounds on one axis; each {name, x, y, low, high, colour, dashed}. */
function joined(lines) {
  const columns = [];
  const tables = lines.map((line) => {
    const table = [line.x, line.y];
    const banded = line.low && line.low.length > 0;
    if (banded) table.push(line.low, line.high);
    columns.push(banded);
    return table;
  });
  return [uPlot.join(tables), columns];
}

function chart(id, lines, options = {}) {
  const box = byId(id);
  const known = charts.get(id);
  const shown = lines.filter((line) => line.x.length > 0);
  const shape = JSON.stringify([shown.map((line) => [line.name, line.colour, line.dashed, line.low && line.low.length > 0]), options.format ? options.format.name : ""]);
  box.setAttribute("aria-label", options.label || "no rounds yet");
  if (shown.length === 0) {
    if (known) { known.plot.destroy(); charts.delete(id); }
    box.replaceChildren(make("p", {class: "empty"}, options.empty || "nothing yet"));
    return;
  }
  const [table, banded] = joined(shown);
  if (known && known.shape === shape) {
    known.plot.setData(table);
    known.remember = [lines, options];
    return;
  }
  if (known) known.plot.destroy();
  box.replaceChildren();
  const series = [{}], bands = [];
  shown.forEach((line, place) => {
    const stroke = colour(`--c${line.colour % COLOURS}`);
    series.push({label: String(place), stroke, width: line.dashed ? 2 : 3, dash: line.dashed ? [7, 5] : undefined, spanGaps: true, points: {show: line.x.length < 3, size: 7, fill: stroke}});
    if (banded[place]) {
      const thin = {stroke: "transparent", width: 0, spanGaps: true, points: {show: false}};
      series.push({...thin, label: `${place} lowest`}, {...thin, label: `${place} highest`});
      bands.push({series: [series.length - 1, series.length - 2], fill: stroke + "22"});
    }
  });
  const format = options.format || ((share) => `${Number((100 * share).toPrecision(3))} %`);
  const axis = {stroke: colour("--quiet"), grid: {stroke: colour("--line"), width: 1}, ticks: {show: false}, font: "12px system-ui, sans-serif"};
  const plot = new uPlot({
    width: Math.max(120, box.clientWidth), height: box.clientHeight, series, bands, legend: {show: false},
    cursor: {y: false, drag: {x: false, y: false}},
    scales: {x: {time: false, range: (_, least, most) => [Math.min(least, 0), Math.max(most, options.end || 1)]}, y: {range: (_, __, most) => [0, roundAbove(most)]}},
    axes: [{...axis, size: 26, gap: 3, label: "round", labelSize: 18, labelGap: 0, labelFont: "12px system-ui, sans-serif"}, {...axis, size: 58, values: (_, marks) => marks.map(format)}],
  }, table, box);
  charts.set(id, {plot, shape, remember: [lines, options]});
}

function roundAbove(value) {
  if (!(value > 0)) return 0.1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10].find((factor) => factor * power >= value) * power;
}

function redrawn() {
  for (const [id, known] of [...charts]) {
    known.plot.destroy();
    charts.delete(id);
    chart(id, ...known.remember);
  }
}

const resized = new ResizeObserver((boxes) => {
  for (const {target} of boxes) {
    const known = charts.get(target.id);
    if (known && target.clientWidth > 0) known.plot.setSize({width: target.clientWidth, height: target.clientHeight});
  }
});
for (const box of document.querySelectorAll(".chart")) resized.observe(box);

/* ---- the parts ---- */

let labels = [];
/* The label in question comes last and has the first colour. */
const colourOf = (label) => (labels.length - 1 - labels.indexOf(label)) % COLOURS;
const newest = (line) => (line && line.y.length > 0 ? line.y[line.y.length - 1] : null);

function legend(box, items) {
  fill(box, items, (item) => item.name, () => make("span", {}, make("span"), document.createTextNode(""), make("b")), (row, item) => {
    row.firstElementChild.className = `swatch s${item.colour % COLOURS}${item.dashed ? " dashed" : ""}`;
    if (row.childNodes[1].nodeValue !== item.name + " ") row.childNodes[1].nodeValue = item.name + " ";
    say(row.lastElementChild, item.value);
  });
}

const draw = {
  head(head) {
    labels = head.labels;
    say(byId("run"), head.run);
    document.title = head.rounds ? `${Math.floor(100 * head.fraction)} % · ${head.run} · Waggledance` : "Waggledance";
    say(byId("verdict"), head.verdict);
    byId("progress").value = head.fraction;
    const parts = [`round ${head.round} of ${head.rounds}`];
    if (head.phase) parts.push(head.phase);
    if (head.ended) parts.push(`done in ${clock(head.elapsed_seconds)}`);
    else if (head.silent_seconds >= 60) parts.push(`silent for ${clock(head.silent_seconds)}`);
    else if (head.left_seconds !== null) parts.push(`${clock(head.left_seconds)} left`);
    say(byId("time"), parts.join(" · "));
    say(byId("version"), head.version ? `Version ${head.version}.` : "");
    fill(byId("failed"), head.failed, (line) => line, () => make("li"), (row, line) => say(row, line));
    byId("failed").hidden = head.failed.length === 0;
    byId("measure").hidden = labels.length < 2;
    say(byId("rewards-title"), labels.length > 1 ? "Does sharing help?" : "Is it learning?");
  },

  rewards(rewards) {
    const average = rewards.smoothing > 1 ? `, averaged over ${rewards.smoothing} rounds` : "";
    const many = rewards.own.some((line) => line.low.length > 0);
    const band = many ? " The line is the mean over nodes, the shade reaches from the lowest to the highest." : "";
    let lines;
    if (labels.length > 1) {
      const measure = document.querySelector("input[name=measure]:checked").value;
      lines = rewards[measure].map((line) => ({...line, colour: colourOf(line.name), dashed: colourOf(line.name) > 0}));
      const what = {own: "fresh answers", trained: "answers it trains on, others' among them,", heldout: "answers to questions nobody trains on"}[measure];
      say(byId("rewards-how"), `The share of ${what} that earn the reward${measure === "heldout" ? "" : average}.${band}`);
    } else {
      const named = (measure, name, place) => ({...(rewards[measure][0] || {x: [], y: []}), name, colour: place, dashed: place === 1});
      lines = [named("own", "fresh answers", 0), named("trained", "trained on", 1), named("heldout", "held out", 2)];
      say(byId("rewards-how"), `The share of answers that earn the reward${average}.${band}`);
    }
    legend(byId("rewards-legend"), lines.map((line) => ({...line, value: percent(newest(line))})));
    const spoken = lines.map((line) => `${line.name} ${percent(newest(line))}`).join(", ");
    chart("rewards-chart", lines, {end: rewards.rounds, label: `Reward by round; newest: ${spoken}`, empty: "the first round is not over yet"});
  },

  holding(sides) {
    const box = byId("holding-bars");
    const known = sides.filter((side) => side.before !== null);
    if (known.length === 0) { box.replaceChildren(make("p", {class: "empty"}, "not measured yet")); return; }
    const top = roundAbove(Math.max(0.01, ...known.flatMap((side) => [...side.befores, ...side.nows])));
    const WIDTH = 460, LEFT = 92, RIGHT = 60, ROW = 64;
    const across = (share) => LEFT + (WIDTH - LEFT - RIGHT) * share / top;
    const spoken = known.map((side) => `${side.label}: ${percent(side.before)} before, ${percent(side.now)} now`).join("; ");
    const svg = drawn("svg", {viewBox: `0 0 ${WIDTH} ${ROW * known.length + 22}`, role: "img", "aria-label": spoken});
    known.forEach((side, place) => {
      const y = ROW * place, tint = `f${colourOf(side.label)}`;
      svg.append(drawn("text", {x: 0, y: y + 34}, side.label.slice(0, 12)));
      for (const [value, dots, top_, name, kind] of [[side.before, side.befores, y + 6, "before", " before"], [side.now, side.nows, y + 32, "now", ""]]) {
        if (value === null) { svg.append(drawn("text", {x: LEFT + 4, y: top_ + 15, class: "quiet"}, "not measured yet")); continue; }
        svg.append(drawn("rect", {x: LEFT, y: top_, width: Math.max(1, across(value) - LEFT), height: 20, rx: 3, class: tint + kind}));
        if (dots.length > 1) for (const dot of dots.slice(0, 64)) svg.append(drawn("circle", {cx: across(dot), cy: top_ + 10, r: 2.5, class: "dot"}));
        const end = Math.max(across(value), dots.length > 1 ? across(Math.max(...dots)) : 0);
        svg.append(drawn("text", {x: end + 8, y: top_ + 15}, percent(value)));
      }
    });
    svg.append(drawn("line", {x1: LEFT, x2: LEFT, y1: 0, y2: ROW * known.length, class: "axis"}));
    box.replaceChildren(svg);
  },

  tasks(tasks) {
    byId("tasks").hidden = tasks.length === 0;
    const top = roundAbove(Math.max(0.01, ...tasks.flatMap((task) => task.lines.flatMap((line) => line.y))));
    const end = Math.max(1, ...tasks.flatMap((task) => task.lines.flatMap((line) => line.x)));
    fill(byId("tasks-list"), tasks, (task) => task.source, (task) => make("li", {}, make("h3", {}, task.source), drawn("svg", {viewBox: "0 0 200 44", preserveAspectRatio: "none", "aria-hidden": "true"}), make("p")), (tile, task) => {
      const lines = task.lines.map((line) => drawn("polyline", {class: `spark l${colourOf(line.name)}${colourOf(line.name) ? " dashed-line" : ""}`, points: line.x.map((x, place) => `${(200 * x / end).toFixed(1)},${(42 - 40 * line.y[place] / top).toFixed(1)}`).join(" ")}));
      tile.children[1].replaceChildren(drawn("line", {x1: 0, x2: 200, y1: 43, y2: 43, class: "axis"}), ...lines);
      const now = task.lines.map((line, place) => (labels.length > 1 ? `${line.name} ` : "") + percent(task.newest[place])).join(" · ");
      say(tile.children[2], task.heldout === null ? now : `${now} · held out ${percent(task.heldout)}`);
    });
  },

  nodes(nodes) {
    table("nodes", nodes, (node) => `${node.label} ${node.author}`, [
      ["node", (node) => (labels.length > 1 ? `${node.label} ` : "") + node.name],
      ["doing", (node) => node.error || node.phase],
      ["round", (node) => `${node.round}/${node.rounds}`, true],
      ["fresh", (node) => percent(node.own), true],
      ["held out, before", (node) => percent(node.heldout_start), true],
      ["now", (node) => percent(node.heldout), true],
      ["gave", (node) => whole.format(node.gave), true],
      ["took", (node) => whole.format(node.took), true],
      ["s a round", (node) => (node.seconds === null ? "–" : node.seconds.toFixed(node.seconds < 10 ? 1 : 0)), true],
      ["tokens/s", (node) => (node.tokens_per_second === null ? "–" : whole.format(Math.round(node.tokens_per_second))), true],
      ["memory", (node) => (node.memory_bytes ? sized(node.memory_bytes, "B") : "–"), true],
      ["model", (node) => node.model || "–"],
    ]);
  },

  graph(graph) {
    const svg = byId("graph-drawing");
    const alone = graph.names.length === 0;
    byId("graph").hidden = alone && labels.length < 2 && !byId("ledger-rows").children.length;
    say(byId("graph-note"), alone ? "Nobody has taken a group yet." : graph.left_out > 0 ? `${graph.left_out} more take or give less and are left out.` : "");
    const RADIUS = 138, across = 220, down = 200, count = graph.names.length;
    const spots = graph.names.map((_, place) => {
      const angle = 2 * Math.PI * place / Math.max(1, count) - Math.PI / 2;
      return [across + RADIUS * Math.cos(angle), down + RADIUS * Math.sin(angle), angle];
    });
    const most = Math.max(0.0001, ...graph.edges.map((edge) => edge[2]));
    const chosen = svg.dataset.chosen ?? "";
    const focused = document.activeElement && svg.contains(document.activeElement) ? document.activeElement.dataset.place : null;
    const edges = graph.edges.map(([from, to, share]) => {
      const [x1, y1] = spots[from], [x2, y2] = spots[to];
      const bend = 0.35, cx = across + ((x1 + x2) / 2 - across) * bend, cy = down + ((y1 + y2) / 2 - down) * bend;
      return drawn("path", {d: `M${x1.toFixed(1)} ${y1.toFixed(1)}Q${cx.toFixed(1)} ${cy.toFixed(1)} ${x2.toFixed(1)} ${y2.toFixed(1)}`, "stroke-width": (0.6 + 5.4 * share / most).toFixed(2), class: `edge${String(from) === chosen ? " from" : ""}${String(to) === chosen ? " to" : ""}`});
    });
    const top = Math.max(1, ...graph.given);
    const bees = graph.names.map((name, place) => {
      const [x, y, angle] = spots[place], right = Math.cos(angle);
      const anchor = Math.abs(right) < 0.3 ? "middle" : right > 0 ? "start" : "end";
      const takes = graph.edges.filter((edge) => edge[1] === place).map((edge) => `${Math.round(100 * edge[2])} % from ${graph.names[edge[0]]}`).slice(0, 6).join(", ");
      const bee = drawn("g", {class: "bee", tabindex: 0, role: "button", "aria-pressed": String(String(place) === chosen), "data-place": place, "aria-label": `${name} gave ${graph.given[place]} lately${takes ? `, took ${takes}` : ""}`},
        drawn("circle", {cx: x, cy: y, r: (6 + 9 * Math.sqrt(graph.given[place] / top)).toFixed(1)}),
        drawn("text", {x: x + 20 * right, y: y + 24 * Math.sin(angle) + 4, "text-anchor": anchor}, name));
      const choose = () => { svg.dataset.chosen = svg.dataset.chosen === String(place) ? "" : String(place); draw.graph(graph); };
      bee.addEventListener("click", choose);
      bee.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); } });
      return bee;
    });
    svg.classList.toggle("chosen", chosen !== "" && Number(chosen) < count);
    svg.replaceChildren(...edges, ...bees);
    if (focused !== null) bees[Number(focused)]?.focus();
  },

  ledger(accounts) {
    byId("ledger").hidden = accounts.length === 0;
    table("ledger", accounts, (account) => account.author, [
      ["who", (account) => `${account.here ? "●" : "○"} ${account.name}`],
      ["taken", (account) => whole.format(account.taken), true],
      ["of all", (account) => percent(account.share), true],
      ["refused", (account) => Object.entries(account.refused).map(([reason, count]) => `${reason} ${count}`).join(", ") || "–"],
      ["model", (account) => account.model || "–"],
    ]);
  },

  refusals(reasons) {
    byId("refusals").hidden = false;
    const lines = reasons.slice(0, COLOURS).map((reason, place) => ({...reason.line, colour: place, dashed: place > 2}));
    const spoken = reasons.map((reason) => `${reason.total} ${reason.words}`).join(", ");
    byId("refusals-chart").hidden = reasons.length === 0;
    if (reasons.length > 0) chart("refusals-chart", lines, {format: counted, label: `Refused by round: ${spoken}`});
    if (reasons.length === 0) byId("refusals-list").replaceChildren(make("li", {class: "empty", "data-key": "none"}, "Nothing so far."));
    else fill(byId("refusals-list"), reasons, (reason) => reason.reason, () => make("li", {}, make("span"), make("b"), make("span")), (row, reason) => {
      const place = reasons.indexOf(reason);
      row.children[0].className = `swatch s${Math.min(place, COLOURS - 1)}${place > 2 ? " dashed" : ""}`;
      say(row.children[1], whole.format(reason.total));
      say(row.children[2], `${reason.reason}: ${reason.words}`);
    });
  },

  effort(effort) {
    const side = (line) => ({...line, colour: colourOf(line.name), dashed: colourOf(line.name) > 0});
    const spoken = (lines, unit) => lines.map((line) => `${line.name} ${newest(line) === null ? "nothing" : newest(line).toPrecision(3)} ${unit}`).join(", ");
    chart("effort-chart", effort.seconds.map(side), {format: seconds, label: `Seconds a round; newest: ${spoken(effort.seconds, "s")}`});
    chart("calm-chart", effort.grad_norm.map(side), {format: counted, label: `Norm of the gradient by round; newest: ${spoken(effort.grad_norm, "")}`});
    const sums = [["tokens written", sized(effort.tokens_generated)], ["tokens learned from", sized(effort.tokens_trained)], ["groups given", whole.format(effort.groups_shared)], ["sent", sized(effort.bytes_shared, "B")], ["groups heard", whole.format(effort.heard)], ["memory", effort.memory_bytes ? sized(effort.memory_bytes, "B") : "–"], ["processor time", effort.cpu_seconds ? clock(effort.cpu_seconds) : "–"]];
    fill(byId("effort-sums"), sums, (sum) => sum[0], (sum) => make("div", {}, make("dt", {}, sum[0]), make("dd")), (row, sum) => say(row.lastElementChild, sum[1]));
  },

  said(sayings) {
    for (const saying of sayings) known.set(`${saying.label} ${saying.serial}`, saying);
    const oldest = [...known.keys()].slice(0, Math.max(0, known.size - KEPT));
    for (const key of oldest) known.delete(key);
    if (!held()) listSaid();
  },
};

function counted(value) { return value >= 1000 ? sized(value) : String(Number(value.toPrecision(3))); }
function seconds(value) { return `${Number(value.toPrecision(3))} s`; }

/* ---- tables ---- */

const ROWS = 40;
const rowsShown = {};

function table(name, items, key, columns) {
  const head = byId(`${name}-head`);
  if (head.children.length !== columns.length)
    head.replaceChildren(...columns.map(([title, , right]) => make("th", {scope: "col", class: right ? "number" : "text"}, title)));
  const limit = rowsShown[name] || ROWS;
  fill(byId(`${name}-rows`), items.slice(0, limit), key, () => make("tr", {}, ...columns.map(([, , right]) => make("td", {class: right ? "number" : "text"}))), (row, item) => {
    columns.forEach(([, text], place) => say(row.children[place], text(item)));
    if (item.error) row.children[1].className = "error";
  });
  const more = byId(`${name}-more`);
  more.hidden = items.length <= limit;
  say(more, `Show all ${items.length}`);
  more.onclick = () => { rowsShown[name] = Infinity; table(name, items, key, columns); };
}

/* ---- what was said ---- */

const KEPT = 1200, SHOWN = 12;
const known = new Map();
let shownLimit = SHOWN;
const held = () => byId("hold").getAttribute("aria-pressed") === "true";

function choices(select, values) {
  const wanted = [...new Set(values)].sort((a, b) => a.length - b.length || (a < b ? -1 : 1));
  const have = [...select.options].slice(1).map((option) => option.value);
  if (wanted.length === have.length && wanted.every((value, place) => value === have[place])) return;
  const chosen = select.value;
  select.replaceChildren(select.options[0], ...wanted.map((value) => make("option", {value}, value)));
  select.value = wanted.includes(chosen) ? chosen : "";
}

function matches(saying) {
  const by = byId("by").value, source = byId("source").value, reward = byId("reward").value;
  const text = byId("text").value.toLowerCase();
  return (!by || saying.author === by) && (!source || saying.source === source)
    && (!reward || (saying.reward > 0) === (reward === "some"))
    && (!text || saying.text.toLowerCase().includes(text) || saying.question.toLowerCase().includes(text));
}

function listSaid() {
  const all = [...known.values()];
  choices(byId("by"), all.map((saying) => saying.author));
  choices(byId("source"), all.map((saying) => saying.source));
  const found = all.filter(matches).sort((a, b) => b.round - a.round || b.serial - a.serial);
  say(byId("said-count"), `${found.length} of the newest ${all.length} answers`);
  fill(byId("said-list"), found.slice(0, shownLimit), (saying) => `${saying.label} ${saying.serial}`, sayingCard, () => {});
  byId("said-more").hidden = found.length <= shownLimit;
}

function sayingCard(saying) {
  const author = labels.length > 1 ? `${saying.label} ${saying.author}` : saying.author;
  const taken = saying.teller === saying.author ? [] : [make("span", {}, `taken by ${saying.teller}`)];
  return make("li", {class: saying.reward > 0 ? "earned" : "missed"},
    make("div", {class: "who"}, make("span", {}, author), ...taken, make("span", {}, saying.source), make("span", {}, `round ${saying.round}`), make("b", {}, saying.reward > 0 ? `earned ${saying.reward}` : "earned nothing")),
    make("p", {class: "asked"}, saying.question), make("p", {class: "answered"}, saying.text || "(nothing)"));
}

for (const id of ["by", "source", "reward", "text"]) byId(id).addEventListener("input", () => { shownLimit = SHOWN; listSaid(); });
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("said-more").addEventListener("click", () => { shownLimit += 60; listSaid(); });
byId("hold").addEventListener("click", () => { byId("hold").setAttribute("aria-pressed", String(!held())); if (!held()) listSaid(); });

/* ---- light and dark ---- */

const dark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
function themed() { say(byId("theme"), isDark() ? "Light" : "Dark"); redrawn(); }
byId("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  try { localStorage.setItem("theme", document.documentElement.dataset.theme); } catch { /* not kept */ }
  themed();
});
dark.addEventListener("change", themed);
themed();

/* ---- the stream ---- */

const latest = {};
let slowest = 0;

function take(name, part) {
  const start = performance.now();
  latest[name] = part;
  draw[name](part);
  const took = performance.now() - start;
  slowest = Math.max(slowest, took);
  // For whoever measures: what all parts of the newest update took, in milliseconds.
  document.documentElement.dataset.updates = String(Number(document.documentElement.dataset.updates || 0) + 1);
  document.documentElement.dataset.slowest = slowest.toFixed(1);
  document.documentElement.dataset.busy = (Number(document.documentElement.dataset.busy || 0) + took).toFixed(1);
}

for (const input of document.querySelectorAll("input[name=measure]"))
  input.addEventListener("change", () => latest.rewards && draw.rewards(latest.rewards));

function mark(state, words) { byId("state").dataset.state = state; say(byId("state"), words); }

const stream = new EventSource("/stream");
stream.addEventListener("open", () => mark("live", "live"));
stream.addEventListener("error", () => mark("lost", "not connected"));
for (const name of Object.keys(draw)) stream.addEventListener(name, (event) => take(name, JSON.parse(event.data)));

fetch("/pictures").then((answer) => answer.json()).then((names) => {
  byId("pictures").hidden = names.length === 0;
  byId("pictures-list").replaceChildren(...names.map((name) => make("img", {src: `/pictures/${encodeURIComponent(name)}`, alt: name})));
}).catch(() => { /* the stream says what there is to say */ });
