// The library behind the page, if there is one: it computes the same numbers, and measures estimators.

async function ask(tab, state) {
  const response = await fetch(`/api/${tab}`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(state),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

/** The largest difference between two nested lists of numbers; infinite where their shapes differ. */
function difference(x, y) {
  if (typeof x === 'number' && typeof y === 'number') return Math.abs(x - y);
  if (!x || !y || typeof x !== 'object' || typeof y !== 'object') return Infinity;
  const names = Object.keys(x);
  if (names.length !== Object.keys(y).length) return Infinity;
  return Math.max(0, ...names.map((name) => difference(x[name], y[name])));
}

/** Says in `badge` whether the library agrees, some time after the last change. */
function comparison(tab, badge) {
  let timer = null;
  let latest = 0;
  return (state, numbers) => {
    if (!SETTINGS.served) {
      badge.textContent = 'Computed in your browser, with the library’s own noise.';
      return;
    }
    clearTimeout(timer);
    const turn = ++latest;
    badge.className = 'badge';
    badge.textContent = 'asking the library …';
    timer = setTimeout(async () => {
      try {
        const gap = difference(numbers, await ask(tab, JSON.parse(JSON.stringify(state))));
        if (turn !== latest) return;
        const agrees = gap < 1e-9;
        badge.className = `badge ${agrees ? 'good' : 'bad'}`;
        badge.textContent = agrees
          ? `✓ argrad ${SETTINGS.version} computes the same numbers (largest difference ${gap ? gap.toExponential(0) : '0'})`
          : `The library disagrees by ${gap.toExponential(1)}: please report this seed.`;
      } catch (error) {
        if (turn !== latest) return;
        badge.className = 'badge bad';
        badge.textContent = error.message === 'Failed to fetch' ? 'The server has stopped.' : error.message;
      }
    }, 250);
  };
}
