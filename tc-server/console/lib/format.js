// Texts for numbers, times and words of the API.

/** A duration: `350 ms`, `4.2 s`, `3 min`, `5 h`, `2 d`. */
export function duration(ms) {
  if (ms == null) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} d`;
}

/** A duration in microseconds. */
export function micros(us) {
  if (us == null) return "–";
  if (us < 1000) return `${us} µs`;
  if (us < 10_000) return `${(us / 1000).toFixed(1)} ms`;
  return duration(us / 1000);
}

/** A count with its unit: `1 branch`, `2 branches`. */
export const count = (number, one, many = `${one}s`) =>
  `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

/** A time of day, with its milliseconds, in the browser's zone. */
export function time(rfc3339) {
  const at = new Date(rfc3339);
  const two = (number) => String(number).padStart(2, "0");
  const ms = String(at.getMilliseconds()).padStart(3, "0");
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${ms}`;
}

/** A time with its date. */
export function moment(rfc3339) {
  const at = new Date(rfc3339);
  const two = (number) => String(number).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time(rfc3339)}`;
}

/** A time that may be another day's: the date only if it is not today's. */
export const when = (rfc3339) =>
  new Date(rfc3339).toDateString() === new Date().toDateString() ? time(rfc3339) : moment(rfc3339);

/** A word of the API for people: `rolling_back` is `rolling back`. */
export const words = (word) => (word ?? "").replaceAll("_", " ");

/** What is waited for: a named lock, or a row. */
export const waitedFor = ({ lock, table, key }) => lock ?? `${table} ${key}`;

/** How people call a resource: the label that a process gave. Sagas name theirs themselves. */
export const resourceName = ({ id, label, mode }) => (mode === "saga" || !label ? id : label);

/** The number of an XID, which names it too. */
export const number = (xid) => xid.slice(xid.lastIndexOf(":") + 1);

/** The end of a long id, for places without room. */
export const short = (xid) => `…${number(xid).slice(-6)}`;

/** The time between two points, in milliseconds. */
export const between = (from, to) => new Date(to).getTime() - new Date(from).getTime();
