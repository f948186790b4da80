// Processes that are connected, and the resources that they serve.
import { count, resourceName, when } from "../lib/format.js";
import { usePolled } from "../lib/live.js";
import { Badge, Empty, Panel, ProblemNote, Screen, html } from "../lib/parts.js";
import { link } from "../lib/route.js";

const EVERY_MS = 3000;

export function Processes() {
  const processes = usePolled("/api/v1/processes", EVERY_MS);
  const resources = usePolled("/api/v1/resources", EVERY_MS);
  return html`<${Screen} title="Processes and resources">
    <${ProblemNote} problem=${processes.problem ?? resources.problem} />
    ${resources.data && html`<${Resources} resources=${resources.data} />`}
    ${processes.data && html`<${List} processes=${processes.data} />`}
  <//>`;
}

function Resources({ resources: { items, count: known } }) {
  if (items.length === 0) {
    return html`<${Panel} title="Resources"><${Empty}>No resource is known yet.
      <a href="#/first-start">Connect a service</a>.<//><//>`;
  }
  return html`<${Panel} title="Resources" beside=${html`<span class="muted">${known}</span>`}>
    <div class="scroll"><table>
    <thead><tr><th>resource</th><th>mode</th><th class="number">processes</th>
      <th class="number">phase two waiting</th><th class="number">asked</th></tr></thead>
    <tbody>${items.map((resource) => html`<tr key=${`${resource.id} ${resource.mode}`}>
      <td><a href=${link(["locks"], { resource: resource.id })}>${resourceName(resource)}</a>
        <br /><small class="muted id">${resource.mode === "saga" ? resource.label : resource.id}</small></td>
      <td>${resource.mode.toUpperCase()}</td>
      <td class="number">${resource.processes > 0 ? resource.processes : html`<${Badge} word="none" />`}</td>
      <td class="number">${resource.waiting_branches}</td>
      <td class="number">${resource.asked_branches}</td></tr>`)}</tbody></table></div><//>`;
}

function List({ processes: { items, count: known } }) {
  return html`<${Panel} title="Processes" beside=${html`<span class="muted">${known}</span>`}>
    ${items.length === 0 && html`<${Empty}>No process is connected.<//>`}
    ${items.length > 0 && html`<div class="scroll"><table>
    <thead><tr><th>application</th><th>library</th><th>address</th><th>connected</th>
      <th class="number">asked</th><th>serves</th></tr></thead>
    <tbody>${items.map((process) => html`<tr key=${process.client_id}>
      <td><b>${process.application}</b><br /><small class="muted id">${process.client_id}</small></td>
      <td>${process.agent}</td><td class="id">${process.peer}</td>
      <td>${when(process.connected_at)}</td><td class="number">${process.asked_branches}</td>
      <td title=${process.resources.join("\n")}>${count(process.resource_count, "resource")}</td></tr>`)}
    </tbody></table></div>`}<//>`;
}
