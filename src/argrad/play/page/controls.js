// Controls: each changes one value of a tab's state and asks for a new picture.

/** A slider for `target[key]`. With `log` it moves through orders of magnitude. */
function slider(label, target, key, { min, max, step = 0.1, log = false, digits = 2, swatch }, changed) {
  const toPlace = log ? Math.log10 : (x) => x;
  const fromPlace = log ? (x) => Number((10 ** x).toPrecision(3)) : (x) => x;
  const output = el('output', {}, show(target[key], digits));
  const input = el('input', {
    type: 'range',
    min: toPlace(min),
    max: toPlace(max),
    step: log ? 0.01 : step,
    'aria-label': label,
    'data-control': label,
    oninput: () => {
      target[key] = fromPlace(Number(input.value));
      follow();
      changed();
    },
  });
  const follow = () => {
    input.value = toPlace(target[key]);
    output.textContent = show(target[key], digits);
    input.setAttribute('aria-valuetext', output.textContent);
  };
  follow();
  const row = el('label', { class: 'slider' }, el('span', {}, swatch ?? label), input, output);
  row.follow = follow; // after the value was changed by another control
  return row;
}

function check(label, target, key, changed) {
  const input = el('input', {
    type: 'checkbox',
    checked: target[key],
    'data-control': label,
    onchange: () => {
      target[key] = input.checked;
      changed();
    },
  });
  return el('label', { class: 'check' }, input, label);
}

function select(label, target, key, options, changed) {
  const input = el(
    'select',
    {
      'data-control': label,
      onchange: () => {
        target[key] = input.value;
        changed();
      },
    },
    options.map(([value, text]) => el('option', { value, selected: value === target[key] }, text)),
  );
  return el('label', { class: 'select' }, el('span', {}, label), input);
}

const button = (text, onclick, attributes = {}) => el('button', { type: 'button', onclick, ...attributes }, text);

/** The seed, and a button that goes on to the next one. */
function seedControl(state, changed) {
  const input = el('input', {
    type: 'number',
    min: 0,
    max: 2 ** 31 - 1,
    step: 1,
    value: state.seed,
    'data-control': 'seed',
    onchange: () => set(Number(input.value)),
  });
  const set = (seed) => {
    state.seed = Number.isInteger(seed) ? Math.min(Math.max(seed, 0), 2 ** 31 - 1) : 0;
    input.value = state.seed;
    changed();
  };
  return el(
    'div',
    { class: 'seed' },
    el('label', {}, el('span', {}, 'seed'), input),
    button('new noise', () => set(state.seed + 1), { 'data-control': 'new noise' }),
  );
}

/** A number in a cell that is dragged up and down, or moved by the arrow keys. */
function scoreCell(name, get, set) {
  const limit = (x) => Math.min(Math.max(Math.round(x * 10) / 10, -5), 5);
  let from = null;
  const cell = el('div', {
    class: 'score',
    role: 'slider',
    tabindex: '0',
    'aria-label': `score ${name}`,
    'aria-valuemin': -5,
    'aria-valuemax': 5,
    'data-control': `score ${name}`,
    onkeydown: (event) => {
      const step = { ArrowUp: 0.1, ArrowRight: 0.1, ArrowDown: -0.1, ArrowLeft: -0.1, PageUp: 1, PageDown: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      move(get() + step);
    },
    onpointerdown: (event) => {
      cell.setPointerCapture(event.pointerId);
      from = { y: event.clientY, value: get() };
    },
    onpointermove: (event) => {
      if (from) move(from.value + (from.y - event.clientY) / 20);
    },
    onpointerup: () => (from = null),
    onpointercancel: () => (from = null),
  });
  const follow = () => {
    const value = get();
    cell.textContent = show(value, 1);
    cell.setAttribute('aria-valuenow', value);
    cell.style.setProperty('--level', `${Math.abs(value) * 16}%`);
    cell.classList.toggle('negative', value < 0);
  };
  const move = (value) => {
    set(limit(value));
    follow();
  };
  follow();
  cell.follow = follow;
  return cell;
}
