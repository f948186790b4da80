// Events: what the relays of outboxes report, and parked events, which wait for a person.
import { useRef, useState } from "../vendor/hooks.js";
import { mayAct, post, query } from "../lib/api.js";
import { count } from "../lib/format.js";
import { useLive, useOlder } from "../lib/live.js";
import {
  Age, Badge, Confirm, Empty, Facts, Panel, ProblemNote, Screen, Xid, html,
} from "../lib/parts.js";
import { link, setQuery } from "../lib/route.js";

/** Parked events that are followed, and those of each page behind them. */
const [FOLLOWED, PAGE] = [100, 500];

export function Events({ query: filter }) {
  const pathOf = (limit) => `/api/v1/events${query({ ...filter, limit })}`;
  const { data, problem } = useLive(pathOf(FOLLOWED));
  const sight = useRef(/** @type {any[]} */ ([]));
  const { rows: older, load, problem: olderProblem } = useOlder(pathOf(PAGE), data?.next, {
    sight, keyOf: ({ event }) => event,
  });
  const [action, setAction] = useState(/** @type {any} */ (null));
  const newest = data?.items ?? [];
  const seen = new Set(newest.map(({ event }) => event));
  const parked = [...newest, ...older.filter(({ event }) => !seen.has(event))];
  // All of them are in the page.
  sight.current = parked;
  return html`<${Screen} title="Events">
    <${Filters} filter=${filter} />
    <${ProblemNote} problem=${problem ?? olderProblem} />
    ${data && html`<${Panel} title="Parked">
      <${ParkedEvents} events=${parked} act=${setAction} none="No event is parked." />
      ${load && html`<button type="button" onClick=${load}>More</button>`}<//>`}
    ${data?.relays.length === 0 && html`<${Empty}>
      No relay reports. A relay does if it is started with --report-as and the name of its outbox.<//>`}
    ${data?.relays.map((relay) => html`<${Relay} relay=${relay} key=${relay.relay} />`)}
    ${action && html`<${Act} ...${action} close=${() => setAction(null)} />`}
  <//>`;
}

/** Parked events, with the broker's reason. @param {{ events: import("../lib/types").ParkedEvent[], act: any, none: string }} props */
export function ParkedEvents({ events, act, none }) {
  if (events.length === 0) return html`<${Empty}>${none}<//>`;
  return html`<div class="scroll"><table class="parked">
    <thead><tr><th>topic</th><th>key</th><th>reason</th><th class="number">parked for</th>
      <th>outbox</th><th></th></tr></thead>
    <tbody>${events.map((event) => html`<tr key=${event.event}>
      <td title=${event.event}><b>${event.topic}</b></td>
      <td class="id">${event.key}</td>
      <td>${event.reason} <small class="muted">${count(event.attempts, "attempt")}
        ${event.xid && html`, of <${Xid} xid=${event.xid}>its transaction<//>`}</small></td>
      <td class="number"><${Age} ageMs=${event.age_ms} since=${event.parked_at} /></td>
      <td>${event.outbox} <small class="muted">${event.application}</small></td>
      <td class="acts">${mayAct() && ["requeue", "skip"].map((verb) => html`<button type="button"
        key=${verb} onClick=${() => act({ verb, event })}>${verb}</button>`)}</td></tr>`)}
    </tbody></table></div>`;
}

/** @param {{ relay: import("../lib/types").OutboxRelay }} props */
function Relay({ relay }) {
  const seen = html`<${Age} ageMs=${relay.seen_ms_ago} since=${relay.seen_ms_ago} />`;
  const beside = html`<span class="muted">seen ${seen} ago</span>
    <${Badge} word=${relay.is_silent ? "silent" : "reports"} />`;
  return html`<${Panel} title=${relay.outbox} beside=${beside}>
    ${relay.error && html`<p class="problem">${relay.error}</p>`}
    <${Facts} facts=${[
      ["held", relay.held], ["new", relay.new], ["parked", relay.parked],
      ["oldest to be published", relay.oldest_at && html`<${Age} ageMs=${relay.age_ms} since=${relay.oldest_at} />`],
      ["lanes", `${relay.lane_count} of 64`], ["application", relay.application],
      ["relay", html`<code class="id">${relay.relay.slice(0, 8)}</code> at ${relay.peer}`],
    ]} />
    ${relay.lanes.length > 0 && html`<details><summary>${count(relay.lanes.length, "lane")} with events</summary>
      <${Lanes} lanes=${relay.lanes} /></details>`}<//>`;
}

const Lanes = ({ lanes }) => html`<table>
  <thead><tr>${["lane", "held", "new", "parked", "oldest"].map((head) => html`<th class="number"
    key=${head}>${head}</th>`)}</tr></thead>
  <tbody>${lanes.map((lane) => html`<tr key=${lane.lane}>
    ${[lane.lane, lane.held, lane.new, lane.parked].map((number, at) => html`<td class="number"
      key=${at}>${number.toLocaleString("en")}</td>`)}
    <td class="number">${lane.oldest_at && html`<${Age} ageMs=${lane.age_ms} since=${lane.oldest_at} />`}</td>
  </tr>`)}</tbody></table>`;

const EFFECTS = {
  requeue: "The relay publishes this event after all, and then the later events of its key, which have waited behind it. If the broker still refuses it, it is parked again.",
  skip: "This event is never published. The later events of its key, which have waited behind it, are published without it.",
};

/** The question before an action on a parked event. */
export function Act({ verb, event, close }) {
  const act = async (reason) => {
    await post(`/api/v1/events/${encodeURIComponent(event.event)}/${verb}`, { reason });
  };
  return html`<${Confirm} title=${`${verb} this event?`} verb=${verb}
    kind=${verb === "skip" ? "danger" : ""} act=${act} close=${close}>
    <p><b>${event.topic}</b> <code class="id">${event.key}</code>: ${event.reason}</p>
    <p>${EFFECTS[verb]}</p><//>`;
}

function Filters({ filter }) {
  const submit = (event) => {
    event.preventDefault();
    setQuery(Object.fromEntries(new FormData(event.target)));
  };
  const field = (name, title, hint = "") => html`<label key=${name}>${title}
    <input name=${name} data-search=${name === "key" || null} placeholder=${hint}
      value=${filter[name] ?? ""} /></label>`;
  return html`<form class="filters" role="search" onSubmit=${submit}>
    ${field("key", "Key", "order-42")} ${field("topic", "Topic", "orders")} ${field("outbox", "Outbox")}
    <button type="submit">Search</button>
    ${Object.values(filter).some(Boolean) && html`<a href=${link(["events"])}>all</a>`}
  </form>`;
}
