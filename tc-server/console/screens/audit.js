// The audit log of this node: what operators did, and what came of it.
import { useEffect, useState } from "../vendor/hooks.js";
import { get, query } from "../lib/api.js";
import { moment, short, words } from "../lib/format.js";
import { Badge, Empty, Panel, ProblemNote, Screen, Xid, html } from "../lib/parts.js";
import { setQuery } from "../lib/route.js";

export function Audit({ query: filter }) {
  const [state, setState] = useState(/** @type {any} */ (
    { lines: [], next: null, isKept: true, problem: null }));
  const load = async (lines, cursor) => {
    try {
      const page = await get(`/api/v1/audit${query({ ...filter, cursor })}`);
      setState({ lines: [...lines, ...page.items], next: page.next, isKept: page.is_kept, problem: null });
    } catch (problem) {
      setState({ lines, next: null, isKept: true, problem });
    }
  };
  useEffect(() => void load([], null), [JSON.stringify(filter)]);
  const actions = joined(state.lines);
  return html`<${Screen} title="Audit">
    <form class="filters" role="search" onSubmit=${(event) => {
      event.preventDefault();
      setQuery({ xid: new FormData(event.target).get("xid") });
    }}><label>XID <input data-search name="xid" value=${filter.xid ?? ""} /></label>
      <button type="submit">Search</button>
      <button type="button" onClick=${() => load([], null)}>Read again</button></form>
    <${ProblemNote} problem=${state.problem} />
    <${Panel}>
    ${!state.isKept && html`<${Empty}>This coordinator keeps no file: the lines are in its log.<//>`}
    ${state.isKept && actions.length === 0 && html`<${Empty}>No action is recorded.<//>`}
    ${actions.length > 0 && html`<div class="scroll"><table>
      <thead><tr><th>at</th><th>operator</th><th>action</th><th>on</th><th>detail</th><th>outcome</th></tr></thead>
      <tbody>${actions.map((line) => html`<tr key=${line.id}>
        <td>${moment(line.at)}</td><td><b>${line.operator}</b></td><td>${words(line.action)}</td>
        <td>${line.xid && html`<${Xid} xid=${line.xid}>${short(line.xid)}<//>`} ${line.lock} ${line.event && html`<code class="id" title=${line.event}>${line.event.slice(0, 8)}</code>`}
          ${line.branch && html`<small class="muted"> branch ${line.branch}</small>`}</td>
        <td>${line.detail}</td>
        <td><${Badge} word=${line.outcome === "done" ? "done" : line.outcome ?? "unanswered"} /></td></tr>`)}
      </tbody></table></div>`}
    ${state.next && html`<button type="button" onClick=${() => load(state.lines, state.next)}>Earlier</button>`}
    <//>
  <//>`;
}

/** One line for each action: the later of its two has the outcome too. */
function joined(lines) {
  const actions = new Map();
  for (const line of lines) {
    const known = actions.get(line.id);
    // The latest line comes first; of the earlier one only the time is taken.
    actions.set(line.id, known ? { ...known, at: line.at } : line);
  }
  return [...actions.values()];
}
