// Sagas: which run, what they wait for.
import { useRef } from "../vendor/hooks.js";
import { query } from "../lib/api.js";
import { words } from "../lib/format.js";
import { useLive, useOlder } from "../lib/live.js";
import { Age, Badge, Labels, ProblemNote, Screen, html } from "../lib/parts.js";
import { go, link, setQuery } from "../lib/route.js";
import { Table } from "../lib/table.js";

const STATUSES = ["running", "completed", "compensating", "compensated", "needs_operator"];
/** Rows that are followed, and rows of each page behind them. */
const [FOLLOWED, PAGE] = [100, 500];

export function Sagas({ query: filter }) {
  const pathOf = (limit) => `/api/v1/sagas${query({ ...filter, limit })}`;
  const { data, problem } = useLive(pathOf(FOLLOWED));
  const sight = useRef([]);
  const { rows: older, load, problem: olderProblem } = useOlder(pathOf(PAGE), data?.next, {
    sight, keyOf: (saga) => saga.xid,
  });
  const newest = data?.items ?? [];
  const seen = new Set(newest.map(({ xid }) => xid));
  const rows = [...newest, ...older.filter(({ xid }) => !seen.has(xid))];
  const columns = [
    { head: "status", basis: 8, grow: 1, cell: (saga) => html`<${Badge} word=${saga.status} />
      ${saga.paused && html` <${Badge} word="paused" />`}` },
    { head: "saga", basis: 8, grow: 2, cell: (saga) => html`
      <a href=${link(["sagas", saga.xid])}>${saga.name}</a>` },
    { head: "key", basis: 8, grow: 2, cell: (saga) => html`<span class="id">${saga.key}</span>
      <${Labels} labels=${saga.labels} />` },
    { head: "steps", basis: 5, grow: 0, hide: 40, kind: "number", cell: (saga) =>
      `${saga.steps_done} of ${saga.step_count}` },
    { head: "now", basis: 10, grow: 2, hide: 60, cell: now },
    { head: "application", basis: 7, grow: 1, hide: 80, cell: (saga) => saga.application },
    { head: "age", basis: 4, grow: 0, kind: "number", hide: 40, cell: (saga) => html`
      <${Age} ageMs=${saga.age_ms} since=${saga.begun_at} />` },
  ];
  return html`<${Screen} title="Sagas">
    <${Filters} filter=${filter} />
    <${ProblemNote} problem=${problem ?? olderProblem} />
    ${data && html`<${Table} label="sagas" columns=${columns} rows=${rows} keyOf=${(saga) => saga.xid}
      sight=${sight} open=${(saga) => go(["sagas", saga.xid])} more=${load} none="No saga is as asked for." />`}
  <//>`;
}

/** What a saga does now, or waits for. @param {import("../lib/types").SagaOverview} saga */
const now = ({ under_way: steps, awaits }) =>
  [...steps, ...awaits.map((signal) => `waits for ${signal}`)].join(", ");

function Filters({ filter }) {
  const submit = (event) => {
    event.preventDefault();
    setQuery(Object.fromEntries(new FormData(event.target)));
  };
  const field = (name, title, hint = "") => html`<label key=${name}>${title}
    <input name=${name} data-search=${name === "key" || null} placeholder=${hint}
      size=${hint ? 8 : null} value=${filter[name] ?? ""} /></label>`;
  return html`<form class="filters" role="search" onSubmit=${submit}>
    ${field("key", "Key", "order-42")} ${field("name", "Name")} ${field("application", "Application")}
    ${field("label", "Label", "order=42")} ${field("awaits", "Waits for", "approval")} ${field("older_than", "Older than", "5m")}
    <label>Status <select name="status" value=${filter.status ?? ""}><option value="">any</option>
      ${STATUSES.map((status) => html`<option key=${status} value=${status}>${words(status)}</option>`)}
    </select></label>
    <button type="submit">Search</button>
    ${Object.values(filter).some(Boolean) && html`<a href=${link(["sagas"])}>all</a>`}
  </form>`;
}
