// Elements, numbers, words, light and dark.

const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";

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

// -- numbers and words --------------------------------------------------------------------------------------------

// Decimals that leave four digits to the largest; the same for a whole column, so that points align.
function decimalsFor(values) {
  const most = Math.max(0, ...values.map(Math.abs));
  return most > 0 ? Math.min(12, Math.max(0, 3 - Math.floor(Math.log10(most)))) : 3;
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

// Chinese, Japanese and Korean signs, and pictures, are as wide as two others.
function width(signs) {
  return signs.reduce((sum, sign) => sum + (sign.codePointAt(0) >= 0x1100 ? 2 : 1), 0);
}

// Cut in the middle, because names differ at their ends; by signs, not code units: half a sign is no text.
function short(text, most) {
  const signs = [...text];
  if (signs.length <= most / 2 || width(signs) <= most) return text;
  const [head, tail] = [[], []];
  for (let used = 1; used < most && signs.length; ) {
    const sign = head.length <= tail.length ? signs.shift() : signs.pop();
    used += width([sign]);
    if (used > most) break;
    if (head.length <= tail.length) head.push(sign);
    else tail.unshift(sign);
  }
  return head.join("") + "\u2026" + tail.join("");
}

// Text of an SVG, cut in the middle until it is no wider than so many pixels.
function fitText(node, text, room) {
  let most = Math.min(300, width([...text]));
  while (node.getComputedTextLength() > room && most > 2) {
    most = Math.max(2, Math.min(most - 1, Math.floor((most * room) / node.getComputedTextLength())));
    node.textContent = short(text, most);
  }
}

function csv(rows) {
  const field = (x) => (/[",\r\n]/.test(String(x)) ? `"${String(x).replaceAll('"', '""')}"` : String(x));
  return rows.map((row) => row.map(field).join(",")).join("\r\n") + "\r\n";
}

// -- light and dark -----------------------------------------------------------------------------------------------

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
