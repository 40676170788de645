// The tabs: one panel each, made when it is first opened.

const ORDER = ['simplex', 'race', 'estimators', 'structures', 'beam'];
const panels = {};

function copyButton(code) {
  const done = (text) => {
    copy.textContent = text;
    document.getElementById('status').textContent = text;
    setTimeout(() => (copy.textContent = 'Copy as Python'), 1500);
  };
  const copy = button(
    'Copy as Python',
    async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        done('Copied');
      } catch {
        // no permission: select it, so that one key is left to press
        code.closest('details').open = true;
        getSelection().selectAllChildren(code);
        done('Selected: press Ctrl+C');
      }
    },
    { class: 'copy' },
  );
  return copy;
}

function makePanel(name) {
  const tab = TABS[name];
  const code = el('code', { 'data-python': name });
  const badge = el('p', { class: 'badge', role: 'status' });
  const compare = comparison(name, badge);
  const stage = el('div', { class: 'stage' });
  const controls = el('div', { class: 'controls' });
  const update = () => {
    const numbers = NUMBERS[name]?.(tab.state);
    tab.draw(stage, numbers);
    code.textContent = PYTHON[name](tab.state);
    if (numbers) compare(tab.state, numbers);
  };
  tab.controls(controls, update, stage);
  const panel = el(
    'section',
    { role: 'tabpanel', id: `panel-${name}`, 'aria-labelledby': `tab-${name}`, tabindex: '-1' },
    el('h2', {}, tab.title),
    el('p', { class: 'lead' }, tab.lead),
    el('div', { class: 'columns' }, controls, stage),
    NUMBERS[name] ? badge : null,
    el('div', { class: 'python' }, copyButton(code), el('details', {}, el('summary', {}, 'Show the code'), el('pre', {}, code))),
  );
  update();
  return panel;
}

function open(name, focus = false) {
  const main = document.querySelector('main');
  panels[name] ??= main.appendChild(makePanel(name));
  for (const other of ORDER) {
    const chosen = other === name;
    const tab = document.getElementById(`tab-${other}`);
    tab.setAttribute('aria-selected', chosen);
    tab.tabIndex = chosen ? 0 : -1;
    if (panels[other]) panels[other].hidden = !chosen;
    if (chosen && focus) tab.focus();
    if (chosen) tab.scrollIntoView?.({ block: 'nearest', inline: 'nearest' });
  }
  if (location.hash !== `#${name}`) history.replaceState(null, '', `#${name}`);
}

function makeTabs() {
  const bar = document.querySelector('nav');
  const keys = (event, i) => {
    const to = { ArrowRight: i + 1, ArrowLeft: i - 1 + ORDER.length, Home: 0, End: ORDER.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    open(ORDER[to % ORDER.length], true);
  };
  ORDER.forEach((name, i) =>
    bar.append(
      button(TABS[name].short, () => open(name), {
        role: 'tab',
        id: `tab-${name}`,
        'aria-controls': `panel-${name}`,
        onkeydown: (event) => keys(event, i),
      }),
    ),
  );
}

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = dark ? 'light' : 'dark';
}

document.getElementById('theme').addEventListener('click', switchTheme);
document.getElementById('origin').textContent = SETTINGS.served
  ? `served by argrad ${SETTINGS.version} on ${location.host}`
  : `a file of its own, written by argrad ${SETTINGS.version}; “argrad play” adds the library`;
makeTabs();
const fromAddress = () => (ORDER.includes(location.hash.slice(1)) ? location.hash.slice(1) : ORDER[0]);
addEventListener('hashchange', () => open(fromAddress()));
open(fromAddress());
