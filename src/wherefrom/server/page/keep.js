// The last explanations, in the browser's own database: whole, so that they can be looked at and saved without the server.

const MOST = 20;

function request(asked) {
  return new Promise((done, failed) => {
    asked.onsuccess = () => done(asked.result);
    asked.onerror = () => failed(asked.error);
  });
}

async function store(mode) {
  const opening = indexedDB.open("wherefrom", 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore("kept", { keyPath: "id", autoIncrement: true });
  const database = await request(opening);
  const transaction = database.transaction("kept", mode);
  transaction.oncomplete = transaction.onabort = () => database.close();
  return transaction.objectStore("kept");
}

let writing = Promise.resolve(); // one after the other: the first gives a run its id
const forgotten = new Set(); // ids: what goes on to run stays forgotten

/** Keeps a run, or what has become of it, and forgets the oldest beyond the limit. */
export function keep(run) {
  writing = writing.then(() => put(run));
  return writing;
}

/** A browser without a database keeps nothing. */
async function put(run) {
  try {
    if (forgotten.has(run.id)) return;
    const kept = await store("readwrite");
    run.id = await request(kept.put(run));
    const keys = await request(kept.getAllKeys());
    for (const key of keys.slice(0, Math.max(0, keys.length - MOST))) kept.delete(key);
  } catch (error) {
    console.warn("not kept:", error);
  }
}

/** All that is kept, the latest first. */
export async function kept() {
  return (await read((all) => all.getAll()))?.reverse() ?? [];
}

/** One of them as it is now: more may have come since it was listed. */
export async function latest(run) {
  await writing;
  return (await read((all) => all.get(run.id))) ?? run;
}

/** Undefined in a browser without a database. */
async function read(wanted) {
  try {
    return await request(wanted(await store("readonly")));
  } catch {
    return undefined;
  }
}

/** One of them, or without a run all. */
export async function forget(run) {
  if (!run || remembered()?.when === run.when) remember(null);
  await writing;
  const all = await store("readwrite");
  for (const id of run ? [run.id] : await request(all.getAllKeys())) {
    forgotten.add(id);
    all.delete(id);
  }
}

/** A place for one thing, as long as the tab is open. What is too large for it is not kept, nor is anything where a
 * browser keeps nothing. */
const place = (name) => ({
  put(value) {
    try {
      sessionStorage.removeItem(name);
      if (value) sessionStorage.setItem(name, JSON.stringify(value));
    } catch {
      // it is not kept
    }
  },
  get() {
    try {
      return JSON.parse(sessionStorage.getItem(name));
    } catch {
      return null;
    }
  },
});

// Which of them is on the page, and which text was asked about: nothing may have come yet.

const shown = place("wherefrom-shown");

export function remember(run) {
  shown.put(run && { when: run.when, asked: run.asked.images ? null : run.asked });
}

export const remembered = shown.get;

// On the other page: the last answer, whole, and the question that waits for the next one.

export const answer = place("wherefrom-said");
export const question = place("wherefrom-asked");
