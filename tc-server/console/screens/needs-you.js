// Needs you: what a person must look at, and whether the coordinator is well.
import { useState } from "../vendor/hooks.js";
import { duration, micros, words } from "../lib/format.js";
import { useLive, usePolled } from "../lib/live.js";
import {
  Age, Badge, Empty, Labels, Panel, ProblemNote, Screen, Sparkline, Xid, html,
} from "../lib/parts.js";
import { link } from "../lib/route.js";
import { Act, ParkedEvents } from "./events.js";

const NEEDING = "/api/v1/transactions?status=needs_operator&limit=50";
/** Phase two that has not ended by then is shown. */
const LATE = "1m";

export function NeedsYou() {
  const { data: status, problem } = useLive("/api/v1/status");
  const { data: needing } = useLive(NEEDING);
  const { data: events } = useLive("/api/v1/events?limit=20");
  const [action, setAction] = useState(/** @type {any} */ (null));
  const { data: recent } = usePolled("/api/v1/recent", 10_000);
  const committing = usePolled(`/api/v1/transactions?status=committing&older_than=${LATE}&limit=50`, 5000);
  const rolling = usePolled(`/api/v1/transactions?status=rolling_back&older_than=${LATE}&limit=50`, 5000);
  const late = [...(committing.data?.items ?? []), ...(rolling.data?.items ?? [])];
  const beside = status && html`<span class="muted">up for ${duration(status.uptime_ms)}</span>`;
  return html`<${Screen} title="Needs you" beside=${beside}>
    <${ProblemNote} problem=${problem} />
    ${status && html`<${Tiles} status=${status} steps=${recent?.steps ?? []} />`}
    <${Panel} title="Waits for a person">
      <${List} items=${needing?.items} none="Nothing waits for a person." />
      ${needing?.next && html`<p><a href=${link(["transactions"], { status: "needs_operator" })}>
        All of them</a></p>`}
    <//>
    ${events?.items.length > 0 && html`<${Panel} title="Parked events">
      <${ParkedEvents} events=${events.items} act=${setAction} none="" />
      ${events.next && html`<p><a href=${link(["events"])}>All of them</a></p>`}<//>`}
    ${late.length > 0 && html`<${Panel} title="Decided over a minute ago, and not done">
      <${List} items=${late} none="" /><//>`}
    <${Panel} title="The last 15 minutes"><${Recent} recent=${recent} /><//>
    ${action && html`<${Act} ...${action} close=${() => setAction(null)} />`}
  <//>`;
}

function Tiles({ status, steps }) {
  const tiles = [
    ["needs_operator", status.needs_operator, "needs_operator"],
    ["active", status.active, "active"],
    ["committing", status.committing, ""],
    ["rolling_back", status.rolling_back, ""],
    ["waiting for locks", status.waiters, "waiting"],
    ["phase two owed", status.pending_branches, "pending"],
    ["parked events", status.parked_events, ""],
  ];
  return html`<div class="tiles">${tiles.map(([name, value, series]) => {
    const isAlarm = ["needs_operator", "parked events"].includes(name) && value > 0;
    const isStatus = ["needs_operator", "active", "committing", "rolling_back"].includes(name);
    const to = isStatus ? link(["transactions"], { status: name })
      : link([name === "parked events" ? "events" : "locks"]);
    return html`<a class=${`tile ${isAlarm ? "alarm" : ""}`} key=${name} href=${to}>
      <span>${words(name)}</span><b>${value.toLocaleString("en")}</b>
      ${series && html`<${Sparkline} values=${steps.map((step) => step[series])}
        label=${`${words(name)} over 15 minutes`} />`}
    </a>`;
  })}</div>`;
}

function List({ items, none }) {
  if (!items) return null;
  if (items.length === 0) return html`<${Empty}>${none}<//>`;
  return html`<ul class="list">${items.map((item) => html`<li key=${item.xid}>
    <${Badge} word=${item.status} note=${words(item.rollback_reason)} />
    <${Xid} xid=${item.xid} />
    <span>${item.application} / ${item.name}</span> <${Labels} labels=${item.labels} />
    <span class="muted">began <${Age} ageMs=${item.age_ms} since=${item.begun_at} /> ago</span>
  </li>`)}</ul>`;
}

const TIMED = [
  ["begin", "begin"],
  ["register", "registration"],
  ["commit", "commit"],
  ["phase_two", "phase two"],
  ["lock_wait", "lock wait"],
  ["store_commit", "store, with sync"],
];

function Recent({ recent }) {
  const steps = recent?.steps ?? [];
  if (steps.length === 0) return html`<${Empty}>Counted from the start, a line every 10 seconds.<//>`;
  const perSecond = (step, field) => step && (step[field] / (recent.step_ms / 1000)).toFixed(1);
  const last = steps.at(-1);
  return html`<table class="recent">
    <thead><tr><th>what</th><th class="number">each second</th><th class="number">p50</th>
      <th class="number">p99</th><th>over time</th></tr></thead>
    <tbody>
      ${["committed", "rolled_back"].map((name) => html`<tr key=${name}>
        <td>${words(name)}</td><td class="number">${perSecond(last, name)}</td>
        <td class="number">–</td><td class="number">–</td>
        <td><${Sparkline} values=${steps.map((step) => step[name])} label=${words(name)} /></td>
      </tr>`)}
      ${TIMED.map(([field, name]) => html`<tr key=${field}>
        <td>${name}</td>
        <td class="number">${((last[field]?.count ?? 0) / (recent.step_ms / 1000)).toFixed(1)}</td>
        <td class="number">${micros(last[field]?.p50_us)}</td>
        <td class="number">${micros(last[field]?.p99_us)}</td>
        <td><${Sparkline} values=${steps.map((step) => step[field]?.p99_us)} label=${`p99 of ${name}`} />
        </td></tr>`)}
    </tbody></table>
    <p class="muted">Numbers of the last ${duration(recent.step_ms)}. The lines show ${duration(steps.length * recent.step_ms)}, of durations their p99.</p>`;
}
