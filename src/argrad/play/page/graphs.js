// Pictures of structures: bars, matrices, graphs; every part has a weight from 0 to 1.

/** Bars of items, in the colour `tint`; values may be negative. */
function bars(values, label, tint, top) {
  const low = Math.min(0, ...values);
  const high = Math.max(top ?? 0, ...values, low + 1e-9);
  const y = (v) => 14 + (106 * (high - v)) / (high - low);
  const width = 200 / values.length;
  return picture(
    220,
    150,
    label,
    svg('line', { class: 'axis', x1: 8, x2: 212, y1: y(0), y2: y(0) }),
    values.map((v, i) => [
      svg('rect', { x: 10 + i * width + 2, y: Math.min(y(v), y(0)), width: width - 4, height: Math.abs(y(v) - y(0)), rx: 2, class: tint }),
      svg('text', { x: 10 + (i + 0.5) * width, y: 144, class: 'tick', 'text-anchor': 'middle' }, ITEMS[i]),
    ]),
  );
}

/** A matrix, darker where it is larger; `weights` are the darknesses from 0 to 1. */
function heatmap(values, weights, label, tint, digits = 2) {
  const n = values.length;
  const size = 176 / n;
  return picture(
    220,
    208,
    label,
    range(n).map((i) => [
      svg('text', { x: 16, y: 22 + (i + 0.5) * size + 4, class: 'tick', 'text-anchor': 'middle' }, String(i + 1)),
      svg('text', { x: 28 + (i + 0.5) * size, y: 14, class: 'tick', 'text-anchor': 'middle' }, ITEMS[i]),
    ]),
    matrix(n, n, (i, j) => [
      svg('rect', { x: 28 + j * size + 1, y: 22 + i * size + 1, width: size - 2, height: size - 2, rx: 3, class: 'cell' }),
      svg('rect', {
        x: 28 + j * size + 1, y: 22 + i * size + 1, width: size - 2, height: size - 2, rx: 3, class: tint,
        style: `opacity:${weights[i][j]}`,
      }),
      svg(
        'text',
        { x: 28 + (j + 0.5) * size, y: 22 + (i + 0.5) * size + 4, 'text-anchor': 'middle', class: weights[i][j] > 0.7 ? 'value on-dark' : 'value' },
        show(values[i][j], digits),
      ),
    ]).flat(),
  );
}

/** Nodes on a circle; the width of an edge is its weight. Arcs of directed graphs bend, and have a head. */
function graph(weights, label, tint, directed) {
  const n = weights.length;
  const at = (i) => {
    const turn = (2 * Math.PI * i) / n - Math.PI / 2;
    return [110 + 78 * Math.cos(turn), 106 + 78 * Math.sin(turn)];
  };
  const edges = matrix(n, n, (i, j) => {
    const weight = weights[i][j];
    const drawn = i !== j && weight > 0.004 && (directed ? j !== 0 : i < j);
    return drawn ? edge(at(i), at(j), weight, tint, directed) : null;
  }).flat();
  const nodes = range(n).map((i) => {
    const [x, y] = at(i);
    const root = directed && i === 0;
    return [
      svg('circle', { cx: x, cy: y, r: 14, class: root ? 'node root' : 'node' }),
      svg('text', { x, y: y + 4.5, class: root ? 'node-name on-dark' : 'node-name', 'text-anchor': 'middle' }, ITEMS[i]),
    ];
  });
  return picture(220, 212, label, edges, nodes);
}

function edge([x1, y1], [x2, y2], weight, tint, directed) {
  const width = 0.8 + 6 * weight;
  const style = `stroke-width:${width};opacity:${0.15 + 0.85 * weight}`;
  if (!directed) return svg('line', { x1, y1, x2, y2, class: `edge ${tint}`, style });
  const length = Math.hypot(x2 - x1, y2 - y1);
  const [ux, uy] = [(x2 - x1) / length, (y2 - y1) / length];
  const [mx, my] = [(x1 + x2) / 2 - 16 * uy, (y1 + y2) / 2 + 16 * ux]; // bends to its right
  const [dx, dy] = [x2 - mx, y2 - my].map((v) => v / Math.hypot(x2 - mx, y2 - my));
  const head = 6 + 5 * weight;
  const [tx, ty] = [x2 - 15 * dx, y2 - 15 * dy];
  const [bx, by] = [tx - head * dx, ty - head * dy];
  const side = head * 0.55;
  return svg(
    'g',
    { style: `opacity:${0.15 + 0.85 * weight}` },
    svg('path', { d: `M${x1} ${y1}Q${mx} ${my} ${bx} ${by}`, class: `edge ${tint}`, style: `stroke-width:${width * 0.7}` }),
    svg('polygon', { class: `head ${tint}`, points: `${tx},${ty} ${bx - side * dy},${by + side * dx} ${bx + side * dy},${by - side * dx}` }),
  );
}
