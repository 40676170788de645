// Structures: one draw, as perturbed scores, relaxed point and hard choice.

{
  const KINDS = {
    subset: { name: 'k of n', scores: [1.2, 0.4, -0.3, 0.8, 0, -0.9, 0.5], says: 'k items out of seven' },
    permutation: {
      name: 'permutation',
      scores: [[1, 0.2, 0, -0.5], [0, 1, 0.3, 0], [-0.4, 0, 1, 0.6], [0.1, -0.2, 0.4, 1]],
      says: 'an order: item in the column, place in the row',
    },
    tree: {
      name: 'spanning tree',
      scores: symmetric(5, (i, j) => [1.5, 0.2, -0.5, 0.9, 0.8, -0.3, 0.4, 1.1, -0.8, 0.3][(i * (9 - i)) / 2 + j - i - 1]),
      says: 'edges that connect all nodes without a cycle',
    },
    arborescence: {
      name: 'rooted tree',
      scores: matrix(5, 5, (i, j) => (i === j || j === 0 ? 0 : Math.round(10 * Math.cos(3 * i + 7 * j)) / 10)),
      says: 'a head (row) for every child (column), away from the root A',
    },
  };
  const state = { structure: 'subset', k: 3, scores: [...KINDS.subset.scores], tau: 0.5, seed: 1, noise: true };
  const kept = Object.fromEntries(Object.entries(KINDS).map(([kind, { scores }]) => [kind, structuredCopy(scores)]));

  function symmetric(n, f) {
    return matrix(n, n, (i, j) => (i === j ? 0 : f(Math.min(i, j), Math.max(i, j))));
  }

  function structuredCopy(x) {
    return Array.isArray(x) ? x.map(structuredCopy) : x;
  }

  /** The grid of scores: a row of items, or a matrix without what does not count. */
  function grid(update) {
    const { structure, scores } = state;
    if (structure === 'subset') {
      const cells = range(scores.length).map((i) => scoreCell(ITEMS[i], () => scores[i], (v) => ((scores[i] = v), update())));
      return el('div', { class: 'grid', style: `--columns:${scores.length}` }, range(scores.length).map((i) => el('b', {}, ITEMS[i])), cells);
    }
    const n = scores.length;
    const cells = {};
    const counts = (i, j) => structure === 'permutation' || (i !== j && !(structure === 'arborescence' && j === 0));
    const make = (i, j) => {
      if (!counts(i, j)) return el('span', { class: 'none' });
      const set = (v) => {
        scores[i][j] = v;
        if (structure === 'tree') {
          scores[j][i] = v;
          cells[`${j},${i}`].follow();
        }
        update();
      };
      const row = structure === 'permutation' ? String(i + 1) : ITEMS[i];
      return (cells[`${i},${j}`] = scoreCell(`${row} ${ITEMS[j]}`, () => scores[i][j], set));
    };
    const heads = [el('b', {}), ...range(n).map((j) => el('b', {}, ITEMS[j]))];
    const rows = range(n).flatMap((i) => [el('b', {}, structure === 'permutation' ? String(i + 1) : ITEMS[i]), ...range(n).map((j) => make(i, j))]);
    return el('div', { class: 'grid', style: `--columns:${n + 1}` }, heads, rows);
  }

  /** Perturbed scores as weights from 0 to 1, for pictures. */
  function scaled(values, counts) {
    const used = values.flatMap((row, i) => row.filter((_, j) => counts(i, j)));
    const [low, high] = [Math.min(...used), Math.max(...used)];
    return values.map((row, i) => row.map((v, j) => (counts(i, j) ? (v - low) / (high - low || 1) : 0)));
  }

  function pictures({ perturbed, soft, hard }) {
    const { structure } = state;
    if (structure === 'subset') {
      return [bars(perturbed, 'Perturbed scores', 'tint-noise'), bars(soft, 'Relaxed', 'tint-soft', 1), bars(hard, 'Hard', 'tint-hard', 1)];
    }
    if (structure === 'permutation') {
      const weights = scaled(perturbed, () => true).map((row) => row.map((v) => 0.85 * v));
      return [heatmap(perturbed, weights, 'Perturbed scores', 'tint-noise', 1), heatmap(soft, soft, 'Relaxed', 'tint-soft'), heatmap(hard, hard, 'Hard', 'tint-hard', 0)];
    }
    const directed = structure === 'arborescence';
    const weights = scaled(perturbed, (i, j) => i !== j && !(directed && j === 0));
    return [
      graph(weights, 'Perturbed scores', 'tint-noise', directed),
      graph(soft, 'Relaxed', 'tint-soft', directed),
      graph(hard, 'Hard', 'tint-hard', directed),
    ];
  }

  /** The parts with their numbers, the most probable first. */
  function parts(numbers) {
    const { structure } = state;
    const n = state.scores.length;
    const named =
      structure === 'subset'
        ? range(n).map((i) => [ITEMS[i], [i]])
        : matrix(n, n, (i, j) => [structure === 'permutation' ? `${ITEMS[j]} at ${i + 1}` : `${ITEMS[i]}${structure === 'tree' ? '–' : '→'}${ITEMS[j]}`, [i, j]])
            .flat()
            .filter(([, [i, j]]) => structure === 'permutation' || (structure === 'tree' ? i < j : i !== j && j !== 0));
    const value = (x, place) => place.reduce((v, i) => v[i], x);
    return named
      .sort((x, y) => value(numbers.soft, y[1]) - value(numbers.soft, x[1]))
      .slice(0, 10)
      .map(([name, place]) => [name, ...['perturbed', 'soft', 'hard'].map((key) => number(key, place.join(','), value(numbers[key], place), key === 'hard' ? 0 : 3))]);
  }

  TABS.structures = {
    short: 'Structures',
    title: 'Structured choices',
    lead:
      'The same three steps for any set of objects: perturb the scores, take the best object (hard), or the best point of the hull, ' +
      'cooled by the temperature (relaxed). Drag a score up or down, or focus it and use the arrow keys.',
    state,
    controls(box, update) {
      const size = slider('k', state, 'k', { min: 1, max: 6, step: 1, digits: 0 }, update);
      const holder = el('div', {});
      const says = el('p', { class: 'note' });
      const follow = () => {
        state.scores = kept[state.structure];
        size.hidden = state.structure !== 'subset';
        says.textContent = KINDS[state.structure].says;
        holder.replaceChildren(grid(update));
      };
      follow();
      box.append(
        select('structure', state, 'structure', Object.entries(KINDS).map(([kind, { name }]) => [kind, name]), () => (follow(), update())),
        says,
        size,
        slider('temperature τ', state, 'tau', { min: 0.05, max: 10, log: true }, update),
        el('h3', {}, 'scores'),
        holder,
        check('Gumbel noise', state, 'noise', update),
        seedControl(state, update),
      );
    },
    draw(stage, numbers) {
      const titles = ['perturbed', `relaxed, τ = ${state.tau}`, 'hard'];
      stage.replaceChildren(
        el('div', { class: 'three' }, pictures(numbers).map((p, i) => el('figure', {}, el('figcaption', {}, titles[i]), p))),
        table(['part', 'perturbed', 'relaxed', 'hard'], parts(numbers)),
      );
    },
  };
}
