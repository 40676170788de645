// Structures by enumeration: small enough to list every object, so that nothing here can be subtly wrong.

/** All sets of k of n items. */
function subsets(n, k, first = 0) {
  if (k === 0) return [[]];
  return range(n - first).flatMap((i) => subsets(n, k - 1, first + i + 1).map((rest) => [first + i, ...rest]));
}

/** All orders: the item at place 0, at place 1, ... */
function orders(items) {
  if (items.length === 0) return [[]];
  return items.flatMap((item) => orders(items.filter((x) => x !== item)).map((rest) => [item, ...rest]));
}

/** All trees on n nodes as heads of nodes 1, ..., n - 1, every arc away from node 0. */
function rootedTrees(n) {
  const reachesRoot = (heads, node) => {
    for (let steps = 0; node !== 0 && steps <= n; steps++) node = heads[node - 1];
    return node === 0;
  };
  let all = [[]];
  for (const child of range(n - 1).map((i) => i + 1)) {
    const others = range(n).filter((h) => h !== child);
    all = all.flatMap((heads) => others.map((h) => [...heads, h]));
  }
  return all.filter((heads) => range(n).every((node) => reachesRoot(heads, node)));
}

const objectsCache = new Map();

/** Every object of a structure, as the list of its parts (places in the flat array of scores). */
function objects(kind, n, k) {
  const name = `${kind}/${n}/${k}`;
  if (!objectsCache.has(name)) {
    const make = {
      subset: () => subsets(n, k),
      permutation: () => orders(range(n)).map((order) => order.map((item, place) => place * n + item)),
      // an undirected edge is its entry above the diagonal
      tree: () =>
        rootedTrees(n).map((heads) => heads.map((h, i) => Math.min(h, i + 1) * n + Math.max(h, i + 1))),
      arborescence: () => rootedTrees(n).map((heads) => heads.map((h, i) => h * n + i + 1)),
    }[kind];
    objectsCache.set(name, make());
  }
  return objectsCache.get(name);
}

/** The best object: 0/1 for each part. */
function choose(list, weights) {
  const totals = list.map((parts) => sum(parts.map((p) => weights[p])));
  const chosen = new Set(list[argmax(totals)]);
  return weights.map((_, p) => (chosen.has(p) ? 1 : 0));
}

/** The exponential-family relaxation: how probable each part is when objects weigh exp(score / tau). */
function marginals(list, weights, tau) {
  const p = softmax(list.map((parts) => sum(parts.map((i) => weights[i]))), tau);
  const result = weights.map(() => 0);
  list.forEach((parts, o) => parts.forEach((i) => (result[i] += p[o])));
  return result;
}

/** The entropic relaxation of a permutation: a doubly stochastic matrix exp(w/tau - a_i - b_j). */
function sinkhorn(w, tau) {
  const n = w.length;
  let a = Array(n).fill(0);
  let b = Array(n).fill(0);
  // from warm to cold, so that each temperature starts close to its answer
  for (let t = Math.max(8, tau); ; t = Math.max(t / 2, tau)) {
    const x = w.map((row) => row.map((v) => v / t));
    for (let sweep = 0; sweep < 20; sweep++) {
      b = range(n).map((j) => logsumexp(range(n).map((i) => x[i][j] - a[i])));
      a = range(n).map((i) => logsumexp(range(n).map((j) => x[i][j] - b[j])));
    }
    [a, b] = newton(x, a, b);
    if (t === tau) return matrix(n, n, (i, j) => Math.exp(x[i][j] - a[i] - b[j]));
    const ratio = t / Math.max(t / 2, tau);
    [a, b] = [a, b].map((v) => v.map((u) => u * ratio));
  }
}

/** Newton's method on the dual, sum exp(x - a - b) + sum a + sum b, whose gradient are the wrong row and column sums. */
function newton(x, a, b) {
  const n = x.length;
  const value = (a, b) => sum(x.flatMap((row, i) => row.map((v, j) => Math.exp(v - a[i] - b[j])))) + sum(a) + sum(b);
  let current = value(a, b);
  for (let step = 0; step < 40; step++) {
    const P = matrix(n, n, (i, j) => Math.exp(x[i][j] - a[i] - b[j]));
    const rows = P.map(sum);
    const columns = range(n).map((j) => sum(P.map((row) => row[j])));
    const gap = [...rows, ...columns].map((s) => s - 1);
    if (Math.max(...gap.map(Math.abs)) < 1e-14) break;
    const H = matrix(2 * n, 2 * n, (i, j) => {
      if (i === j) return (i < n ? rows[i] : columns[i - n]) + 1e-15; // a + c, b - c give the same matrix
      if (i < n !== j < n) return i < n ? P[i][j - n] : P[j][i - n];
      return 0;
    });
    const move = solve(H, gap);
    for (let size = 1; ; size /= 2) {
      const nextA = a.map((v, i) => v + size * move[i]);
      const nextB = b.map((v, j) => v + size * move[n + j]);
      const next = value(nextA, nextB);
      if (next <= current + 1e-13) {
        [a, b, current] = [nextA, nextB, next];
        break;
      }
      if (size < 1e-6) return [a, b];
    }
  }
  return [a, b];
}

/** Gaussian elimination with pivoting. */
function solve(A, y) {
  const n = y.length;
  const M = A.map((row, i) => [...row, y[i]]);
  for (const c of range(n)) {
    const pivot = range(n).slice(c).reduce((best, r) => (Math.abs(M[r][c]) > Math.abs(M[best][c]) ? r : best), c);
    [M[c], M[pivot]] = [M[pivot], M[c]];
    for (const r of range(n).slice(c + 1)) {
      const factor = M[r][c] / M[c][c];
      for (let j = c; j <= n; j++) M[r][j] -= factor * M[c][j];
    }
  }
  const x = Array(n).fill(0);
  for (const r of range(n).reverse()) {
    x[r] = (M[r][n] - sum(range(n).slice(r + 1).map((j) => M[r][j] * x[j]))) / M[r][r];
  }
  return x;
}
