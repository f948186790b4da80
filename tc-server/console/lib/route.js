// The address of a screen: the part of the URL behind `#`, such as `#/transactions?status=active`.
import { signal } from "../vendor/signals.js";

/** The parts of the path, decoded, and the query. */
export const route = signal(read());

addEventListener("hashchange", () => {
  route.value = read();
});

function read() {
  const [path, text = ""] = location.hash.slice(1).split("?");
  const parts = path.split("/").filter(Boolean).map(decode);
  return { parts, query: Object.fromEntries(new URLSearchParams(text)) };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The link to a screen. */
export function link(parts, values = {}) {
  const set = Object.entries(values).filter(([, value]) => value !== "" && value != null);
  const query = new URLSearchParams(set).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${query && `?${query}`}`;
}

/** Goes to a screen. */
export const go = (parts, values) => {
  location.hash = link(parts, values).slice(1);
};

/** Replaces the query of the screen, without a further step of the browser's history. */
export function setQuery(values) {
  history.replaceState(null, "", link(route.value.parts, values));
  route.value = read();
}

/** The link to a transaction. */
export const transactionLink = (xid) => link(["transactions", xid]);
