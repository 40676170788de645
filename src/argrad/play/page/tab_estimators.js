// The estimator bench: the library measures bias, spread and time of gradient estimators.

{
  const state = {
    structure: 'onehot',
    n: 5,
    k: 2,
    cost: 'tanh',
    perturbed: false,
    estimators: ['Reinforce', 'LeaveOneOut', 'Rebar', 'UnorderedSet', 'StraightThrough', 'GumbelST', 'ReinMax', 'Relaxed'],
    replicates: 1000,
    seed: 0,
  };
  if (!SETTINGS.served) Object.assign(state, SETTINGS.measured[0].state, { estimators: state.estimators });
  const LAWS = [['onehot', 'one of n'], ['bits', 'n bits'], ['subset', 'k of n'], ['spanningtree', 'spanning tree']];
  const COSTS = ['linear', 'quadratic', 'product', 'tanh'].map((name) => [name, name]);
  let asked = 0;

  const refused = (row) => row.verdict.startsWith('refused');
  const bias = (row) => Math.sqrt(Math.max(row.mse - row.variance, 0));
  const spread = (row) => Math.sqrt(row.variance);
  const error = (row) => Math.sqrt(row.mse);

  /** A row an estimator, on a logarithmic axis: its bias, its standard deviation, and the error that both make. */
  function chart(rows) {
    const values = rows.flatMap((r) => [spread(r), error(r)]).filter((v) => v > 1e-9);
    const least = Math.min(1, ...values); // exact estimators have no spread at all
    const low = 10 ** Math.floor(Math.log10(Math.max(least, 1e-3) / 3));
    const high = 10 ** Math.ceil(Math.log10(Math.max(...values, low * 10)));
    const [left, right, step] = [156, 424, 26];
    const x = (v) => left + ((right - left) * (Math.log10(Math.max(v, low)) - Math.log10(low))) / Math.log10(high / low);
    const bottom = 14 + step * rows.length;
    const ticks = range(Math.round(Math.log10(high / low)) + 1).map((i) => low * 10 ** i);
    const lines = rows.map((r, i) => {
      const y = 16 + step * i;
      return svg(
        'g',
        { 'data-estimator': r.name },
        svg('text', { x: left - 14, y: y + 4, class: 'name', 'text-anchor': 'end' }, r.name),
        svg('line', { class: 'lane', x1: left, x2: right, y1: y, y2: y }),
        svg('line', { class: 'error', x1: x(error(r)), x2: x(error(r)), y1: y - 8, y2: y + 8 }),
        svg('circle', { class: 'spread', cx: x(spread(r)), cy: y, r: 5.5 }),
        svg('path', { class: r.verdict === 'biased' ? 'bias' : 'bias none', d: `M${x(bias(r))} ${y - 6.5}l6.5 6.5l-6.5 6.5l-6.5 -6.5z` }),
      );
    });
    return picture(
      440,
      bottom + 26,
      'Bias and standard deviation of each estimator',
      ticks.map((t) => [
        svg('line', { class: 'gridline', x1: x(t), x2: x(t), y1: 4, y2: bottom }),
        svg('text', { x: x(t), y: bottom + 17, class: 'tick', 'text-anchor': 'middle' }, String(Number(t.toPrecision(1)))),
      ]),
      lines,
    );
  }

  function results(rows, note) {
    const shown = rows.filter((r) => !refused(r)).sort((a, b) => a.mse - b.mse);
    const cells = (r) => [
      r.name,
      number(`${r.name}.bias`, 0, bias(r), 4),
      number(`${r.name}.deviation`, 0, spread(r), 4),
      r.verdict,
      show(r.cosine, 2),
      String(r.evaluations),
    ];
    const refusals = rows.filter(refused).map((r) => el('p', { class: 'note' }, el('strong', {}, r.name), ` ${r.verdict}`));
    if (!shown.length) return [el('p', { class: 'note' }, 'None of the chosen estimators works with this law.'), ...refusals];
    return [
      el('figure', {}, chart(shown)),
      legend(['mark-diamond', 'bias (hollow: none found)'], ['mark-disc', 'standard deviation'], ['mark-bar', 'error of one estimate']),
      el('p', { class: 'note' }, note),
      table(['estimator', 'bias', 'deviation', 'verdict', 'cosine', 'calls of f'], shown.map(cells)),
      ...refusals,
    ];
  }

  /** Without a library: what was measured when this file was written, if that was the question. */
  function fromFile(stage) {
    const wanted = SETTINGS.measured.find((m) => m.state.structure === state.structure);
    const rows = wanted.numbers.rows.filter((r) => state.estimators.includes(r.name));
    const note =
      `This page was opened as a file, so no library is behind it: these are the answers measured by argrad ${SETTINGS.version} when ` +
      'the file was written. Run “argrad play” to measure other problems, sizes and seeds.';
    Object.assign(state, wanted.state, { estimators: state.estimators });
    stage.replaceChildren(...results(rows, note));
  }

  async function fromLibrary(stage) {
    const turn = ++asked;
    stage.classList.add('waiting');
    const begin = performance.now();
    try {
      const { rows, oracle, replicates } = await ask('estimators', state);
      if (turn !== asked) return;
      const seconds = ((performance.now() - begin) / 1000).toFixed(1);
      stage.replaceChildren(
        ...results(rows, `Measured just now by argrad ${SETTINGS.version}: ${replicates} estimates of each against the exact gradient (${oracle}), ${seconds} s.`),
      );
    } catch (failure) {
      if (turn === asked) stage.replaceChildren(el('p', { class: 'badge bad' }, failure.message));
    }
    if (turn === asked) stage.classList.remove('waiting');
  }

  function chips(update) {
    const chip = (name) => {
      const press = () => {
        const chosen = state.estimators.includes(name);
        if (chosen && state.estimators.length === 1) return;
        state.estimators = SETTINGS.estimators.filter((e) => (e === name ? !chosen : state.estimators.includes(e)));
        node.setAttribute('aria-pressed', !chosen);
        update();
      };
      const node = button(name, press, { 'aria-pressed': state.estimators.includes(name), class: 'chip', 'data-control': name });
      return node;
    };
    return el('div', { class: 'chips', role: 'group', 'aria-label': 'Estimators' }, SETTINGS.estimators.map(chip));
  }

  let timer = null;

  TABS.estimators = {
    short: 'Estimators',
    title: 'The estimator bench',
    lead:
      'The gradient of an expected cost through a random choice can be estimated in many ways. Unbiased estimators pay with variance, ' +
      'biased ones never arrive however many samples are averaged. Which one wins depends on the problem, so measure.',
    state,
    controls(box, update) {
      const size = slider('n', state, 'n', { min: 2, max: 6, step: 1, digits: 0 }, update);
      const law = select('choice', state, 'structure', LAWS, () => {
        if (state.structure === 'spanningtree') state.n = Math.min(state.n, 4);
        size.querySelector('input').max = state.structure === 'spanningtree' ? 4 : 6;
        state.k = Math.min(state.k, state.n);
        size.follow();
        update();
      });
      box.append(law);
      if (SETTINGS.served) {
        box.append(
          select('cost', state, 'cost', COSTS, update),
          size,
          slider('replicates', state, 'replicates', { min: 500, max: 2000, step: 100, digits: 0 }, update),
          check('perturb-and-argmax law', state, 'perturbed', update),
          seedControl(state, update),
        );
      }
      box.append(chips(update));
    },
    draw(stage) {
      state.k = Math.min(2, state.n);
      if (!SETTINGS.served) return fromFile(stage);
      clearTimeout(timer);
      timer = setTimeout(() => fromLibrary(stage), stage.childElementCount ? 400 : 0);
      if (!stage.childElementCount) stage.append(el('p', { class: 'badge' }, 'measuring …'));
    },
  };
}
