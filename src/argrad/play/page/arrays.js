// Small vectors and matrices.

const range = (n) => Array.from({ length: n }, (_, i) => i);
const sum = (x) => x.reduce((a, b) => a + b, 0);
const argmax = (x) => x.reduce((best, v, i) => (v > x[best] ? i : best), 0);
const plus = (x, y) => x.map((v, i) => v + y[i]);
const matrix = (rows, columns, f) => range(rows).map((i) => range(columns).map((j) => f(i, j)));

function logsumexp(x) {
  const top = Math.max(...x);
  return top === -Infinity ? top : top + Math.log(sum(x.map((v) => Math.exp(v - top))));
}

/** softmax(x / tau). */
function softmax(x, tau = 1) {
  const top = Math.max(...x);
  const e = x.map((v) => Math.exp((v - top) / tau));
  const total = sum(e);
  return e.map((v) => v / total);
}

/** Columns' means. */
const mean = (rows) => rows[0].map((_, j) => sum(rows.map((r) => r[j])) / rows.length);
