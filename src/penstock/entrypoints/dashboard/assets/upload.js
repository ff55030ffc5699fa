// Shows what an import would make of a file, and sends it. Every text of a file is set as
// text, never as HTML.

const root = document.getElementById("upload");
const drop = document.getElementById("drop");
const choose = document.getElementById("choose");
const input = document.getElementById("file");
const said = document.getElementById("said");
const id = (name) => document.getElementById(name);
const NUMBER = new Intl.NumberFormat("en");
const SIZES = ["bytes", "KiB", "MiB", "GiB", "TiB"];
const DELIMITERS = { ",": "comma", ";": "semicolon", "\t": "tab", "|": "bar" };
// control characters and marks of direction, which could disguise a text
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

const number = (value) => NUMBER.format(value).replaceAll(",", "\u202f");
const counted = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;

function visible(text) {
  return text.replace(HIDDEN, (found) => {
    const code = found.charCodeAt(0);
    if (code === 0x7f) return "\u2421";
    return code < 32 ? String.fromCharCode(0x2400 + code) : "\u241a";
  });
}

function size(bytes) {
  const power = Math.min(Math.floor(Math.log2(Math.max(bytes, 1)) / 10), SIZES.length - 1);
  const value = bytes / 1024 ** power;
  return `${power && value < 10 ? value.toFixed(1) : number(Math.round(value))} ${SIZES[power]}`;
}

/** Make an element; texts among its children are from files, or harmless. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.map((child) => (typeof child === "string" ? visible(child) : child)));
  return element;
}

function state(name, text) {
  const found = id(`state-${name}`).content.querySelector(".state").cloneNode(true);
  found.append(visible(text));
  return found;
}

function say(name, text) {
  said.hidden = !text;
  said.replaceChildren(...(text ? [state(name, text)] : []));
}

async function explain(response) {
  const answer = await response.json().catch(() => ({}));
  return describe(answer, response.status);
}

function describe(problem, status) {
  const flaws = (problem.errors || []).map((flaw) => flaw.detail).filter(Boolean);
  return flaws.join("; ") || problem.detail || problem.title || `the server answered ${status}`;
}

// --- the file

let chosen = null;
let latest = 0;

choose.addEventListener("click", () => input.click());
input.addEventListener("change", () => {
  if (input.files.length) take(input.files);
  // so that the same file can be chosen again, after it was corrected
  input.value = "";
});
for (const name of ["dragenter", "dragover"]) {
  document.addEventListener(name, (event) => {
    // a browser would open the file instead of the page
    event.preventDefault();
    drop.classList.add("over");
  });
}
document.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) drop.classList.remove("over");
});
document.addEventListener("drop", (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  if (event.dataTransfer.files.length) take(event.dataTransfer.files);
});

async function take(files) {
  if (sending) return;
  const [file] = files;
  const turn = ++latest;
  say("running", `Reading ${file.name}`);
  choose.setAttribute("aria-busy", "true");
  let answer, error;
  try {
    const query = new URLSearchParams({ name: [...file.name].slice(-100).join("") });
    const response = await fetch(`${root.dataset.preview}?${query}`, {
      method: "POST",
      headers: { "content-type": "application/octet-stream" },
      body: file.slice(0, Number(root.dataset.bytes)),
    });
    if (response.ok) answer = await response.json();
    else error = await explain(response);
  } catch {
    error = "it cannot be read, or the server does not respond";
  }
  // another file was chosen meanwhile
  if (turn !== latest) return;
  choose.removeAttribute("aria-busy");
  if (error) {
    hide();
    say("failed", `${file.name}: ${error}`);
    return;
  }
  const more = files.length > 1 ? " One file at a time: the others were left out." : "";
  chosen = { file, key: newKey() };
  drop.classList.add("small");
  if (root.dataset.load) showPreview(file, answer, more);
  else showDraft(file, answer, more);
}

/** A name for this upload, so that sending it twice loads it once. */
function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function hide() {
  chosen = null;
  drop.classList.remove("small");
  for (const name of ["preview", "draft"]) if (id(name)) id(name).hidden = true;
  if (id("expected")) id("expected").hidden = false;
  step("read");
}

// --- a draft for a file that is not declared

function showDraft(file, answer, more) {
  say("", more);
  id("draft-file").textContent = visible(file.name);
  id("doubts").replaceChildren(...answer.doubts.map((doubt) => make("li", {}, state("waiting", `Please check: ${doubt}.`))));
  id("toml").textContent = visible(answer.toml);
  id("copy").textContent = "Copy";
  id("draft").hidden = false;
  id("draft-title").focus();
}

id("copy")?.addEventListener("click", async () => {
  const text = id("toml").textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // not a secure address: the old way
    getSelection().selectAllChildren(id("toml"));
    document.execCommand("copy");
  }
  id("copy").textContent = "Copied";
});

// --- steps 1 to 3: read, match, check

const steps = [...document.querySelectorAll(".steps li")];

function step(name) {
  const current = steps.findIndex((each) => each.dataset.step === name);
  steps.forEach((each, at) => {
    each.classList.toggle("past", at < current);
    if (at === current) each.setAttribute("aria-current", "step");
    else each.removeAttribute("aria-current");
  });
}

function showPreview(file, answer, more) {
  say("", "");
  id("file-name").textContent = visible(file.name);
  const { encoding, delimiter, compressed, columns } = answer.file;
  id("file-facts").textContent = visible([
    size(file.size), counted(columns, "column"), encoding.toUpperCase(),
    `separated by ${DELIMITERS[delimiter] || delimiter}`, ...(compressed ? ["gzip"] : []),
  ].join(" · "));
  showRows(answer);
  id("rows-note").textContent = rowsNote(answer) + more;
  showMatch(answer);
  const verdict = showCheck(answer, file);
  id("expected").hidden = true;
  id("preview").hidden = false;
  id("load").disabled = !verdict.loadable;
  id("load").textContent = `Load ${size(file.size)} into ${root.dataset.dataset}`;
  id("load-error").hidden = true;
  step(answer.missing.length ? "match" : verdict.loadable ? "load" : "check");
  id("read-title").focus();
}

function showRows({ columns, rows }) {
  id("head").replaceChildren(...columns.map(({ name, fields }) => {
    const cell = make("th", { scope: "col", class: fields ? "" : "ignored" }, make("bdi", {}, name || "(no name)"));
    if (!fields) cell.append(make("small", {}, "ignored"));
    return cell;
  }));
  id("rows").replaceChildren(...rows.map((row) => make("tr", {}, ...row.map((value, at) => {
    const known = columns[at]?.fields;
    return make("td", { class: known ? "" : "ignored" }, value === "" ? make("span", { class: "none" }, "–") : make("bdi", {}, value));
  }))));
}

function rowsNote({ file, columns, rows }) {
  const first = rows.length === 1 ? "The first row" : rows.length ? `The first ${number(rows.length)} rows` : "There are no rows";
  return file.columns > columns.length ? `${first}, and ${columns.length} of ${counted(file.columns, "column")}.` : `${first}.`;
}

function showMatch({ file, columns, missing, warnings }) {
  const matched = columns.filter(({ fields }) => fields);
  const ignored = file.columns - matched.length;
  const parts = [`${counted(matched.length, "column")} matched`];
  if (missing.length) parts.push(`${number(missing.length)} missing`);
  if (ignored > 0) parts.push(`${number(ignored)} ignored`);
  id("match-verdict").replaceChildren(state(missing.length ? "failed" : "done", `${parts.join(", ")}.`));
  const chip = (kind, name, note) => make("li", { class: kind }, state(kind === "ignored" ? "idle" : kind, ""), make("bdi", {}, name || "(no name)"), ...(note ? [make("small", {}, note)] : []));
  const renamed = (name, fields) => (fields.length === 1 && fields[0] === name ? "" : fields.length ? `to ${fields.join(", ")}` : "");
  id("match").replaceChildren(
    ...missing.map(({ name }) => chip("failed", name, "missing")),
    ...matched.map(({ name, fields }) => chip("done", name, renamed(name, fields))),
    ...columns.filter(({ fields }) => !fields).map(({ name }) => chip("ignored", name, "ignored")),
  );
  // columns that are not declared are shown above
  const rest = warnings.filter((warning) => !/^column |columns are not declared|^delimiter .* is a guess/.test(warning));
  id("problems").replaceChildren(...rest.map((warning) => make("li", {}, state("waiting", warning))));
}

function showCheck({ check, problems }, { size: bytes }) {
  const found = [...problems];
  if (bytes > Number(root.dataset.most)) found.push(`it has ${size(bytes)}; at most ${size(Number(root.dataset.most))} are allowed`);
  id("problems").prepend(...found.map((problem) => make("li", {}, state("failed", problem))));
  const reasons = check ? check.reasons : [];
  id("reasons-box").hidden = !reasons.length;
  id("reasons").replaceChildren(...reasons.map(({ reason, field, rows, line, detail }) => make("tr", {},
    make("th", { scope: "row" }, state("failed", reason.replaceAll("_", " "))),
    make("td", {}, field || "–"),
    make("td", { class: "right" }, number(rows)),
    make("td", { class: "right" }, line === null ? "–" : number(line)),
    make("td", { class: "break" }, make("bdi", {}, detail)),
  )));
  const verdict = id("check-verdict");
  if (found.length || !check) {
    verdict.replaceChildren(state("failed", "An import would refuse this file."));
    return { loadable: false };
  }
  const looked = check.whole ? `All ${counted(check.rows, "row")}` : `The first ${counted(check.rows, "row")}`;
  const repeated = check.repeated ? ` ${counted(check.repeated, "row")} of them ${check.repeated === 1 ? "is" : "are"} replaced by a later row of the same key.` : "";
  const text = check.bad
    ? `${looked} were checked: ${number(check.rows - check.bad)} good, ${number(check.bad)} bad.${repeated}`
    : `${looked} were checked, and all are good.${repeated}`;
  verdict.replaceChildren(state(check.bad ? "waiting" : "done", text));
  return { loadable: true };
}

// --- step 4: load; the import itself is followed at its own address

let sending = null;

id("load")?.addEventListener("click", () => {
  const { file, key } = chosen;
  const form = new FormData();
  if (id("corrects")) form.append("corrects", id("corrects").value);
  form.append("file", file, file.name);
  const request = new XMLHttpRequest();
  sending = request;
  request.open("POST", root.dataset.load);
  request.setRequestHeader("idempotency-key", key);
  request.responseType = "json";
  request.upload.addEventListener("progress", ({ loaded, total, lengthComputable }) => {
    if (lengthComputable) showSent(loaded, total);
  });
  request.upload.addEventListener("load", () => {
    id("progress").removeAttribute("value");
    id("progress-note").textContent = "All of it has arrived, and is being checked.";
  });
  request.addEventListener("load", () => {
    const answer = request.response || {};
    if (request.status === 202) {
      sending = null;
      step("result");
      location.assign(`/imports/${answer.import_id}`);
    } else {
      stopSending(describe(answer, request.status));
    }
  });
  request.addEventListener("error", () => stopSending("The connection was lost, or the file has changed on disk. Load it again: rows are not stored twice."));
  request.addEventListener("abort", () => stopSending("Stopped. Nothing was stored."));
  id("load").disabled = true;
  id("stop").hidden = false;
  id("load-error").hidden = true;
  id("progress").hidden = id("progress-note").hidden = false;
  choose.disabled = true;
  showSent(0, file.size);
  request.send(form);
});

id("stop")?.addEventListener("click", () => sending?.abort());

// while a file is sent, its page is needed
window.addEventListener("beforeunload", (event) => { if (sending) event.preventDefault(); });

function showSent(loaded, total) {
  id("progress").value = total ? loaded / total : 1;
  id("progress-note").textContent = `${size(loaded)} of ${size(total)} sent. Keep this page open until all of it has arrived.`;
}

function stopSending(text) {
  sending = null;
  id("progress").hidden = id("progress-note").hidden = true;
  id("stop").hidden = true;
  id("load").disabled = choose.disabled = false;
  id("load-error").replaceChildren(state("failed", text));
  id("load-error").hidden = false;
  id("load").focus();
}
