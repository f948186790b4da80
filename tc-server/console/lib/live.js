// Live views: what the server sends when an answer changes, or, without a stream, asked every few
// seconds. Either way a screen gets whole answers of the API and draws the last one.
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { signal } from "../vendor/signals.js";
import { get } from "./api.js";
import { resourceName } from "./format.js";

/**
 * The last answer of a path, and the problem if the last attempt failed.
 * @typedef {{ path: string, data: any, problem: any }} Seen
 */

/**
 * The pages of a list behind the one that is followed.
 * @typedef {{ path: string, rows: any[], next: string | null | undefined, problem: any }} Older
 */

/** How often to ask where there is no stream. */
const ASK_EVERY_MS = 3000;

/** Whether the coordinator answered last time. */
export const reachable = signal(true);

/**
 * Follows the answer of a path. Nothing is followed while `path` is empty or the page is hidden.
 * @param {string} path
 * @returns {Seen}
 */
export function useLive(path) {
  const [state, setState] = useState(/** @type {Seen} */ (nothing(path)));
  useEffect(() => follow(path, setState), [path]);
  // An answer for another path is none.
  return state.path === path ? state : nothing(path);
}

/**
 * Asks a path again at a steady pace: for what changes slowly.
 * @param {string} path
 * @returns {Seen}
 */
export function usePolled(path, everyMs) {
  const [state, setState] = useState(/** @type {Seen} */ (nothing(path)));
  useEffect(() => {
    const ask = () => !document.hidden && once(path, setState);
    ask();
    const timer = setInterval(ask, everyMs);
    return () => clearInterval(timer);
  }, [path, everyMs]);
  return state.path === path ? state : nothing(path);
}

/**
 * How people call resources: a function from an id to the label that a process gave, or the id.
 * @returns {(id: string) => string}
 */
export function useResourceNames() {
  const { data } = usePolled("/api/v1/resources", 30_000);
  const names = new Map((data?.items ?? []).map((item) => [item.id, resourceName(item)]));
  return (id) => names.get(id) || id;
}

/** @returns {Older} */
const noOlder = (path) => ({ path, rows: [], next: undefined, problem: null });

/**
 * Pages behind one that is followed, read as they come in sight. `path` is that of the list, with
 * the limit of these pages; `next` is the cursor behind what is followed.
 */
export function useOlder(path, next) {
  const [state, setState] = useState(/** @type {Older} */ (noOlder(path)));
  const isBusy = useRef(false);
  const own = state.path === path ? state : noOlder(path);
  const cursor = own.next === undefined ? next : own.next;
  const load = async () => {
    if (isBusy.current || !cursor) return;
    isBusy.current = true;
    try {
      const page = await get(`${path}&cursor=${encodeURIComponent(cursor)}`);
      setState({ path, rows: [...own.rows, ...page.items], next: page.next, problem: null });
    } catch (problem) {
      setState({ ...own, next: null, problem });
    } finally {
      isBusy.current = false;
    }
  };
  return { rows: own.rows, load: cursor ? load : null, problem: own.problem };
}

const nothing = (path) => ({ path, data: undefined, problem: undefined });

async function once(path, setState) {
  try {
    const data = await get(path);
    reachable.value = true;
    setState({ path, data, problem: undefined });
  } catch (problem) {
    if (problem.status === 0) reachable.value = false;
    setState((last) => ({ ...(last.path === path ? last : nothing(path)), problem }));
  }
}

/** Follows a path until the returned function is called. */
function follow(path, setState) {
  if (!path) return undefined;
  /** @type {EventSource} */
  let stream;
  let timer, isOver = false;

  const open = () => {
    stream = new EventSource(`/api/v1/live?path=${encodeURIComponent(path)}`);
    stream.onopen = () => {
      reachable.value = true;
    };
    stream.addEventListener("answer", (event) => {
      reachable.value = true;
      setState({ path, data: JSON.parse(event.data), problem: undefined });
    });
    stream.addEventListener("problem", (event) => {
      const problem = JSON.parse(event.data);
      // What was seen before stays, with the problem above it.
      setState((last) => ({ ...(last.path === path ? last : nothing(path)), problem }));
    });
    stream.onerror = () => {
      // The browser itself tries again where the connection is lost, but not where it is refused.
      if (stream.readyState === EventSource.CONNECTING) reachable.value = false;
      else ask();
    };
  };
  const ask = async () => {
    await once(path, setState);
    if (!isOver && !document.hidden) timer = setTimeout(open, ASK_EVERY_MS);
  };
  const close = () => {
    stream?.close();
    clearTimeout(timer);
  };
  // A hidden page takes neither a connection nor a place.
  const turn = () => (document.hidden ? close() : (close(), open()));

  document.addEventListener("visibilitychange", turn);
  if (!document.hidden) open();
  return () => {
    isOver = true;
    close();
    document.removeEventListener("visibilitychange", turn);
  };
}
