// Requests to the admin API, and who the browser is signed in as.
import { signal } from "../vendor/signals.js";

/** A request that was refused or not answered. `code` is a code of docs/errors.md, or empty. */
export class Problem extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/**
 * The caller: `undefined` until it is known, `null` if it must sign in.
 * @type {import("../vendor/signals.js").Signal<import("./types").Me | null | undefined>}
 */
export const me = signal(undefined);

/** Whether the caller may act. The server decides; the page only spares the click. */
export const mayAct = () => me.value?.role === "operator";

/** Reads. Throws a `Problem`. */
export const get = (path) => send("GET", path);

/** Acts. Throws a `Problem`. */
export const post = (path, body = {}) => send("POST", path, body);

async function send(method, path, body) {
  /** @type {RequestInit & { headers: Record<string, string> }} */
  const request = { method, headers: { accept: "application/json" } };
  if (body !== undefined) {
    request.headers["content-type"] = "application/json";
    request.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, request);
  } catch {
    throw new Problem(0, "", "the coordinator does not answer");
  }
  const text = await response.text();
  if (response.ok) return parsed(text) ?? text;
  if (response.status === 401) me.value = null;
  const problem = parsed(text) ?? { code: "", message: text };
  throw new Problem(response.status, problem.code, problem.message);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Asks who the browser is signed in as. */
export async function begin() {
  try {
    me.value = await get("/api/v1/me");
  } catch (problem) {
    // 401 has already been noted; for anything else the page tries again.
    if (problem.status !== 401) setTimeout(begin, 1000);
  }
}

/** Changes a token for a cookie. Throws a `Problem` if the token is not known. */
export async function signIn(token) {
  await post("/api/v1/sign-in", { token });
  await begin();
}

/** Ends the cookie. */
export async function signOut() {
  await post("/api/v1/sign-out");
  me.value = null;
}

/** The query string of what is set, with its `?`; empty if nothing is. */
export function query(values) {
  const set = Object.entries(values).filter(([, value]) => value !== "" && value != null);
  const text = new URLSearchParams(set.map(([name, value]) => [name, String(value)])).toString();
  return text && `?${text}`;
}

/** The path of a transaction. */
export const transactionPath = (xid) => `/api/v1/transactions/${encodeURIComponent(xid)}`;
