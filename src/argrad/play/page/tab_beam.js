// Stochastic beam search on a tree of short words, step by step.

{
  const LETTERS = ['·', 'a', 'b'];
  const state = { table: [[-0.5, 0.8, 0.4], [0.6, -0.4, 0.5], [0.2, 0.9, -0.6]], k: 3, seed: 1 };
  const view = { level: 3 };
  const spelled = (tokens) => tokens.map((t) => LETTERS[t]).join('');

  /** All nodes, each with its place: leaves from top to bottom, parents in the middle of their children. */
  function layout() {
    const nodes = new Map();
    let leaves = 0;
    const visit = (tokens) => {
      const ends = tokens.at(-1) === END || tokens.length === LONGEST;
      const below = ends ? [] : LETTERS.map((_, t) => visit([...tokens, t]));
      const y = ends ? 20 + 25 * leaves++ : (below[0].y + below.at(-1).y) / 2;
      const node = { tokens, x: 22 + 117 * tokens.length, y, below };
      nodes.set(spelled(tokens), node);
      return node;
    };
    visit([]);
    return nodes;
  }

  const PLACES = layout();

  /** How the search sees a node after `level` steps: kept, dropped, passed (an ancestor), or never looked at. */
  function fates(levels) {
    const fate = new Map();
    levels.slice(0, view.level + 1).forEach(({ looked, kept }, step) => {
      looked.forEach((node) => fate.set(spelled(node.tokens), { kind: 'dropped', node, step }));
      kept.forEach((node) => fate.set(spelled(node.tokens), { kind: 'kept', node, step }));
    });
    const beam = levels[Math.min(view.level, levels.length - 1)].kept.map((node) => spelled(node.tokens));
    for (const [name, f] of fate) {
      if (f.kind !== 'kept' || beam.includes(name)) continue;
      // a kept node of an earlier level lives on in its descendants, or was dropped with them
      f.kind = beam.some((other) => other.startsWith(name)) ? 'passed' : 'dropped';
    }
    return fate;
  }

  /** G of a node: beside a leaf, above a node whose branches leave to the right. */
  const value = (x, y, g, isLeaf) =>
    svg('text', { x: isLeaf ? x + 14 : x, y: isLeaf ? y + 4 : y - 14, class: 'value halo', 'text-anchor': isLeaf ? 'start' : 'middle' }, show(g, 2));

  function tree(levels) {
    const fate = fates(levels);
    const edges = [];
    const marks = [];
    for (const [name, { tokens, x, y, below }] of PLACES) {
      const seen = fate.get(name);
      const kind = seen?.kind ?? 'unseen';
      for (const child of below) {
        const to = fate.get(spelled(child.tokens))?.kind ?? 'unseen';
        edges.push(svg('path', { class: `branch ${to}`, d: `M${x} ${y}C${x + 60} ${y} ${child.x - 60} ${child.y} ${child.x} ${child.y}` }));
      }
      const label = tokens.length ? LETTERS[tokens.at(-1)] : '';
      marks.push(
        svg(
          'g',
          { class: `leaf ${kind}`, 'data-node': name || 'root' },
          svg('title', {}, seen ? `${name || 'start'}: log p ${show(seen.node.logProb)}, G ${show(seen.node.perturbed)}` : `${name}: never looked at`),
          svg('circle', { cx: x, cy: y, r: 10 }),
          svg('text', { x, y: y + 4.5, class: 'token', 'text-anchor': 'middle' }, label),
          seen ? value(x, y, seen.node.perturbed, below.length === 0) : null,
        ),
      );
    }
    return picture(440, 392, 'The tree of words, and what the search has kept', edges, marks);
  }

  function explanation(levels) {
    const level = Math.min(view.level, levels.length - 1);
    const { looked, kept, kappa } = levels[level];
    if (level === 0) return `Start: the largest perturbed log-probability of all words is drawn first, G = ${show(levels[0].kept[0].perturbed, 2)}.`;
    const dropped = looked.length - kept.length;
    const threshold = kappa === -Infinity ? 'nothing has been dropped' : `the largest dropped is κ = ${show(kappa, 2)}`;
    return (
      `Level ${level}: each kept node shares its G among its children, one of which inherits it. ` +
      `${looked.length} looked at, the ${kept.length} largest kept, ${dropped} dropped; so far ${threshold}.` +
      (kept.every((n) => n.finished) ? ' All words are complete: this is the sample.' : '')
    );
  }

  TABS.beam = {
    short: 'Beam search',
    title: 'Stochastic beam search',
    lead:
      'Draw k different words from a language model, without replacement, looking at only k nodes a level. Each word has a perturbed ' +
      'log-probability G; a node carries the largest G below it, so the k best nodes hold the k best words. “·” ends a word.',
    state,
    controls(box, update) {
      const level = slider('level', view, 'level', { min: 0, max: LONGEST, step: 1, digits: 0 }, update);
      const to = (value) => {
        view.level = Math.min(Math.max(value, 0), LONGEST);
        level.follow();
        update();
      };
      const contexts = ['at the start', 'after a', 'after b'];
      box.append(
        el(
          'div',
          { class: 'buttons' },
          button('Back', () => to(view.level - 1)),
          button('Step', () => to(view.level === LONGEST ? 0 : view.level + 1), { class: 'primary', 'data-control': 'step' }),
        ),
        level,
        slider('k', state, 'k', { min: 1, max: 6, step: 1, digits: 0 }, update),
        el('h3', {}, 'logits of the model'),
        el(
          'div',
          { class: 'grid wide-heads', style: '--columns:4' },
          el('b', {}),
          LETTERS.map((l) => el('b', {}, l)),
          contexts.flatMap((context, i) => [
            el('b', {}, context),
            ...LETTERS.map((l, j) => scoreCell(`${l} ${context}`, () => state.table[i][j], (v) => ((state.table[i][j] = v), update()))),
          ]),
        ),
        seedControl(state, update),
      );
    },
    draw(stage, numbers) {
      const levels = beamSearch(state.table, state.k, state.seed);
      const words = levels.at(-1).kept;
      const row = (node, i) => [
        el('strong', {}, spelled(node.tokens)),
        number('log_prob', i, numbers.log_prob[i]),
        number('perturbed', i, numbers.perturbed[i]),
        number('weights', i, numbers.weights[i]),
      ];
      stage.replaceChildren(
        el('figure', {}, tree(levels)),
        legend(['mark-kept', 'kept'], ['mark-passed', 'expanded'], ['mark-dropped', 'dropped'], ['mark-unseen', 'never looked at']),
        el('p', { class: 'note' }, explanation(levels)),
        view.level >= levels.length - 1
          ? table(['word', 'log p', 'G', 'weight'], words.map(row))
          : el('p', { class: 'note' }, 'Step on to see the sample and its weights.'),
      );
    },
  };
}
