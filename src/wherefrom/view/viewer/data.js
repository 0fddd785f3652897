// The payload of view/payload.py, unpacked. A "subject" is one explanation with the name it is shown under; a "unit" is
// how its tokens read: in the tokenizer's pieces or in the words of the text.

const ARRAYS = { f8: Float64Array, f4: Float32Array, f2: Uint16Array, i1: Int8Array };

/** A packed array as { shape, values, digits }: how many digits of it mean something. */
export function unpack({ shape, type, scale, data }) {
  const stored = new ARRAYS[type](bytesOf(data).buffer);
  const digits = { f8: 17, f4: 9, f2: 4, i1: 3 }[type];
  if (type === "f2") return { shape, digits, values: Float32Array.from(stored, (half) => scale * fromHalf(half)) };
  if (type === "i1") {
    return { shape, digits, values: Float32Array.from(stored, (q) => scale * Math.sign(q) * (q / 127) ** 2) };
  }
  return { shape, digits, values: stored };
}

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  return Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
}

/** IEEE 754 binary16: 1 bit of sign, 5 of exponent, 10 of fraction. */
export function fromHalf(half) {
  const sign = half & 0x8000 ? -1 : 1;
  const exponent = (half >> 10) & 0x1f;
  const fraction = half & 0x3ff;
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15));
}

/** Everything the views need of a payload; matrices are unpacked when first asked for. */
export function subjectsOf(payload) {
  if (payload?.format !== "wherefrom.view" || payload.version !== 1) throw new Error("this is not a payload of this viewer");
  const texts = [];
  return payload.explanations.map((each) => {
    const tokens = JSON.stringify(each.pieces.tokens);
    if (!texts.includes(tokens)) texts.push(tokens);
    const lazy = {};
    for (const name of ["maps", "aggregated", "head_maps", "layer_scores"]) {
      if (each[name]) lazy[name] = once(() => unpack(each[name]));
    }
    return {
      name: each.name,
      title: each.title,
      explained: each.explained,
      likelihood: each.likelihood,
      readAt: each.read_at,
      remarks: each.remarks ?? [],
      arrival: each.arrival, // what the scores add up to, where their method promises no sum
      rounding: each.rounding, // that all scores are rounding errors, where they are
      record: each.record,
      signed: each.signed,
      text: texts.indexOf(tokens), // subjects of one text share what is hovered and pinned
      units: { pieces: unitOf(each.pieces), words: each.words && unitOf(each.words) },
      arrays: lazy,
      depth: (each.maps ?? each.aggregated ?? each.layer_scores ?? each.pieces.rows)?.shape[0] ?? 0,
      heads: each.head_maps?.shape[1] ?? 0,
      made: new Map(), // the matrices asked for so far
    };
  });
}

/** Without the marks that would turn what stands after them around: a token of nothing else is a blank one. */
const undirected = (text) => text.replace(/[\u202a-\u202e\u2066-\u2069]/g, "") || (text && "␣");

function unitOf(unit) {
  return {
    ...unit,
    tokens: unit.tokens.map(undirected),
    gaps: unit.gaps.map((gap) => undirected(gap).replace("␣", "")),
    scores: unpack(unit.scores).values,
    rows: unit.rows && unpack(unit.rows).values,
    groups: unit.groups ?? null,
  };
}

function once(make) {
  let made;
  return () => (made ??= make());
}

/** What a heading says is explained; null where there are several outputs, of which each is named beside its own. */
export function explainedByAll(subjects) {
  const towards = subjects.filter(({ record }) => !["none", "random"].includes(record.target.kind));
  return new Set(towards.map((subject) => subject.explained)).size > 1 ? null : subjects[0].explained;
}

/** What a heading says beside that; the other remarks stand each with its own explanation. */
export function remarksOfAll(side) {
  return side[0].remarks.filter((remark) => side.every(({ remarks }) => remarks.includes(remark)));
}

/** Those that one heading serves: of one text that one model has read. */
export function besides(subject, subjects) {
  return subjects.filter(({ text, record }) => text === subject.text && record.model === subject.record.model);
}

export function unitFor(subject, units) {
  return subject.units[units] ?? subject.units.pieces;
}

/** The kinds of map there are: "own" (what one layer does), "joined" (what the aggregation made up to that layer). */
export function kindsOf(subject) {
  return [subject.arrays.maps && "own", subject.arrays.aggregated && "joined"].filter(Boolean);
}

const ARRAY_OF = { own: "maps", joined: "aggregated", head: "head_maps" };

/** Which map of this subject is drawn: "head", "own" or "joined"; of what is asked for, what there is. */
export function whichMap(subject, { kind, head }) {
  const kinds = kindsOf(subject);
  if (head !== null && head < subject.heads) return "head";
  return kinds.includes(kind) ? kind : kinds[0];
}

/** The map [n, n] of one layer in these units, row-major: row i is the token built, column j what it draws on. */
export function matrix(subject, { units, kind, head }, layer) {
  const array = ARRAY_OF[whichMap(subject, { kind, head })];
  if (!array) return null;
  const { values } = subject.arrays[array]();
  const n = subject.units.pieces.tokens.length;
  const start = (array === "head_maps" ? layer * subject.heads + head : layer) * n * n;
  const { groups, adds } = unitFor(subject, units);
  const key = `${array} ${start} ${groups ? "words" : "pieces"}`;
  if (!subject.made.has(key)) {
    const pieces = values.subarray(start, start + n * n);
    subject.made.set(key, groups ? joinWords(pieces, n, groups, adds) : pieces);
  }
  return subject.made.get(key);
}

/** Pieces joined into words as `Explanation.words` does: rows by their mean, columns by it or, where they add up, by their sum. */
export function joinWords(values, n, groups, adds) {
  const wide = new Float64Array(n * groups.length);
  for (let i = 0; i < n; i++) {
    groups.forEach((members, word) => {
      let sum = 0;
      for (const j of members) sum += values[i * n + j];
      wide[i * groups.length + word] = adds ? sum : sum / members.length;
    });
  }
  const joined = new Float32Array(groups.length ** 2);
  groups.forEach((members, row) => {
    for (let word = 0; word < groups.length; word++) {
      let sum = 0;
      for (const i of members) sum += wide[i * groups.length + word];
      joined[row * groups.length + word] = sum / members.length;
    }
  });
  return joined;
}

/** The layer that pictures of one layer show: the chosen one, or the last. */
export function layerOf(subject, layer) {
  return layer === null ? subject.depth - 1 : Math.min(layer, subject.depth - 1);
}

/** The readout row: the scores, or that of the chosen layer. */
export function answer(subject, { units, layer }) {
  const unit = unitFor(subject, units);
  if (layer === null || !unit.rows) return unit.scores;
  const n = unit.tokens.length;
  const at = layerOf(subject, layer);
  return unit.rows.subarray(at * n, (at + 1) * n);
}

/** Numbers as they are read. Without signs, shares of their sum: rollouts of norms grow beyond any measure. */
export function readable(subject, row) {
  const total = subject.signed ? 1 : row.reduce((sum, value) => sum + value, 0);
  return total <= 0 || Math.abs(total - 1) < 1e-3 ? row : row.map((value) => value / total);
}

/** Which tokens are shown, in which order. */
export function arrangement(subject, { units, order, special }) {
  const unit = unitFor(subject, units);
  let shown = unit.tokens.map((_, i) => i);
  if (!special) shown = shown.filter((i) => !unit.special[i]);
  if (order === "score") {
    const weight = (i) => (subject.signed ? Math.abs(unit.scores[i]) : unit.scores[i]);
    shown.sort((a, b) => weight(b) - weight(a) || a - b);
  }
  return shown;
}

/** The k entries of a row with the largest magnitude, among those shown, in falling order; all, as they stand, where k is 0. */
export function strongest(row, shown, k) {
  if (!k) return shown;
  if (k >= shown.length) return [...shown].sort((a, b) => Math.abs(row[b]) - Math.abs(row[a]));
  const best = new Int32Array(k);
  const sizes = new Float64Array(k);
  let count = 0;
  for (let s = 0; s < shown.length; s++) {
    const size = Math.abs(row[shown[s]]);
    if (count === k && size <= sizes[k - 1]) continue;
    let place = count < k ? count++ : k - 1;
    for (; place > 0 && size > sizes[place - 1]; place--) {
      sizes[place] = sizes[place - 1];
      best[place] = best[place - 1];
    }
    sizes[place] = size;
    best[place] = shown[s];
  }
  return Array.from(best);
}

/** A number short enough to read: three significant digits. */
export function short(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e4) return String(Number(value.toPrecision(3))).replace("-", "−");
  const [digits, power] = value.toExponential(1).split("e");
  const raised = power.replace("+", "").replace(/./g, (char) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(char)]);
  return `${digits.replace("-", "−")}×10${raised}`;
}

/** A probability to three digits; one that they would show as none is less than the least of them. */
export function likely(probability) {
  return probability > 0 && probability < 0.0005 ? "< 0.001" : short(Number(probability.toFixed(3)));
}
