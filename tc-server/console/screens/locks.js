// Locks: rows with their holders and queues, who waits for whom, and deadlocks that were refused.
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { query } from "../lib/api.js";
import { count, short, waitedFor, when } from "../lib/format.js";
import { useLive, useOlder, usePolled, useResourceNames } from "../lib/live.js";
import { Age, Badge, Empty, Panel, ProblemNote, Screen, Xid, html } from "../lib/parts.js";
import { setQuery } from "../lib/route.js";
import { Table } from "../lib/table.js";
import { WaitGraph } from "../lib/waits.js";

const GRAPH = "/api/v1/locks/graph";
const DEADLOCKS = "/api/v1/locks/deadlocks";
const LIMIT = 200;

const keyOf = (lock) => `${lock.resource} ${lock.table} ${lock.canonical_key}`;

export function Locks({ query: filter }) {
  const path = `/api/v1/locks${query({ ...filter, limit: LIMIT })}`;
  const { data, problem } = useLive(path);
  // Among many transactions few may hold rows, and a page ends before it is full.
  const sight = useRef([]);
  const { rows: older, load, problem: olderProblem } = useOlder(path, data?.next, { sight, keyOf });
  const [opened, setOpened] = useState("");
  const nameOf = useResourceNames();
  const newest = data?.items ?? [];
  const seen = new Set(newest.map(keyOf));
  const rows = [...newest, ...older.filter((lock) => !seen.has(keyOf(lock)))];
  const shown = rows.find((lock) => keyOf(lock) === opened) ?? (rows.length === 1 ? rows[0] : null);
  const columns = [
    { head: "row", basis: 10, grow: 3, cell: (lock) => html`<b>${lock.table}</b> ${lock.key}` },
    { head: "held by", basis: 8, grow: 2, cell: (lock) => lock.holders.length === 0 ? "–" : html`
      <${Xid} xid=${lock.holders[0].xid}>${short(lock.holders[0].xid)}<//>
      ${lock.holding > 1 && ` and ${lock.holding - 1} more`}` },
    { head: "for", basis: 4, grow: 0, hide: 40, kind: "number", cell: (lock) => lock.holders[0] && html`
      <${Age} ageMs=${lock.holders[0].age_ms} since=${lock.holders[0].since} />` },
    { head: "mode", basis: 7.5, grow: 0, hide: 60, cell: (lock) => lock.holders[0]?.mode },
    { head: "waiting", basis: 4, grow: 0, kind: "number", cell: (lock) =>
      lock.waiting > 0 ? html`<b class="waiting">${lock.waiting}</b>` : "0" },
    { head: "resource", basis: 12, grow: 3, hide: 80, cell: (lock) => nameOf(lock.resource) },
  ];
  return html`<${Screen} title="Locks">
    <${Filters} filter=${filter} />
    <${ProblemNote} problem=${problem ?? olderProblem} />
    <${Graph} />
    <div class="halves">
      <${Panel} title="Rows" beside=${load && html`<span class="muted">the first ${rows.length}</span>`}>
        ${data && html`<${Table} label="locked rows" columns=${columns} rows=${rows} keyOf=${keyOf}
          sight=${sight} open=${(lock) => setOpened(keyOf(lock))} more=${load}
          none=${load ? "…" : "No row is locked."} />`}
      <//>
      ${shown && html`<${One} lock=${shown} />`}
    </div>
    <${Deadlocks} />
  <//>`;
}

/** What a transaction is called: its name and its labels. */
const noteOf = ({ name, labels }) =>
  [name, ...Object.entries(labels).map(([label, value]) => `${label}=${value}`)].join(" ");

function Graph() {
  const { data, problem } = useLive(`${GRAPH}?limit=200`);
  const notes = new Map((data?.nodes ?? []).map((node) => [node.xid, noteOf(node)]));
  const edges = (data?.edges ?? []).map((edge) => ({
    from: edge.from,
    to: edge.to,
    label: waitedFor(edge),
    isHeld: edge.holds,
  }));
  return html`<${Panel} title="Who waits for whom">
    <${ProblemNote} problem=${problem} />
    ${data && html`<${WaitGraph} edges=${edges} note=${(xid) => notes.get(xid) ?? ""} />`}
    ${data?.next && html`<p class="muted">There are more waits than are drawn.</p>`}<//>`;
}

function Deadlocks() {
  const { data, problem } = usePolled(DEADLOCKS, 5000);
  if (!data) return html`<${ProblemNote} problem=${problem} />`;
  return html`<${Panel} title="Deadlocks that were refused">
    ${data.items.length === 0 && html`<${Empty}>None since this node leads.<//>`}
    ${data.items.map((deadlock) => html`<details key=${deadlock.at + deadlock.xid}>
      <summary><time>${when(deadlock.at)}</time> <b>${short(deadlock.xid)}</b>
        ${` was refused: ${deadlock.length}`} transactions waited for each other</summary>
      <${WaitGraph} marked=${deadlock.xid}
        note=${(xid) => noteOf(deadlock.cycle.find((it) => it.xid === xid))}
        edges=${deadlock.cycle.map((wait, at) => ({
          from: wait.xid,
          to: deadlock.cycle[(at + 1) % deadlock.cycle.length].xid,
          label: waitedFor(wait),
        }))} />
    </details>`)}<//>`;
}

/** One row: its holders and its queue in order. */
function One({ lock }) {
  return html`<${Panel} title=${`${lock.table} ${lock.key}`}>
    <p class="muted id">${lock.resource}</p>
    <h3>${count(lock.holding, "holder")}</h3>
    <ul class="list">${lock.holders.map((holder) => html`<li key=${holder.xid}>
      <${Xid} xid=${holder.xid} /> <${Badge} word=${holder.mode} />
      <span>for <${Age} ageMs=${holder.age_ms} since=${holder.since} /></span></li>`)}</ul>
    <h3>${count(lock.waiting, "request")} waiting</h3>
    <ol class="list">${lock.queue.map((waiter, at) => html`<li key=${at}>
      ${waiter.xid ? html`<${Xid} xid=${waiter.xid} />` : "a read outside of transactions"}
      <${Badge} word=${waiter.mode} />
      <span>for <${Age} ageMs=${waiter.age_ms} since=${waiter.since} /></span></li>`)}</ol>
    ${lock.waiting > lock.queue.length && html`<p class="muted">The first ${lock.queue.length} are shown.</p>`}
  <//>`;
}

function Filters({ filter }) {
  const [draft, setDraft] = useState(filter);
  useEffect(() => setDraft(filter), [JSON.stringify(filter)]);
  const submit = (event) => {
    event.preventDefault();
    setQuery(draft);
  };
  const field = (name, label, isSearch = false) => html`<label>${label} <input name=${name}
    data-search=${isSearch || null} value=${draft[name] ?? ""}
    onInput=${(event) => setDraft({ ...draft, [name]: event.target.value })} /></label>`;
  return html`<form class="filters" onSubmit=${submit} role="search">
    ${field("table", "Table", true)} ${field("key", "Key")} ${field("resource", "Resource")}
    ${field("holder", "Held by XID")}
    <button type="submit">Search</button>
    ${Object.values(filter).some(Boolean) && html`<a href="#/locks">all</a>`}
  </form>`;
}
