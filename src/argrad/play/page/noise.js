// The library's counter noise: 64 bits that depend on (seed, row, column) alone (argrad/random.py).

const MASK = (1n << 64n) - 1n;
const GOLDEN = 0x9e3779b97f4a7c15n;
const MIX_1 = 0xbf58476d1ce4e5b9n;
const MIX_2 = 0x94d049bb133111ebn;
const ROW_2 = 0xd1342543de82ef95n;

const times = (x, y) => (x * y) & MASK;

function splitmix(x) {
  x = times(x ^ (x >> 30n), MIX_1);
  x = times(x ^ (x >> 27n), MIX_2);
  return x ^ (x >> 31n);
}

/** The two words of `CounterRNG(seed)`. */
function seedKey(seed) {
  const s = BigInt.asUintN(64, BigInt(seed));
  return [splitmix((s + GOLDEN) & MASK), splitmix((s + 2n * GOLDEN) & MASK)];
}

/** Two keys of a row (or of a node of a tree), from the two words of the seed. */
function rowKeys(key, row) {
  return [splitmix(times(key[0] ^ row, GOLDEN)), splitmix(times(key[1] ^ row, ROW_2))];
}

/** 64 random bits of a column. */
function word([k1, k2], column) {
  let x = times(column ^ k1, GOLDEN);
  x = times(x ^ (x >> 30n), MIX_1) ^ k2;
  x = times(x ^ (x >> 27n), MIX_2);
  return x ^ (x >> 31n);
}

/** Gumbel(0, 1) from 64 bits: 62 of them near 0, where floating point is dense; the last chooses the tail. */
function gumbelOf(bits) {
  const high = Number(bits >> 33n) * 2 ** -32;
  const low = (Number((bits >> 2n) & 0x7fffffffn) + 0.5) * 2 ** -63;
  const w = high + low;
  return -Math.log(bits & 1n ? -Math.log1p(-w) : -Math.log(w));
}

const noiseCache = new Map();

/** One row of `CounterRNG(seed).gumbel(rows, columns, dtype=torch.float64)`. */
function gumbelRow(seed, row, columns) {
  const name = `${seed}/${row}/${columns}`;
  if (!noiseCache.has(name)) {
    if (noiseCache.size > 20000) noiseCache.clear();
    const keys = rowKeys(seedKey(seed), BigInt(row));
    noiseCache.set(name, Array.from({ length: columns }, (_, j) => gumbelOf(word(keys, BigInt(j)))));
  }
  return noiseCache.get(name);
}

const gumbels = (seed, rows, columns) => range(rows).map((i) => gumbelRow(seed, i, columns));
