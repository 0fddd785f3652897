// Asking the server: JSON, and a stream of events, one line of JSON each.

/** What went wrong, in the server's own sentence, and the code by which the page tells it apart (docs/serve.md). */
export class Refusal extends Error {
  constructor(detail, code) {
    super(detail);
    this.code = code;
  }
}

export async function get(path) {
  return read(await reach(path, {}));
}

/** The answer to a question, whole. */
export async function post(path, asked) {
  return read(await send(path, asked, "application/json"));
}

function send(path, asked, accept, signal) {
  return reach(path, { method: "POST", headers: { "content-type": "application/json", accept }, body: JSON.stringify(asked), signal });
}

/** Calls `told(event)` for each event of an answer, as they come, "done" last; aborting the signal cancels the work. */
export async function stream(path, asked, told, signal) {
  const response = await send(path, asked, "application/x-ndjson", signal);
  if (!response.ok) await read(response);
  const lines = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let parts = []; // of a line that has not ended yet
  let last = null;
  for (;;) {
    const { value, done } = await lines.read().catch(broken);
    if (done) break;
    const [first, ...rest] = value.split("\n");
    parts.push(first);
    for (const next of rest) {
      last = tell(parts.join(""), told) ?? last;
      parts = [next];
    }
  }
  if (last !== "done") broken();
}

/** The connection ended in the middle, unless it was closed from here. */
function broken(error) {
  if (error?.name === "AbortError") throw error;
  throw new Refusal("the server stopped in the middle of its answer; is `wherefrom serve` still running?", "unreachable");
}

function tell(line, told) {
  if (!line.trim()) return null;
  const event = JSON.parse(line);
  if (event.event === "error") throw new Refusal(event.detail, event.code);
  told(event);
  return event.event;
}

async function reach(path, options) {
  try {
    return await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal("the server cannot be reached; is `wherefrom serve` still running?", "unreachable");
  }
}

async function read(response) {
  let data = null;
  try {
    data = await response.json();
  } catch {
    // Not JSON: the status says what there is to say.
  }
  if (!response.ok) throw new Refusal(data?.detail ?? `the server answered with status ${response.status}`, data?.code);
  return data;
}
