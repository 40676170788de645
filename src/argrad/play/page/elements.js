// Elements of the page and of its pictures.

function build(make, tag, attributes, children) {
  const node = make(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name.startsWith('aria-')) node.setAttribute(name, String(value));
    else if (value !== undefined && value !== false) node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined));
  return node;
}

const el = (tag, attributes, ...children) => build((t) => document.createElement(t), tag, attributes, children);
const svg = (tag, attributes, ...children) =>
  build((t) => document.createElementNS('http://www.w3.org/2000/svg', t), tag, attributes, children);

/** A picture that scales with its column; `label` is what a screen reader says. */
const picture = (width, height, label, ...children) =>
  svg('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label }, ...children);

const ITEMS = ['A', 'B', 'C', 'D', 'E', 'F', 'G', 'H'];
/** Okabe and Ito's palette, told apart with any common kind of colour blindness. */
const colour = (i) => `var(--item-${i})`;
const show = (x, digits = 3) => (Object.is(Number(x.toFixed(digits)), -0) ? 0 : x).toFixed(digits).replace('-', '−');

/** A number of the tab, marked with its name so that it can be found (and tested). */
const number = (key, index, value, digits = 3) =>
  el('span', { class: 'number', 'data-key': key, 'data-index': index }, show(value, digits));

/** A table: heads, and rows of cells. */
const table = (heads, rows) =>
  el(
    'div',
    { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Numbers' },
    el(
      'table',
      {},
      el('thead', {}, el('tr', {}, heads.map((h) => el('th', { scope: 'col' }, h)))),
      el('tbody', {}, rows.map((cells) => el('tr', {}, cells.map((c) => el('td', {}, c))))),
    ),
  );

const legend = (...entries) =>
  el('p', { class: 'legend' }, entries.map(([mark, text]) => el('span', {}, el('i', { class: mark }), text)));

const swatch = (i) => el('span', { class: 'swatch', style: `background:${colour(i)}` }, ITEMS[i]);

/** name -> what a tab says, its state, its controls and how it is drawn; each `tab_*.js` adds one. */
const TABS = {};
