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

/** Keeps a run and forgets the oldest beyond the limit. A browser without a database keeps nothing. */
export async function keep(run) {
  try {
    const kept = await store("readwrite");
    await request(kept.add(run));
    const keys = await request(kept.getAllKeys());
    for (const key of keys.slice(0, Math.max(0, keys.length - MOST))) kept.delete(key);
  } catch (error) {
    console.warn("not kept:", error);
  }
}

/** All that is kept, the latest first. */
export async function kept() {
  try {
    return (await request((await store("readonly")).getAll())).reverse();
  } catch {
    return [];
  }
}

export async function forget(id) {
  const all = await store("readwrite");
  await request(id === undefined ? all.clear() : all.delete(id));
}

// Which of them is on the page, as long as the tab is open.

const SHOWN = "wherefrom-shown";

export function remember(run) {
  try {
    sessionStorage.setItem(SHOWN, run.when);
  } catch {
    // a browser that keeps nothing
  }
}

export function remembered(run) {
  try {
    return sessionStorage.getItem(SHOWN) === String(run.when);
  } catch {
    return false;
  }
}

// The answer on the other page, whole; one that is too large for that is not remembered.

const SAID = "wherefrom-said";

export function rememberAnswer(answer) {
  try {
    sessionStorage.removeItem(SAID);
    sessionStorage.setItem(SAID, JSON.stringify(answer));
  } catch {
    // nor is any where the browser keeps nothing
  }
}

export function rememberedAnswer() {
  try {
    return JSON.parse(sessionStorage.getItem(SAID));
  } catch {
    return null;
  }
}
