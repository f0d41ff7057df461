// Browse stored edits: choose a run, a fact and an editor. Runs are scripts that call showRun, since a
// browser reads no JSON from a folder.
const form = document.getElementById("explorer");
const KINDS = { target: "new", correct: "correct", hard: "hard false", random: "random false" };
const runs = {};

function element(name, text = "", attributes = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function fill(select, titles) {
  const before = select.value;
  select.replaceChildren(...titles.map((title) => element("option", title, { value: title })));
  if (titles.includes(before)) select.value = before;
}

function showRun(run) {
  runs[form.run.value] = run;
  fill(form.fact, run.facts.map((fact, i) => `${i + 1}. ${fact.title} [${fact.target}]`));
  fill(form.method, run.methods);
  if (run.methods.includes("ROME")) form.method.value = "ROME";
  showFact();
}

function loadRun() {
  if (runs[form.run.value]) return showRun(runs[form.run.value]);
  document.body.append(element("script", "", { src: `_static/records/${form.run.value}` }));
}

function probability(log) {
  const value = Math.exp(log);
  return value >= 0.001 ? value.toFixed(3) : value.toExponential(0).replace("-", "−"); // a minus breaks no line
}

function places(logs) {
  const order = logs.map((_, i) => i).sort((a, b) => logs[b] - logs[a]);
  return order.reduce((found, answer, place) => ({ ...found, [answer]: place + 1 }), {});
}

function strip(before, after, low, kind) {
  const x = (log) => 4 + 82 * (1 - Math.max(log, low) / low);
  const draw = (name, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  const svg = draw("svg", { width: 90, height: 10, class: `strip ${kind}`, role: "img" });
  svg.append(
    draw("line", { x1: x(before), x2: x(after), y1: 5, y2: 5 }),
    draw("circle", { cx: x(before), cy: 5, r: 3, class: "before" }),
    draw("circle", { cx: x(after), cy: 5, r: 3 }),
  );
  return svg;
}

function row(fact, method, index, ranks, low) {
  const [kind, words] = fact.answers[index];
  const [before, after] = [fact.before[index], fact.after[method][index]];
  const made = element("tr", "", { class: kind });
  const answer = element("td", words);
  answer.append(element("br"), strip(before, after, low, kind));
  made.append(answer, element("td", KINDS[kind]));
  made.append(element("td", `${ranks[0][index]}\u00a0→\u00a0${ranks[1][index]}`));
  made.append(element("td", `${probability(before)}\u00a0→ ${probability(after)}`));
  return made;
}

function table(fact, method) {
  const logs = [fact.before, fact.after[method]];
  const ranks = logs.map(places);
  const low = Math.min(...logs.flat());
  const titles = ["answer", "kind", "place", "P"];
  const head = element("tr");
  head.append(...titles.map((title) => element("th", title)));
  const order = Object.entries(ranks[1]).sort((a, b) => a[1] - b[1]).map(([i]) => Number(i));
  const made = element("table");
  made.append(element("thead"), element("tbody"));
  made.tHead.append(head);
  made.tBodies[0].append(...order.map((i) => row(fact, method, i, ranks, low)));
  return made;
}

function showFact() {
  const run = runs[form.run.value];
  const fact = run.facts[form.fact.selectedIndex];
  const method = form.method.value;
  const box = element("div", "", { class: "ke-table" });
  const there = Boolean(fact.after[method]);
  if (there) box.append(table(fact, method));
  const measures = Object.entries(fact.measures[method] ?? {})
    .map(([name, value]) => `${name.replace("_", " ")} ${value}`)
    .join(", ");
  document.getElementById("explorer-answers").replaceChildren(
    element("p", `${fact.title} [new: ${fact.target}] under ${method}, answers by their place after:`),
    element("p", measures ? `Of this fact, in percent: ${measures}.` : "No measure is defined here."),
    there ? box : element("p", "This edit was given up, so there is nothing to show."),
    element("p", run.caption, { class: "provenance" }),
  );
}

form.run.addEventListener("change", loadRun);
form.fact.addEventListener("change", showFact);
form.method.addEventListener("change", showFact);
loadRun();
