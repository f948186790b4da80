// Transactions: search, follow, select, act on those selected.
import { useSignal } from "../vendor/signals.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { mayAct, post, query } from "../lib/api.js";
import { count, when, words } from "../lib/format.js";
import { useLive, useOlder } from "../lib/live.js";
import { Age, Badge, Confirm, Labels, ProblemNote, Screen, html } from "../lib/parts.js";
import { go, link, setQuery, transactionLink } from "../lib/route.js";
import { Table } from "../lib/table.js";
import { opened } from "./transaction.js";

const STATUSES = ["active", "committing", "committed", "rolling_back", "rolled_back", "needs_operator"];
/** Rows that are followed, and rows of each page behind them. */
const [FOLLOWED, PAGE] = [100, 500];
/** What a list is asked for, each with its title and an example; the first is what `/` leads to. */
const FIELDS = [
  ["text", "Search", ""],
  ["label", "Label", "order=42"],
  ["name", "Name", ""],
  ["application", "Application", ""],
  ["resource", "Resource", ""],
  ["table", "Table", ""],
  ["older_than", "Older than", "5m"],
  ["younger_than", "Younger than", "1h"],
];
/** The most that one action names, as the API allows. */
const TARGETS_MAX = 1000;
/** What can be done to several, and what it does. */
const ACTIONS = {
  retry: "Phase two is tried again at once.",
  pause: "Phase two is not tried until it is resumed.",
  resume: "Phase two is tried again.",
  resolve: "Branches whose rows others have written are ended.",
  rollback: "Undecided transactions are rolled back. Decided ones refuse.",
};
/** How dirty writes are resolved. */
const RESOLUTIONS = {
  restore_clean: "put clean rows back, leave dirty ones",
  accept_current: "leave every row as it is",
  force_before: "write the before image over every row",
};

const xidOf = (row) => row.xid;

export function Transactions({ query: filter }) {
  const path = `/api/v1/transactions${query({ ...filter, limit: FOLLOWED })}`;
  const { data, problem } = useLive(path);
  const behind = `/api/v1/transactions${query({ ...filter, limit: PAGE })}`;
  const sight = useRef([]);
  const { rows: older, load: loadOlder, problem: olderProblem } = useOlder(behind, data?.next, {
    sight, keyOf: xidOf,
  });
  const chosen = useSignal(new Set());
  const [action, setAction] = useState("");
  const [isAll, setAll] = useState(false);
  const isSearched = Object.values(filter).some(Boolean);
  const newest = data?.items ?? [];
  const seen = new Set(newest.map((item) => item.xid));
  const rows = [...newest, ...older.filter((item) => !seen.has(item.xid))];
  const clear = () => {
    chosen.value = new Set();
    setAll(false);
  };
  const columns = [
    { head: "status", basis: 8, grow: 1, cell: (row) => html`<${Badge} word=${row.status} />` },
    { head: "transaction", basis: 8, grow: 3, cell: (row) => html`
      <a href=${transactionLink(row.xid)}>${row.name || "(no name)"}</a> <${Labels} labels=${row.labels} />` },
    { head: "application", basis: 7, grow: 2, hide: 40, cell: (row) => row.application },
    { head: "xid", basis: 12, grow: 3, hide: 60, kind: "id", cell: (row) => row.xid },
    { head: "branches", basis: 5, grow: 0, hide: 60, kind: "number", cell: (row) => row.branch_count },
    { head: "began", basis: 8, grow: 0, hide: 80, cell: (row) => when(row.begun_at) },
    { head: "age", basis: 4, grow: 0, kind: "number", cell: (row) => html`
      <${Age} ageMs=${row.age_ms} since=${row.begun_at} />` },
  ];
  return html`<${Screen} title="Transactions" beside=${html`<${OpenFile} />`}>
    <${Filters} filter=${filter} />
    <${ProblemNote} problem=${problem ?? olderProblem} />
    ${mayAct() && chosen.value.size > 0 && html`<div class="bulk" role="toolbar" aria-label="selected">
      <b>${isAll ? "all that the search finds" : count(chosen.value.size, "selected transaction")}</b>
      ${isSearched && html`<label><input type="checkbox" name="all" checked=${isAll}
        onChange=${(event) => setAll(event.target.checked)} /> all that the search finds</label>`}
      ${Object.keys(ACTIONS).map((name) => html`<button type="button" key=${name}
        onClick=${() => setAction(name)}>${words(name)}</button>`)}
      <button type="button" class="plain" onClick=${clear}>clear</button>
    </div>`}
    ${data && html`<${Table} label="transactions" columns=${columns} rows=${rows}
      keyOf=${xidOf} sight=${sight} open=${(row) => go(["transactions", row.xid])}
      chosen=${mayAct() ? chosen : null} more=${loadOlder}
      none="No transaction is as asked for." />`}
    ${action && html`<${Bulk} action=${action} close=${(isDone) => (setAction(""), isDone && clear())}
      which=${isAll && isSearched ? { filter: { ...filter, limit: TARGETS_MAX } }
        : { targets: [...chosen.value].slice(0, TARGETS_MAX) }} />`}
  <//>`;
}

function Filters({ filter }) {
  const [draft, setDraft] = useState(filter);
  useEffect(() => setDraft(filter), [JSON.stringify(filter)]);
  const change = (name) => (event) => setDraft({ ...draft, [name]: event.target.value });
  const submit = (event) => {
    event.preventDefault();
    setQuery(draft);
  };
  const pick = (status) => setQuery({ ...draft, status });
  return html`<form class="filters" onSubmit=${submit} role="search">
    ${FIELDS.map(([name, title, hint], at) => html`<label key=${name}>${title}
      <input name=${name} data-search=${at === 0 || null} placeholder=${hint} size=${hint ? 8 : null}
        value=${draft[name] ?? ""} onInput=${change(name)} /></label>`)}
    <label>Status <select name="status" value=${draft.status ?? ""}
      onChange=${(event) => pick(event.target.value)}>
      <option value="">any</option>
      ${STATUSES.map((status) => html`<option key=${status} value=${status}>${words(status)}</option>`)}
    </select></label>
    <label>XID <input name="xid" placeholder="opens it" onChange=${(event) =>
      event.target.value && go(["transactions", event.target.value.trim()])} /></label>
    <button type="submit">Search</button>
    ${Object.values(filter).some(Boolean) && html`<a href=${link(["transactions"])}>all</a>`}
  </form>`;
}

/**
 * One action on several transactions: shows what it would do, does exactly that when asked to, and
 * shows each result. `which` has their `targets`, or the `filter` that finds them.
 */
function Bulk({ action, which, close }) {
  const [reply, setReply] = useState(/** @type {import("../lib/types").BulkReply | null} */ (null));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [resolution, setResolution] = useState("restore_clean");
  useEffect(() => {
    setReply(null);
    post(BULK, { action, resolution, ...which }).then(setReply, setProblem);
  }, [action, resolution]);
  const act = async (reason) => {
    const named = (reply?.items ?? []).filter(({ outcome }) => outcome === "would_change");
    const targets = named.map(({ target }) => target);
    const confirmation = reply?.confirmation;
    setReply(await post(BULK, { action, resolution, targets, confirmation, reason, dry_run: false }));
    return true;
  };
  const isDone = reply != null && !reply.dry_run;
  const of = action === "resolve" ? ["branch", "branches"] : ["transaction", "transactions"];
  const title = `${words(action)} ${reply ? count(reply.changes, of[0], of[1]) : ""}`;
  return html`<${Confirm} title=${title} verb=${words(action)} kind=${action === "rollback" ? "danger" : ""}
    isReady=${Boolean(reply?.confirmation)} act=${act} close=${() => close(isDone)}>
    <p>${ACTIONS[action]}</p>
    ${action === "resolve" && !isDone && html`<label>How <select name="resolution" value=${resolution}
      onChange=${(event) => setResolution(event.target.value)}>
      ${Object.entries(RESOLUTIONS).map(([name, what]) => html`
        <option key=${name} value=${name}>${what}</option>`)}
    </select></label>`}
    <${ProblemNote} problem=${problem} />
    ${!reply && !problem && html`<p class="muted">…</p>`}
    ${reply && html`<p><b>${summary(reply)}</b></p>
      <ul class="results">${reply.items.map((item) => html`<li key=${item.target}>
        <span>${item.name} <${Labels} labels=${item.labels} /> <span class="id">${item.target}</span></span>
        <span>${result(item)}</span></li>`)}</ul>`}
  <//>`;
}

const BULK = "/api/v1/transactions/bulk";

/** What an action on several does, or has done. @param {import("../lib/types").BulkReply} reply */
const summary = ({ dry_run: isDry, changes, refusals, next }) =>
  `${changes} ${isDry ? "would change" : "done"}, ${refusals} ${isDry ? "would be refused" : "refused"}${
    next ? "; there are more, which another search and action finds" : ""}`;

/** What came of one of several. @param {import("../lib/types").BulkItem} item */
const result = ({ outcome, status, effect, code, message }) =>
  code ? `${code} ${message}` : outcome === "done" ? words(status) : `${words(status)}: ${effect}`;

/** Opens a transaction that was exported elsewhere. */
function OpenFile() {
  const [problem, setProblem] = useState("");
  const open = async (event) => {
    try {
      const read = JSON.parse(await event.target.files[0].text());
      if (!read.xid || !Array.isArray(read.branches)) throw new Error("no exported transaction");
      opened.value = read;
      go(["file"]);
    } catch (caught) {
      setProblem(caught.message);
    }
  };
  return html`<label class="button">Open a file
    <input type="file" accept="application/json,.json" onChange=${open} hidden /></label>
    ${problem && html`<span class="problem">${problem}</span>`}`;
}
