// Named locks: leases, fencing tokens, queues, and the end of a lease by an operator.
import { useState } from "../vendor/hooks.js";
import { mayAct, post } from "../lib/api.js";
import { count, duration, short } from "../lib/format.js";
import { useLive } from "../lib/live.js";
import { Age, Badge, Confirm, Empty, Panel, ProblemNote, Screen, Xid, html } from "../lib/parts.js";

export function NamedLocks() {
  const { data, problem } = useLive("/api/v1/named-locks?limit=200");
  const [released, setReleased] = useState(/** @type {any} */ (null));
  return html`<${Screen} title="Named locks">
    <${ProblemNote} problem=${problem} />
    ${data?.items.length === 0 && html`<${Empty}>No named lock is held or waited for.<//>`}
    ${data?.items.map((lock) => html`<${Lock} lock=${lock} key=${lock.name} release=${setReleased} />`)}
    ${data?.next && html`<p class="muted">The first ${data.items.length} in the order of their names.</p>`}
    ${released && html`<${Release} ...${released} close=${() => setReleased(null)} />`}
  <//>`;
}

function Lock({ lock, release }) {
  const beside = html`<span class="muted">${count(lock.holding, "lease")}, ${lock.waiting} waiting</span>`;
  return html`<${Panel} title=${lock.name} beside=${beside}><div class="scroll"><table>
    <thead><tr><th>client</th><th>share</th><th class="number">fence</th><th class="number">held for</th>
      <th class="number">left</th><th></th></tr></thead>
    <tbody>
      ${lock.leases.map((lease) => html`<tr key=${lease.token}>
        <td>${lease.label} ${lease.xid && html`<${Xid} xid=${lease.xid}>${short(lease.xid)}<//>`}</td>
        <td>${lease.share}</td><td class="number id">${lease.fence}</td>
        <td class="number"><${Age} ageMs=${lease.age_ms} since=${lease.since} /></td>
        <td class="number">${lease.left_ms == null ? "as its transaction" : duration(lease.left_ms)}</td>
        <td>${mayAct() && html`<button type="button"
          onClick=${() => release({ name: lock.name, lease })}>release</button>`}</td></tr>`)}
      ${lock.queue.map((waiter) => html`<tr key=${waiter.token} class="muted">
        <td>${waiter.label} ${waiter.xid && html`<${Xid} xid=${waiter.xid}>${short(waiter.xid)}<//>`}</td>
        <td>${waiter.share}</td><td><${Badge} word="waiting" /></td>
        <td class="number"><${Age} ageMs=${waiter.age_ms} since=${waiter.since} /></td><td></td><td></td></tr>`)}
    </tbody></table></div><//>`;
}

function Release({ name, lease, close }) {
  const act = async (reason) => {
    await post("/api/v1/named-locks/release", { name, token: lease.token, reason });
  };
  return html`<${Confirm} title=${`Release ${name}?`} verb="release" kind="danger" act=${act} close=${close}>
    <p>The lease of <b>${lease.label}</b> ends, and the next request is granted. Its client learns of it
      at its next renewal; until then only the fencing token stops it.</p><//>`;
}
