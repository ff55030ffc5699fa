// Keeps a page up to date, and gives it keys. The server renders everything; this file
// only asks for the content again, and puts it in place.

const content = document.getElementById("content");
const connection = document.getElementById("connection");
const refresh = document.getElementById("refresh");
const keys = document.getElementById("keys");
const shortcuts = document.getElementById("shortcuts");

const setting = {
  read(name, fallback) {
    try { return localStorage.getItem(`penstock.${name}`) ?? fallback; } catch { return fallback; }
  },
  write(name, value) {
    try { localStorage.setItem(`penstock.${name}`, value); } catch { /* private windows */ }
  },
};

// --- theme: system, light, dark

const themes = ["system", "light", "dark"];
function showTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}
function nextTheme() {
  const theme = themes[(themes.indexOf(setting.read("theme", "system")) + 1) % themes.length];
  setting.write("theme", theme);
  showTheme(theme);
}
showTheme(setting.read("theme", "system"));
document.getElementById("theme").addEventListener("click", nextTheme);

// --- times in the viewer's zone, and countdowns

function showTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    time.title = `${at.toLocaleString()} (${time.dateTime})`;
    if (time.matches(".clock")) time.textContent = clock(at);
  }
  for (const label of root.querySelectorAll("text[data-at]")) {
    const at = new Date(label.dataset.at);
    label.textContent = label.dataset.unit === "day"
      ? at.toLocaleDateString([], { day: "numeric", month: "short" })
      : at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: label.dataset.unit === "second" ? "2-digit" : undefined });
  }
  countDown(root);
}
// today's need no date
function clock(at) {
  const isToday = at.toDateString() === new Date().toDateString();
  return isToday ? at.toLocaleTimeString() : at.toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });
}
function countDown(root = document) {
  for (const place of root.querySelectorAll(".countdown[data-until]")) {
    const left = Math.max(0, Math.round((new Date(place.dataset.until) - Date.now()) / 1000));
    const hours = Math.floor(left / 3600), minutes = Math.floor(left / 60) % 60;
    const clock = [minutes, left % 60].map((part) => String(part).padStart(2, "0"));
    place.textContent = `(${hours ? `${hours}:` : ""}${clock.join(":")} left)`;
  }
}
setInterval(() => { if (!document.hidden) countDown(); }, 1000);

// --- the content, again and again

let etag = null;
let timer = null;
let failures = 0;
let latest = 0;

async function update({ fresh = false } = {}) {
  // its content is what the viewer has done so far
  if (content.dataset.live === "never") return;
  const request = ++latest;
  const headers = { "x-penstock-fragment": fresh ? "fresh" : "1" };
  if (etag) headers["if-none-match"] = etag;
  try {
    const response = await fetch(location.href, { headers, cache: "no-store" });
    // a slower, older answer must not replace a newer one
    if (request !== latest) return;
    if (response.status === 200) {
      etag = response.headers.get("etag");
      put(await response.text());
    } else if (response.status !== 304) {
      throw new Error(`the server answered ${response.status}`);
    }
    failures = 0;
    connection.hidden = true;
  } catch (error) {
    failures += 1;
    // one lost request is not worth a word
    if (failures > 1) {
      connection.textContent = `Not up to date: ${error.message || "the server does not respond"}. Trying again.`;
      connection.hidden = false;
    }
  }
}

function put(html) {
  const here = rowAt(content.querySelector("tr.here"));
  const scrolled = new Map([...content.querySelectorAll(".scroll")].map((box, n) => [n, box.scrollLeft]));
  // what the last action brought stays until the next one
  const result = document.getElementById("result");
  const opened = [...content.querySelectorAll("details[open][id]")].map((details) => details.id);
  const focused = document.activeElement?.closest("#content") ? document.activeElement.getAttribute("href") : null;
  content.innerHTML = html;
  for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  const place = document.getElementById("result");
  if (result && place && !result.hidden) place.replaceWith(result);
  showTimes(content);
  [...content.querySelectorAll(".scroll")].forEach((box, n) => { box.scrollLeft = scrolled.get(n) ?? 0; });
  if (here !== null) rows()[here]?.classList.add("here");
  if (focused) content.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
}

function schedule() {
  clearInterval(timer);
  timer = null;
  const seconds = Number(refresh.value);
  const isLive = content.dataset.live === "on";
  if (seconds && isLive && !document.hidden) timer = setInterval(() => update(), seconds * 1000);
}
refresh.value = setting.read("refresh", "2");
refresh.addEventListener("change", () => { setting.write("refresh", refresh.value); schedule(); });
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && Number(refresh.value) && content.dataset.live === "on") update();
  schedule();
});
showTimes(document);
schedule();

// --- keys

const rows = () => [...content.querySelectorAll("tbody tr")];
const rowAt = (row) => (row ? rows().indexOf(row) : null);
const places = { o: "/", i: "/imports", u: "/upload", s: "/schedules", b: "/budgets", w: "/workers" };
places.q = document.querySelector('nav [data-place="quarantine"]').getAttribute("href");
places.e = document.querySelector('nav [data-place="explore"]').getAttribute("href");
let leader = 0;

function move(step) {
  const all = rows();
  if (!all.length) return;
  const from = rowAt(content.querySelector("tr.here")) ?? (step > 0 ? -1 : all.length);
  const to = Math.min(Math.max(from + step, 0), all.length - 1);
  all[from]?.classList.remove("here");
  all[to].classList.add("here");
  all[to].scrollIntoView({ block: "nearest" });
}

const actions = {
  j: () => move(1),
  k: () => move(-1),
  r: () => update({ fresh: true }),
  t: nextTheme,
  "?": () => keys.showModal(),
  "/": () => content.querySelector("input[type=search], input")?.focus(),
  Enter: () => content.querySelector("tr.here a")?.click(),
};

shortcuts.checked = setting.read("shortcuts", "on") === "on";
shortcuts.addEventListener("change", () => setting.write("shortcuts", shortcuts.checked ? "on" : "off"));

document.addEventListener("keydown", (event) => {
  if (event.metaKey || event.ctrlKey || event.altKey || !shortcuts.checked) return;
  if (document.activeElement !== document.body && document.activeElement !== content) return;
  if (event.key === "g") { leader = Date.now(); return; }
  if (Date.now() - leader < 1500 && places[event.key]) {
    leader = 0;
    location.assign(places[event.key]);
    return;
  }
  if (actions[event.key]) { event.preventDefault(); actions[event.key](); }
});

// --- arrows move between the cells of a grid, of which one is in the order of tabs

const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
document.addEventListener("keydown", (event) => {
  const from = event.target.closest?.("[role=grid] a");
  if (!from || event.metaKey || event.ctrlKey || event.altKey) return;
  const grid = [...from.closest("[role=grid]").rows].map((row) => [...row.querySelectorAll("a")]);
  const down = grid.findIndex((row) => row.includes(from));
  const across = grid[down].indexOf(from);
  let to = null;
  if (steps[event.key]) to = grid[down + steps[event.key][0]]?.[across + steps[event.key][1]];
  else if (event.key === "Home") to = grid[down][0];
  else if (event.key === "End") to = grid[down].at(-1);
  else return;
  event.preventDefault();
  to?.focus();
});
document.addEventListener("focusin", (event) => {
  const cell = event.target.closest?.("[role=grid] a");
  if (!cell) return;
  for (const other of cell.closest("[role=grid]").querySelectorAll('a[tabindex="0"]')) other.tabIndex = -1;
  cell.tabIndex = 0;
});

// --- actions: a button names the route of the API that it calls

async function act(button) {
  if (button.dataset.confirm && !window.confirm(button.dataset.confirm)) return;
  const label = button.textContent;
  button.disabled = true;
  let text;
  try {
    const answers = [];
    let response, answer;
    // one request does a part of what there is
    do {
      const body = button.dataset.body;
      response = await fetch(button.dataset.post, {
        method: "POST",
        headers: body ? { "content-type": "application/json" } : {},
        body,
      });
      answer = await response.json().catch(() => ({}));
      answers.push(answer);
    } while (response.ok && answer.has_more === true);
    text = response.ok ? `${label}: ${describeResult(answers)}.` : `${label}: ${answer.detail || answer.title || response.status}`;
  } catch (error) {
    text = `${label}: ${error.message}`;
  }
  await update({ fresh: true });
  const result = document.getElementById("result");
  if (result) {
    result.textContent = text;
    result.hidden = false;
  }
  button.disabled = false;
}

/** What the responses to an action say; several did a part each. */
function describeResult(answers) {
  const sum = (name) => answers.reduce((total, answer) => total + answer[name], 0);
  const [first] = answers;
  if ("discarded" in first) return `${sum("discarded")} discarded`;
  if (!("still_bad" in first)) return "done";
  const reasons = first.reasons.map(({ reason, field, rows }) =>
    `${reason.replaceAll("_", " ")}${field ? ` in ${field}` : ""} ${rows}`);
  const parts = [
    `${first.accepted} ${first.dry_run ? "would be stored" : "stored"}`,
    `${first.superseded} superseded by newer rows`,
    `${first.still_bad} still bad${reasons.length ? ` (${reasons.join(", ")})` : ""}`,
  ];
  return parts.join(", ");
}

// --- a document of the API on the clipboard

async function copy(button) {
  let text = "Copied";
  try {
    const response = await fetch(button.dataset.copy);
    if (!response.ok) throw new Error(`the server answered ${response.status}`);
    await toClipboard(JSON.stringify(await response.json(), null, 2));
  } catch (error) {
    text = `Not copied: ${error.message}`;
  }
  button.textContent = text;
}
async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // not a secure address: the old way
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    if (!copied) throw new Error("the browser does not allow it");
  }
}

document.addEventListener("click", (event) => {
  const copier = event.target.closest("button[data-copy]");
  if (copier) copy(copier);
  const button = event.target.closest("button[data-post]");
  if (button) act(button);
  // the same links are in the table below
  const bar = event.target.closest("rect[data-go]");
  if (bar) location.assign(bar.dataset.go);
});
document.addEventListener("change", (event) => {
  if (event.target.matches("select[data-submit]")) event.target.form.requestSubmit();
  if (event.target.matches("select[data-go]")) location.assign(event.target.value);
});
