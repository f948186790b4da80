// Sagas: which run, what they wait for.
import { query } from "../lib/api.js";
import { words } from "../lib/format.js";
import { useLive } from "../lib/live.js";
import { Age, Badge, Labels, ProblemNote, Screen, html } from "../lib/parts.js";
import { go, link, setQuery } from "../lib/route.js";
import { Table } from "../lib/table.js";

const STATUSES = ["running", "completed", "compensating", "compensated", "needs_operator"];

export function Sagas({ query: filter }) {
  const { data, problem } = useLive(`/api/v1/sagas${query({ ...filter, limit: 200 })}`);
  const columns = [
    { head: "status", basis: 8, grow: 1, cell: (saga) => html`<${Badge} word=${saga.status} />` },
    { head: "saga", basis: 8, grow: 2, cell: (saga) => html`
      <a href=${link(["sagas", saga.xid])}>${saga.name}</a> <${Labels} labels=${saga.labels} />` },
    { head: "key", basis: 8, grow: 2, hide: 40, kind: "id", cell: (saga) => saga.key },
    { head: "steps", basis: 5, grow: 0, kind: "number", cell: (saga) => `${saga.steps_done} of ${saga.step_count}` },
    { head: "now", basis: 10, grow: 2, hide: 60, cell: (saga) => [
      ...saga.under_way, ...saga.awaits.map((step) => `awaits ${step}`)].join(", ") },
    { head: "age", basis: 4, grow: 0, kind: "number", hide: 40, cell: (saga) => html`
      <${Age} ageMs=${saga.age_ms} since=${saga.begun_at} />` },
  ];
  return html`<${Screen} title="Sagas">
    <form class="filters" role="search" onSubmit=${(event) => {
      event.preventDefault();
      setQuery(Object.fromEntries(new FormData(event.target)));
    }}>
      <label>Key <input data-search name="key" value=${filter.key ?? ""} /></label>
      <label>Name <input name="name" value=${filter.name ?? ""} /></label>
      <label>Status <select name="status" value=${filter.status ?? ""}><option value="">any</option>
        ${STATUSES.map((status) => html`<option key=${status} value=${status}>${words(status)}</option>`)}
      </select></label>
      <button type="submit">Search</button>
    </form>
    <${ProblemNote} problem=${problem} />
    ${data && html`<${Table} label="sagas" columns=${columns} rows=${data.items} keyOf=${(saga) => saga.xid}
      open=${(saga) => go(["sagas", saga.xid])} none="No saga is as asked for." />`}
  <//>`;
}
