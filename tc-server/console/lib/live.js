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
 * A page of a list: the cursor that it was asked with, its rows, and where the list goes on.
 * @typedef {{ cursor: string, rows: any[], next: string | null }} ListPage
 */

/**
 * The pages of a list behind the one that is followed.
 * @typedef {{ path: string, pages: ListPage[], problem: any }} Older
 */

/** How often to ask where there is no stream. */
const ASK_EVERY_MS = 3000;
/** The most pages of a list that are read again at a time. What is in sight has one or two. */
const REFRESHED_MAX = 4;

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
const noOlder = (path) => ({ path, pages: [], problem: null });

/** @returns {Promise<ListPage>} */
async function page(path, cursor) {
  const { items: rows, next } = await get(`${path}&cursor=${encodeURIComponent(cursor)}`);
  return { cursor, rows, next: next ?? null };
}

/**
 * Pages behind one that is followed, read as they come in sight. `path` is that of the list, with
 * the limit of these pages; `next` is the cursor behind what is followed. The pages in sight are
 * read again every few seconds: `sight` is a ref with the rows that a table shows.
 */
export function useOlder(path, next, { sight, keyOf }) {
  const [state, setState] = useState(/** @type {Older} */ (noOlder(path)));
  const isBusy = useRef(false);
  const own = state.path === path ? state : noOlder(path);
  const last = own.pages.at(-1);
  const cursor = last ? last.next : next;
  /** One request at a time. `change` returns the pages, or nothing if they stay. */
  const ask = async (change) => {
    if (isBusy.current) return;
    isBusy.current = true;
    try {
      const pages = await change(own.pages);
      if (pages) setState({ path, pages, problem: null });
    } catch (problem) {
      setState({ ...own, problem });
    } finally {
      isBusy.current = false;
    }
  };
  const load = () => cursor && ask(async (pages) => [...pages, await page(path, cursor)]);
  const refresh = () => ask(async (pages) => {
    const seen = new Set(sight.current.map(keyOf));
    const isSeen = ({ rows }) => rows.some((row) => seen.has(keyOf(row)));
    const first = pages.findIndex(isSeen);
    // After a problem it is tried again.
    if (first < 0 || document.hidden) return own.problem && [...pages];
    const end = Math.min(pages.findLastIndex(isSeen) + 1, first + REFRESHED_MAX);
    const fresh = [];
    // What is followed moves on, and the first page begins where that ends.
    let from = first === 0 ? next : pages[first].cursor;
    for (let at = first; at < end && from; at += 1) {
      fresh.push(await page(path, from));
      from = fresh.at(-1)?.next;
    }
    // If the last one ends elsewhere now, those behind it are read again when they come in sight.
    const behind = from && from === pages[end - 1].next ? pages.slice(end) : [];
    return [...pages.slice(0, first), ...fresh, ...behind];
  });
  const latest = useRef(refresh);
  latest.current = refresh;
  useEffect(() => {
    const timer = setInterval(() => latest.current(), ASK_EVERY_MS);
    return () => clearInterval(timer);
  }, [path]);
  const rows = own.pages.flatMap((each) => each.rows);
  return { rows, load: cursor && !own.problem ? load : null, problem: own.problem };
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
