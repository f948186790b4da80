// One transaction: its course drawn to scale, its branches, what happened, and what may be done.
import { signal } from "../vendor/signals.js";
import { useState } from "../vendor/hooks.js";
import { get, mayAct, post, transactionPath } from "../lib/api.js";
import { between, count, duration, moment, number, waitedFor, when, words } from "../lib/format.js";
import { useLive, useResourceNames } from "../lib/live.js";
import {
  Age, Badge, Confirm, Empty, Facts, Labels, Panel, ProblemNote, Screen, Timeline, Xid, html,
} from "../lib/parts.js";
import { link } from "../lib/route.js";

/** A transaction read from a file, to be shown without a coordinator that knows it. */
export const opened = signal(null);

/**
 * The actions, the states in which they make sense, and what they do.
 * @type {[string, string[], string, string][]}
 */
const ACTIONS = [
  ["commit", ["active"], "", "Commits it now, in place of its application. Branches that have not reported keep what they have done."],
  ["rollback", ["active"], "danger", "Rolls it back now. Every branch undoes what it has done."],
  ["retry", ["committing", "rolling_back", "needs_operator"], "", "Tries phase two of every unfinished branch at once."],
  ["pause", ["committing", "rolling_back", "needs_operator"], "", "Stops attempts of phase two until it is resumed. Its rows stay locked."],
  ["resume", ["committing", "rolling_back", "needs_operator"], "", "Goes on with attempts of phase two."],
];

export function Transaction({ xid }) {
  const { data, problem } = useLive(transactionPath(xid));
  if (!data) {
    return html`<${Screen} title="Transaction"><${ProblemNote} problem=${problem} />
      ${!problem && html`<p class="muted">…</p>`}<//>`;
  }
  return html`<${Detail} detail=${data} problem=${problem} acts=${mayAct()} />`;
}

export function TransactionFile() {
  if (!opened.value) return html`<${Screen} title="File"><${Empty}>No file is open.<//><//>`;
  return html`<p class="lost" role="status">From a file, as it was when it was exported.</p>
    <${Detail} detail=${opened.value} acts=${false} />`;
}

/** @param {{ detail: import("../lib/types").TransactionDetail, problem?: any, acts: boolean }} props */
function Detail({ detail, problem, acts }) {
  const [action, setAction] = useState("");
  const [isJson, setJson] = useState(false);
  const [unsaved, setUnsaved] = useState(/** @type {any} */ (null));
  const offered = ACTIONS.filter(([name, statuses]) =>
    statuses.includes(detail.status) && !(name === (detail.paused ? "pause" : "resume")));
  const isSaga = detail.branches.some(({ mode }) => mode === "saga");
  const beside = html`
    ${acts && offered.map(([name, , kind]) => html`<button type="button" key=${name} class=${kind}
      onClick=${() => setAction(name)}>${words(name)}</button>`)}
    ${isSaga && html`<a class="button" href=${link(["sagas", detail.xid])}>Its steps</a>`}
    <button type="button" onClick=${() => setJson(!isJson)} aria-pressed=${isJson}>JSON</button>
    <button type="button" onClick=${() => exportFile(detail).catch(setUnsaved)}>Export</button>`;
  const refused = detail.branches.filter((branch) => branch.refusal);
  return html`<${Screen} title=${detail.name || "Transaction"} beside=${beside}>
    <${ProblemNote} problem=${problem ?? unsaved} />
    <div class="summary"><${Badge} word=${detail.status} note=${words(detail.rollback_reason)} />
      ${detail.paused && html`<${Badge} word="paused" />`}
      <code class="id">${detail.xid}</code> <${Labels} labels=${detail.labels} /></div>
    ${refused.map((branch) => html`<p class="call" key=${branch.id}>
      <b>Branch ${branch.id} needs a decision.</b> <span>${branch.refusal?.error}</span>
      <a class="button act" href=${link(["transactions", detail.xid, "branches", branch.id])}>
        Look at its rows</a></p>`)}
    ${isJson ? html`<pre class="json">${JSON.stringify(detail, null, 2)}</pre>` : html`<${Parts} detail=${detail} />`}
    ${action && html`<${Act} action=${ACTIONS.find(([name]) => name === action)} xid=${detail.xid}
      close=${() => setAction("")} />`}
  <//>`;
}

function Parts({ detail }) {
  return html`
    <${Facts} facts=${[
      ["application", detail.application],
      ["begun", moment(detail.begun_at)],
      ["age", html`<${Age} ageMs=${detail.age_ms} since=${detail.begun_at} />`],
      [detail.status === "active" ? "rolled back, if still undecided, at" : "deadline", when(detail.deadline)],
      ["finished", detail.finished_at && moment(detail.finished_at)],
      ["only to be rolled back", detail.rollback_only && "a branch's local outcome is unknown"],
    ]} />
    <${Panel} title="Course"><${Waterfall} detail=${detail} /><//>
    ${detail.waits?.length > 0 && html`<${Panel} title="Waits for rows now"><ul class="list">
      ${detail.waits.map((wait, at) => html`<li key=${at}>
        <b>${waitedFor(wait)}</b> <span>for <${Age} ageMs=${wait.age_ms} since=${wait.since} /></span>
        <span>behind ${wait.behind.map((xid) => html`<${Xid} xid=${xid} key=${xid} /> `)}</span></li>`)}
    </ul><//>`}
    ${detail.to_come?.length > 0 && html`<${Panel} title="Still to come"><ul class="list">
      ${detail.to_come.map((timer, at) => html`<li key=${at}><time>${timer.at ? when(timer.at) : "–"}</time>
        <span>${timer.branch && `branch ${timer.branch}: `}${timer.what}</span></li>`)}
    </ul><//>`}
    <${Panel} title=${`Branches (${detail.branch_count})`}><${Branches} detail=${detail} /><//>
    <${Panel} title="What happened"><${Timeline} entries=${detail.timeline} /><//>`;
}

/** The moment of the decision, as the timeline tells it. */
const decision = (detail) => detail.timeline.find(({ kind }) => kind === "decided");

/** Each branch as a bar from its registration to its end; waits and failed attempts in it. */
function Waterfall({ detail }) {
  const nameOf = useResourceNames();
  const start = new Date(detail.begun_at).getTime();
  const lastEvent = new Date(detail.timeline.at(-1)?.at ?? detail.begun_at).getTime() - start;
  // Where nothing has happened for long, what did happen would be too small to be seen.
  const waits = detail.waits ?? [];
  const isCut = !detail.finished_at && waits.length === 0 && detail.age_ms > 4 * lastEvent && lastEvent > 0;
  const span = Math.max(1, detail.finished_at ? between(detail.begun_at, detail.finished_at)
    : isCut ? lastEvent * 1.5 : detail.age_ms);
  const end = start + span;
  const left = (at) => `${Math.min(100, Math.max(0, ((new Date(at).getTime() - start) / span) * 100))}%`;
  const width = (from, to) =>
    `${Math.max(0.3, (Math.max(0, between(from, to)) / span) * 100)}%`;
  const decided = decision(detail)?.at;
  const last = new Date(end).toISOString();
  const bar = (kind, from, to, title) => html`<i class=${`bar ${kind}`} title=${title}
    style=${{ left: left(from), width: width(from, to) }} />`;
  const waited = (entries) => entries.filter(({ kind }) => kind === "lock_wait").map((wait) => {
    const from = new Date(new Date(wait.at).getTime() - wait.ms).toISOString();
    return bar("wait", from, wait.at, wait.what);
  });
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  const lane = isCut ? "lane cut" : "lane";
  return html`<div class="waterfall">
    <div class="lane axis"><span></span><div>${ticks.map((part) => html`<i class="tick" key=${part}
      style=${{ left: `${part * 100}%` }}><em>${duration(part * span)}</em></i>`)}</div></div>
    <div class=${lane}><span>transaction</span><div>
      ${bar("open", detail.begun_at, decided ?? last, "undecided")}
      ${waited(detail.timeline.filter(({ branch }) => !branch))}
      ${waits.map((wait) => bar("wait", wait.since, last, `waits for ${waitedFor(wait)}`))}
      ${decided && bar(detail.status, decided, last, "decided, until done")}
      ${decided && html`<i class="mark" style=${{ left: left(decided) }} title=${decision(detail).what} />`}
    </div></div>
    ${detail.branches.map((branch) => {
      const of = detail.timeline.filter((entry) => entry.branch === branch.id);
      const failures = of.filter(({ kind }) => kind === "attempt_failed").map(({ at, what }) => [at, what]);
      if (failures.length === 0 && branch.last_failure) {
        failures.push([branch.last_failure.at, branch.last_failure.error]);
      }
      const over = branch.finished_at ?? last;
      const first = decided ?? over;
      return html`<div class=${lane} key=${branch.id}>
        <span title=${branch.resource}>${nameOf(branch.resource)}</span><div>
        ${waited(of)}
        ${bar("open", branch.registered_at, first, `branch ${branch.id}: phase one, then undecided`)}
        ${decided && bar(branch.state, first, over, `branch ${branch.id}: phase two, ${words(branch.state)}`)}
        ${failures.map(([at, error]) => html`<i class="mark failed" key=${at} style=${{ left: left(at) }}
          title=${error} />`)}
      </div></div>`;
    })}
    <p class="legend"><span class="open">undecided</span><span class="wait">waiting for a row</span>
      <span class="finished">phase two</span><span class="failed">failed attempt</span>
      ${isCut && html`<b>Nothing has happened since, for ${duration(detail.age_ms - lastEvent)}.</b>`}</p>
  </div>`;
}

function Branches({ detail }) {
  const nameOf = useResourceNames();
  const [more, setMore] = useState(/** @type {any} */ (
    { rows: [], next: detail.next, problem: null }));
  const load = async () => {
    try {
      const path = `${transactionPath(detail.xid)}?cursor=${encodeURIComponent(more.next)}`;
      const page = await get(path);
      setMore({ rows: [...more.rows, ...page.branches], next: page.next, problem: null });
    } catch (problem) {
      setMore({ ...more, problem });
    }
  };
  const branches = [...detail.branches, ...more.rows];
  if (branches.length === 0) return html`<${Empty}>No branch is registered.<//>`;
  return html`<div class="branches">${branches.map((branch) => html`<details key=${branch.id}>
      <summary><${Badge} word=${branch.state} /> <b>${nameOf(branch.resource)}</b>
        <span class="muted">${branch.mode.toUpperCase()}, ${count(branch.row_count, "row")} locked${
          branch.attempts > 0 ? `, ${count(branch.attempts, "failed attempt")}` : ""}</span></summary>
      <${Facts} facts=${[
        ["branch", html`<code>${branch.id}</code>`],
        ["resource", html`<code class="id">${branch.resource}</code>`],
        ["registered", moment(branch.registered_at)],
        ["phase one done", branch.phase_one_at && moment(branch.phase_one_at)],
        ["finished", branch.finished_at && moment(branch.finished_at)],
        ["resolution", words(branch.resolution)],
        ["last failure", branch.last_failure && `${when(branch.last_failure.at)}: ${branch.last_failure.error}`],
      ]} />
      ${branch.rows.length > 0 && html`<p>${branch.rows.map((row) => html`<a class="label"
        key=${`${row.table} ${row.key}`}
        href=${link(["locks"], { resource: branch.resource, table: row.table, key: row.canonical_key })}>
        ${row.table} ${row.key}</a> `)}</p>`}
    </details>`)}
    ${more.next && html`<button type="button" onClick=${load}>More branches</button>`}
    <${ProblemNote} problem=${more.problem} />
  </div>`;
}

function Act({ action: [name, , kind, effect], xid, close }) {
  const act = async (reason) => {
    await post(`${transactionPath(xid)}/${name}`, { reason });
  };
  return html`<${Confirm} title=${`${words(name)} ${number(xid)}?`} verb=${words(name)} kind=${kind}
    act=${act} close=${close}><p>${effect}</p><//>`;
}

/** Saves a transaction with all its branches, as a file that any console and `tx show --file` open. */
async function exportFile(detail) {
  const whole = { ...detail, branches: [...detail.branches], timeline: [...detail.timeline], next: null };
  for (let cursor = detail.next; cursor; ) {
    const path = `${transactionPath(detail.xid)}?limit=1000&cursor=${encodeURIComponent(cursor)}`;
    const page = await get(path);
    whole.branches.push(...page.branches);
    whole.timeline.push(...page.timeline);
    cursor = page.next;
  }
  // Texts of points in time sort like these.
  whole.timeline.sort((one, other) => (one.at < other.at ? -1 : one.at > other.at ? 1 : 0));
  const blob = new Blob([JSON.stringify(whole, null, 2)], { type: "application/json" });
  const saved = document.createElement("a");
  saved.href = URL.createObjectURL(blob);
  saved.download = `transaction-${number(detail.xid)}.json`;
  saved.click();
  URL.revokeObjectURL(saved.href);
}
