// The Gumbel-max race: exponential clocks with rates exp(logit); the first to ring wins.

{
  const state = { logits: [1, 0.5, 0, -0.5, -1], seed: 1, rounds: 20 };
  const N = state.logits.length;
  const LEFT = 34;
  const RIGHT = 404;
  let running = 0;
  let roundsSlider = null;

  /** Where everybody is at `time`: a runner with arrival time T has done time / T of the way. */
  function track(numbers, time) {
    const best = argmax(numbers.perturbed);
    const over = time >= numbers.times[best];
    const lanes = range(N).map((i) => {
      const y = 26 + 40 * i;
      const x = LEFT + (RIGHT - LEFT) * Math.min(time / numbers.times[i], 1);
      const wins = over && i === best;
      return svg(
        'g',
        {},
        svg('line', { class: 'lane', x1: LEFT, x2: RIGHT, y1: y, y2: y }),
        svg('line', { class: 'trail', x1: LEFT, x2: x, y1: y, y2: y, style: `stroke:${colour(i)}` }),
        svg('text', { x: 14, y: y + 5, class: 'tick', 'text-anchor': 'middle' }, ITEMS[i]),
        svg('circle', { cx: x, cy: y, r: wins ? 13 : 10, style: `fill:${colour(i)}`, class: wins ? 'runner wins' : 'runner' }),
        wins ? svg('text', { x, y: y + 4.5, class: 'star', 'text-anchor': 'middle' }, '★') : null,
      );
    });
    return picture(
      440,
      220,
      `The last race, won by ${ITEMS[best]}`,
      svg('line', { class: 'finish', x1: RIGHT, x2: RIGHT, y1: 6, y2: 208 }),
      lanes,
    );
  }

  /** How often each has won, with a mark where its probability is. */
  function tally(numbers) {
    const top = Math.max(0.5, ...numbers.share, ...numbers.probability);
    const x = (p) => LEFT + ((RIGHT - LEFT) * p) / top;
    const bars = range(N).map((i) => {
      const y = 10 + 30 * i;
      return svg(
        'g',
        {},
        svg('text', { x: 14, y: y + 15, class: 'tick', 'text-anchor': 'middle' }, ITEMS[i]),
        svg('rect', { x: LEFT, y, width: x(numbers.share[i]) - LEFT, height: 20, rx: 3, style: `fill:${colour(i)}` }),
        svg('line', { class: 'target', x1: x(numbers.probability[i]), x2: x(numbers.probability[i]), y1: y - 3, y2: y + 23 }),
      );
    });
    return picture(440, 162, 'Share of wins against probability', bars);
  }

  function render(stage, numbers, time) {
    const row = (i) => [
      swatch(i),
      number('perturbed', i, numbers.perturbed[i]),
      number('times', i, numbers.times[i]),
      number('share', i, numbers.share[i]),
      number('probability', i, numbers.probability[i]),
    ];
    stage.replaceChildren(
      el('figure', {}, el('figcaption', {}, `race ${state.rounds}`), track(numbers, time)),
      el('figure', {}, el('figcaption', {}, `wins in ${state.rounds} race${state.rounds > 1 ? 's' : ''}; a line marks softmax(θ)`), tally(numbers)),
      table(['item', 'θ + Gumbel', 'arrival time', 'share of wins', 'softmax(θ)'], range(N).map(row)),
    );
  }

  /** Run the last race in about a second, unless the reader prefers stillness. */
  function animate(stage) {
    const numbers = NUMBERS.race(state);
    const end = Math.min(...numbers.times);
    const turn = ++running;
    const begin = performance.now();
    const frame = (now) => {
      if (turn !== running) return;
      const time = Math.min((now - begin) / 900, 1) * end;
      stage.querySelector('figure svg')?.replaceWith(track(numbers, time));
      if (time < end) requestAnimationFrame(frame);
    };
    if (!matchMedia('(prefers-reduced-motion: reduce)').matches) requestAnimationFrame(frame);
  }

  TABS.race = {
    short: 'Gumbel race',
    title: 'The Gumbel-max race',
    lead:
      'Add Gumbel noise to each score and take the largest: that draws exactly from softmax(θ). The same, told as a race: every item ' +
      'runs to a finish that it reaches at time exp(−(θ + Gumbel)), and the first one there is the sample.',
    state,
    controls(box, update, stage) {
      const go = (rounds, moving) => {
        state.rounds = Math.min(Math.max(rounds, 1), 1000);
        roundsSlider.follow();
        update();
        if (moving) animate(stage);
      };
      roundsSlider = slider('races', state, 'rounds', { min: 1, max: 1000, step: 1, digits: 0 }, update);
      box.append(
        el(
          'div',
          { class: 'buttons' },
          button('Race', () => go(state.rounds + 1, true), { class: 'primary', 'data-control': 'race' }),
          button('100 races', () => go(state.rounds + 100, false), { 'data-control': '100 races' }),
          button('Start over', () => go(1, true)),
        ),
        roundsSlider,
        ...range(N).map((i) =>
          slider(`logit ${ITEMS[i]}`, state.logits, i, { min: -4, max: 4, step: 0.05, swatch: swatch(i) }, update),
        ),
        seedControl(state, update),
      );
    },
    draw(stage, numbers) {
      running++; // whatever is still running is out of date
      render(stage, numbers, Math.min(...numbers.times));
    },
  };
}
