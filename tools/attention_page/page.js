"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const length = data.tokens.length;

// The options, as in the fragment of the page's address: #layer=0&head=average&token=3&direction=to
const AVERAGE = "average";
const MAXIMUM = "maximum";
const choices = {
  layer: data.layers.map(String),
  head: [...Array.from({ length: data.heads }, (_, head) => String(head)), AVERAGE, MAXIMUM],
  token: data.tokens.map((_, token) => String(token)),
  direction: ["from", "to"],
};
const chosen = { layer: choices.layer[0], head: "0", token: length > 1 ? "1" : "0", direction: "from" };

const SUMMARY_TOKENS = 5;
const THUMBNAIL_SIDE = 40; // pixels
const FINE_MATRIX = 200; // tokens; above, a token has less than two pixels

const element = (id) => document.getElementById(id);

function make(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// Weights are stored as the maximum of each row, and round(255 * sqrt(weight / maximum)) for each weight.

const SQUARES = Float32Array.from({ length: 256 }, (_, code) => (code / 255) ** 2);

function decodeBytes(text) {
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

function decodeFloats(text) {
  const view = new DataView(decodeBytes(text).buffer);
  return Float32Array.from({ length: view.byteLength / 4 }, (_, i) => view.getFloat32(4 * i, true));
}

const stored = data.layers.map((_, i) => ({
  maxima: decodeFloats(data.maxima[i]), // [heads, from]
  codes: decodeBytes(data.codes[i]), // [heads, from, to]
}));

function weightsOfHead({ maxima, codes }, head) {
  const weights = new Float32Array(length * length);
  for (let from = 0; from < length; from++) {
    const maximum = maxima[head * length + from];
    const start = (head * length + from) * length;
    for (let to = 0; to < length; to++) weights[from * length + to] = maximum * SQUARES[codes[start + to]];
  }
  return weights;
}

// [from, to] of a head, or of all heads of a layer combined.
function weightsOf(layer, head) {
  const block = stored[choices.layer.indexOf(layer)];
  if (head !== AVERAGE && head !== MAXIMUM) return weightsOfHead(block, Number(head));
  const combined = new Float32Array(length * length);
  for (let one = 0; one < data.heads; one++) {
    const weights = weightsOfHead(block, one);
    for (let i = 0; i < combined.length; i++) {
      combined[i] = head === AVERAGE ? combined[i] + weights[i] / data.heads : Math.max(combined[i], weights[i]);
    }
  }
  return combined;
}

function weightBetween(from, to) {
  return shown.weights[from * length + to];
}

// The weights of all tokens from or to one token, as selected.
function weightsAround(token) {
  return data.tokens.map((_, other) =>
    chosen.direction === "from" ? weightBetween(token, other) : weightBetween(other, token),
  );
}

// Strings are inserted as text, never as markup; invisible characters are shown by their code points.

const percent = (weight) => `${(100 * weight).toFixed(1)}%`;

function visibleParts(text) {
  // Control and format characters and lone surrogates, but not joiners, which are part of words and emoji.
  return text.split(/([^\P{C}\u200c\u200d\n\t]|[\u2028\u2029])/u).map((part, i) =>
    i % 2 ? make("span", { className: "unseen" }, `U+${part.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`) : part,
  );
}

const nameOfToken = (token) => make("bdi", {}, ...visibleParts(data.tokens[token]));

const capitalize = (text) => text[0].toUpperCase() + text.slice(1);

const nameOfHead = (layer, head) =>
  `layer ${layer}, ${head === AVERAGE || head === MAXIMUM ? `${head} of the heads` : `head ${head}`}`;

// Shades are proportional to the square root, so that small weights are visible.

const INK = getComputedStyle(document.documentElement).getPropertyValue("--accent").trim().split(/\s+/).map(Number);

function draw(canvas, weights, side) {
  const maxima = new Float32Array(side * side); // of the weights that share a pixel
  const pixelOf = Array.from({ length }, (_, token) => Math.floor((token * side) / length));
  for (let from = 0; from < length; from++) {
    const row = pixelOf[from] * side;
    for (let to = 0; to < length; to++) {
      const pixel = row + pixelOf[to];
      maxima[pixel] = Math.max(maxima[pixel], weights[from * length + to]);
    }
  }
  canvas.width = canvas.height = side;
  const context = canvas.getContext("2d");
  const image = context.createImageData(side, side);
  maxima.forEach((weight, pixel) => image.data.set([...INK, 255 * Math.sqrt(weight)], 4 * pixel));
  context.putImageData(image, 0, 0);
}

// The elements of the page.

const shown = { layer: null, head: null, weights: null };
const tokens = data.tokens.map((_, token) => {
  const button = make("button", { type: "button", className: "token" });
  button.append(make("span", { className: "word" }, ...visibleParts(data.tokens[token])));
  button.append(" ", make("span", { className: "weight" }));
  button.dataset.token = token;
  return button;
});
const cells = choices.layer.flatMap((layer) =>
  choices.head.map((head) => {
    const cell = make("button", { type: "button", className: "cell", title: nameOfHead(layer, head) }, make("canvas"));
    Object.assign(cell.dataset, { layer, head });
    return cell;
  }),
);
const matrix = element("matrix").querySelector("canvas");

function build() {
  document.title = data.title;
  element("title").append(...visibleParts(data.title));
  element("subtitle").textContent = data.subtitle;
  element("texts").append(...data.texts.map((text) => make("p", {}, ...visibleParts(text))));
  element("precision").textContent = data.precision;
  for (const name of ["layer", "head"]) {
    element(name).append(...choices[name].map((value) => make("option", { value }, value)));
  }
  const segments = new Map(data.segment_ids.map((segment) => [segment, make("div", { className: "segment" })]));
  tokens.forEach((button, token) => segments.get(data.segment_ids[token]).append(button));
  element("tokens").append(...segments.values());
  buildOverview();
}

function buildOverview() {
  const overview = element("overview");
  const columns = choices.head.length;
  overview.style.gridTemplateColumns = `max-content repeat(${columns}, minmax(0, 1fr))`;
  const short = { [AVERAGE]: "avg", [MAXIMUM]: "max" };
  overview.append(make("span"), ...choices.head.map((head) => make("span", {}, short[head] ?? head)));
  choices.layer.forEach((layer, row) => {
    overview.append(make("span", {}, layer), ...cells.slice(row * columns, (row + 1) * columns));
  });
  for (const cell of cells) {
    const weights = weightsOf(cell.dataset.layer, cell.dataset.head);
    draw(cell.firstChild, weights, Math.min(length, THUMBNAIL_SIDE));
  }
}

function choose(changes) {
  for (const [name, value] of Object.entries(changes)) {
    if (choices[name].includes(value)) chosen[name] = value;
  }
  show();
}

function show() {
  if (shown.layer !== chosen.layer || shown.head !== chosen.head) {
    const { layer, head } = chosen;
    Object.assign(shown, { layer, head, weights: weightsOf(layer, head) });
    draw(matrix, shown.weights, length);
    matrix.className = length > FINE_MATRIX ? "fine" : "";
    element("matrix_title").textContent = capitalize(nameOfHead(layer, head));
  }
  for (const name of ["layer", "head"]) element(name).value = chosen[name];
  document.querySelector(`input[value="${chosen.direction}"]`).checked = true;
  for (const cell of cells) mark(cell, cell.dataset.layer === chosen.layer && cell.dataset.head === chosen.head);
  tokens.forEach((button, token) => mark(button, String(token) === chosen.token));
  showToken(Number(chosen.token));
  const address = new URLSearchParams(chosen);
  if (location.hash !== `#${address}`) history.replaceState(null, "", `#${address}`);
}

// Tab reaches one button of each group, the arrow keys the others.
function mark(button, isChosen) {
  button.setAttribute("aria-pressed", isChosen);
  button.tabIndex = isChosen ? 0 : -1;
}

function showToken(token) {
  const weights = weightsAround(token);
  const isShaded = (other) => !(element("ordinary").checked && data.special.includes(other));
  const strongest = Math.max(...weights.filter((_, other) => isShaded(other)), 0);
  tokens.forEach((button, other) => {
    const shade = isShaded(other) && strongest > 0 ? Math.sqrt(weights[other] / strongest) : 0;
    button.style.setProperty("--shade", shade.toFixed(3));
    button.querySelector(".weight").textContent = percent(weights[other]);
    button.classList.toggle("pointed", other === token && String(token) !== chosen.token);
  });
  element("strongest").textContent = percent(strongest);
  summarize(token, weights);
  showBand(token);
}

function summarize(token, weights) {
  const order = [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, SUMMARY_TOKENS);
  const listed = order.map((other) => make("span", {}, nameOfToken(other), ` ${percent(weights[other])} `));
  const name = make("b", {}, nameOfToken(token));
  const sentence =
    chosen.direction === "from" ? [name, ` (token ${token}) attends to `] : ["Attention to ", name, ` (token ${token}): `];
  element("summary").replaceChildren(...sentence, ...listed, order.length < length ? "\u2026" : "");
}

function showBand(token) {
  const [start, thickness] = [`${(100 * token) / length}%`, `${100 / length}%`];
  const isRow = chosen.direction === "from";
  Object.assign(element("band").style, {
    top: isRow ? start : "0",
    left: isRow ? "0" : start,
    height: isRow ? thickness : "100%",
    width: isRow ? "100%" : thickness,
  });
}

// Events.

const tokenAt = (event) => event.target.closest?.(".token");

function watchTokens() {
  const area = element("tokens");
  area.addEventListener("click", (event) => tokenAt(event) && choose({ token: tokenAt(event).dataset.token }));
  area.addEventListener("pointerover", (event) => {
    if (event.pointerType === "mouse" && tokenAt(event)) showToken(Number(tokenAt(event).dataset.token));
  });
  area.addEventListener("pointerleave", () => showToken(Number(chosen.token)));
  area.addEventListener("keydown", (event) => {
    const current = Number(chosen.token);
    const next = {
      ArrowLeft: () => current - 1,
      ArrowRight: () => current + 1,
      ArrowUp: () => tokenInNextLine(current, -1),
      ArrowDown: () => tokenInNextLine(current, 1),
      Home: () => 0,
      End: () => length - 1,
    }[event.key]?.();
    moveTo(event, tokens[next], { token: String(next) });
  });
}

function tokenInNextLine(current, step) {
  const place = (token) => tokens[token].getBoundingClientRect();
  const { top, left } = place(current);
  const beyond = [...tokens.keys()].filter((token) => step * (place(token).top - top) > 1);
  const distance = (token) => 1e4 * Math.abs(place(token).top - top) + Math.abs(place(token).left - left);
  return beyond.length ? beyond.reduce((best, token) => (distance(token) < distance(best) ? token : best)) : current;
}

function watchOverview() {
  const area = element("overview");
  area.addEventListener("click", (event) => {
    const cell = event.target.closest(".cell");
    if (cell) choose({ ...cell.dataset });
  });
  area.addEventListener("keydown", (event) => {
    const columns = choices.head.length;
    const current = cells.findIndex((cell) => cell.tabIndex === 0);
    const column = current % columns;
    const next = {
      ArrowLeft: column > 0 ? current - 1 : current,
      ArrowRight: column < columns - 1 ? current + 1 : current,
      ArrowUp: current - columns,
      ArrowDown: current + columns,
      Home: current - column,
      End: current - column + columns - 1,
    }[event.key];
    moveTo(event, cells[next], { ...cells[next]?.dataset });
  });
}

function moveTo(event, button, changes) {
  if (!button || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  choose(changes);
  button.focus();
}

function watchMatrix() {
  const area = element("matrix");
  const tokensAt = (event) => {
    const box = matrix.getBoundingClientRect();
    const token = (share) => Math.min(length - 1, Math.max(0, Math.floor(share * length)));
    return [token((event.clientY - box.top) / box.height), token((event.clientX - box.left) / box.width)];
  };
  area.addEventListener("pointermove", (event) => {
    const [from, to] = tokensAt(event);
    const weight = percent(weightBetween(from, to));
    element("place").replaceChildren(nameOfToken(from), ` (${from}) attends to `, nameOfToken(to), ` (${to}): ${weight}`);
  });
  area.addEventListener("pointerleave", () => element("place").replaceChildren("Point at it to see a weight, click to select a token."));
  area.dispatchEvent(new Event("pointerleave"));
  area.addEventListener("click", (event) => {
    const [from, to] = tokensAt(event);
    choose({ token: String(chosen.direction === "from" ? from : to) });
  });
}

function watchControls() {
  for (const name of ["layer", "head"]) {
    element(name).addEventListener("change", (event) => choose({ [name]: event.target.value }));
  }
  for (const button of document.querySelectorAll("input[name=direction]")) {
    button.addEventListener("change", () => choose({ direction: button.value }));
  }
  element("ordinary").addEventListener("change", show);
  element("controls").addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", chooseByAddress);
}

function chooseByAddress() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  choose(Object.fromEntries(Object.keys(choices).map((name) => [name, wanted.get(name)])));
}

build();
watchTokens();
watchOverview();
watchMatrix();
watchControls();
chooseByAddress();
document.documentElement.dataset.ready = "yes";
