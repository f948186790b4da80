// Transactions: search, follow, select, act on those selected.
import { useSignal } from "../vendor/signals.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { mayAct, post, query, transactionPath } from "../lib/api.js";
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
/** The most that one click acts on. */
const SELECTED_MAX = 100;
/** What can be done to several, and what it does. */
const ACTIONS = {
  retry: "Phase two is tried again at once.",
  pause: "Phase two is not tried until it is resumed.",
  resume: "Phase two is tried again.",
  rollback: "Undecided transactions are rolled back. Decided ones refuse.",
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
  const newest = data?.items ?? [];
  const seen = new Set(newest.map((item) => item.xid));
  const rows = [...newest, ...older.filter((item) => !seen.has(item.xid))];
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
      <b>${count(chosen.value.size, "selected transaction")}</b>
      ${Object.keys(ACTIONS).map((name) => html`<button type="button" key=${name}
        onClick=${() => setAction(name)}>${words(name)}</button>`)}
      <button type="button" class="plain" onClick=${() => (chosen.value = new Set())}>clear</button>
    </div>`}
    ${data && html`<${Table} label="transactions" columns=${columns} rows=${rows}
      keyOf=${xidOf} sight=${sight} open=${(row) => go(["transactions", row.xid])}
      chosen=${mayAct() ? chosen : null} more=${loadOlder}
      none="No transaction is as asked for." />`}
    ${action && html`<${Bulk} action=${action} chosen=${chosen} rows=${rows}
      close=${() => setAction("")} />`}
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

/** Acts on each selected transaction and shows each result. */
function Bulk({ action, chosen, rows, close }) {
  const [results, setResults] = useState(/** @type {[string, string][] | null} */ (null));
  const xids = [...chosen.value].slice(0, SELECTED_MAX);
  const named = (xid) => rows.find((row) => row.xid === xid);
  const act = async (reason) => {
    const done = [];
    for (const xid of xids) {
      try {
        const reply = await post(`${transactionPath(xid)}/${action}`, { reason });
        done.push([xid, words(reply.status)]);
      } catch (problem) {
        done.push([xid, `${problem.code} ${problem.message}`]);
      }
      setResults([...done]);
    }
    return true;
  };
  const end = () => {
    if (results) chosen.value = new Set();
    close();
  };
  return html`<${Confirm} title=${`${words(action)} ${count(xids.length, "transaction")}`}
    verb=${words(action)} kind=${action === "rollback" ? "danger" : ""} act=${act} close=${end}>
    <p>${ACTIONS[action]}</p>
    ${chosen.value.size > SELECTED_MAX && html`<p>Only the first ${SELECTED_MAX} of them.</p>`}
    <ul class="results">${(results ?? xids.map((xid) => [xid, words(named(xid)?.status)])).map(
      ([xid, result]) => html`<li key=${xid}><span class="id">${xid}</span> <span>${result}</span></li>`,
    )}</ul>
  <//>`;
}

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
