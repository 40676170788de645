// Temperature on the simplex: Gumbel-softmax samples of three items.

{
  const CORNERS = [[40, 350], [400, 350], [220, 38]];
  const place = (p) => [0, 1].map((axis) => sum(p.map((v, i) => v * CORNERS[i][axis])));
  const state = { logits: [0.8, 0.2, -0.6], tau: 0.5, seed: 1, draws: 200 };
  const view = { draw: 0, hard: false };
  let sliders = [];

  /** Barycentric coordinates of a point of the picture, kept inside the triangle. */
  function coordinates(x, y) {
    const height = (CORNERS[0][1] - y) / (CORNERS[0][1] - CORNERS[2][1]);
    const right = (x - CORNERS[0][0] - height * (CORNERS[2][0] - CORNERS[0][0])) / (CORNERS[1][0] - CORNERS[0][0]);
    const p = [1 - right - height, right, height].map((v) => Math.min(Math.max(v, 0.004), 1));
    return p.map((v) => v / sum(p));
  }

  /** Dragging the ring moves the probabilities; the logits follow. */
  function draggable(stage, update) {
    const move = (event) => {
      const box = stage.querySelector('svg').getBoundingClientRect(); // every move draws a new one
      const p = coordinates(((event.clientX - box.left) * 440) / box.width, ((event.clientY - box.top) * 400) / box.height);
      const centre = sum(p.map(Math.log)) / 3;
      p.forEach((v, i) => (state.logits[i] = Math.min(Math.max(Math.round((Math.log(v) - centre) * 20) / 20, -4), 4)));
      sliders.forEach((s) => s.follow());
      update();
    };
    stage.addEventListener('pointerdown', (event) => {
      if (!event.target.closest('.handle')) return;
      event.preventDefault();
      addEventListener('pointermove', move);
      addEventListener('pointerup', () => removeEventListener('pointermove', move), { once: true });
    });
  }

  /** One draw from the hottest to the coldest temperature: same noise, soft to hard. */
  function path() {
    const w = plus(state.logits, gumbelRow(state.seed, view.draw, 3));
    const points = range(81).map((i) => place(softmax(w, 20 * 10 ** (-i / 20))));
    return svg('polyline', { class: 'path', points: points.map((p) => p.join(',')).join(' ') });
  }

  function dot(p, i) {
    const winner = argmax(p);
    const [x, y] = place(view.hard ? range(3).map((j) => (j === winner ? 1 : 0)) : p);
    // hard samples lie on top of each other: spread them a little
    const shift = view.hard ? 16 * Math.sqrt(((i * 0.618) % 1) + 0.02) : 0;
    const turn = i * 2.399963;
    return svg('circle', {
      cx: x + shift * Math.cos(turn),
      cy: y + shift * Math.sin(turn),
      r: i === view.draw ? 6 : 3.6,
      class: i === view.draw ? 'dot chosen' : 'dot',
      style: `fill:${colour(winner)}`,
    });
  }

  function triangle(numbers) {
    const cross = place(numbers.mean);
    const [x, y] = place(numbers.expectation);
    const labels = [[22, 376], [418, 376], [220, 24]];
    return picture(
      440,
      400,
      'Relaxed samples on the probability triangle',
      svg('polygon', { class: 'frame', points: CORNERS.map((c) => c.join(',')).join(' ') }),
      labels.map(([lx, ly], i) =>
        svg('text', { x: lx, y: ly, class: 'corner', 'text-anchor': 'middle', style: `fill:${colour(i)}` }, ITEMS[i]),
      ),
      numbers.soft.map((p, i) => (i === view.draw ? null : dot(p, i))),
      path(),
      dot(numbers.soft[view.draw], view.draw),
      svg('path', { class: 'cross', d: `M${cross[0] - 8} ${cross[1]}h16M${cross[0]} ${cross[1] - 8}v16` }),
      svg('g', { class: 'handle' }, svg('circle', { cx: x, cy: y, r: 20, class: 'grip' }), svg('circle', { cx: x, cy: y, r: 9, class: 'ring' })),
    );
  }

  TABS.simplex = {
    short: 'Temperature',
    title: 'Temperature on the simplex',
    lead:
      'A choice among three items, softened: each dot is one Gumbel-softmax sample. Cool it down and the dots run to the corners, ' +
      'heat it up and they gather in the middle. Which corner a dot belongs to never depends on the temperature.',
    state,
    controls(box, update, stage) {
      draggable(stage, update);
      sliders = range(3).map((i) =>
        slider(`logit ${ITEMS[i]}`, state.logits, i, { min: -4, max: 4, step: 0.05, swatch: swatch(i) }, update),
      );
      box.append(
        slider('temperature τ', state, 'tau', { min: 0.05, max: 10, log: true }, update),
        ...sliders,
        slider('samples', state, 'draws', { min: 10, max: 500, step: 10, digits: 0 }, () => {
          view.draw = Math.min(view.draw, state.draws - 1);
          update();
        }),
        slider('follow sample', view, 'draw', { min: 0, max: 9, step: 1, digits: 0 }, update),
        check('hard samples (straight-through)', view, 'hard', update),
        seedControl(state, update),
      );
    },
    draw(stage, numbers) {
      const row = (i) => [swatch(i), ...['expectation', 'frequency', 'mean'].map((key) => number(key, i, numbers[key][i]))];
      stage.replaceChildren(
        el('figure', {}, triangle(numbers)),
        legend(['mark-ring', 'softmax(θ): drag it'], ['mark-cross', 'mean of the soft samples'], ['mark-line', 'one sample, hot to cold']),
        table(['item', 'softmax(θ)', 'hard samples', 'mean of soft'], range(3).map(row)),
      );
    },
  };
}
