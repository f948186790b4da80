// The cluster: which node leads, where the asked one stands, which others are there.
import { useState } from "../vendor/hooks.js";
import { mayAct, post } from "../lib/api.js";
import { duration, moment } from "../lib/format.js";
import { usePolled } from "../lib/live.js";
import { Badge, Confirm, Facts, Panel, ProblemNote, Screen, html } from "../lib/parts.js";

export function Cluster() {
  const { data, problem } = usePolled("/api/v1/cluster", 2000);
  const [isAsked, setAsked] = useState(false);
  const canTransfer = mayAct() && data?.nodes?.length > 1;
  const beside = canTransfer && html`<button type="button" onClick=${() => setAsked(true)}>
    Hand over the lead</button>`;
  return html`<${Screen} title="Cluster" beside=${beside}>
    <${ProblemNote} problem=${problem} />
    ${data && html`<${Panel} title="This node"><${Facts} facts=${[
      ["name", data.node.id],
      ["standing", html`<${Badge} word=${data.standing} />`],
      ["since", moment(data.since)],
      ["store", data.store],
      ["leader", data.leader?.id ?? "none is known"],
      ["epoch", data.epoch],
      ["version", data.node.version],
    ]} /><//>
    <${Panel} title="Nodes"><${Nodes} cluster=${data} /><//>`}
    ${isAsked && html`<${Transfer} close=${() => setAsked(false)} />`}
  <//>`;
}

function Nodes({ cluster }) {
  const alone = !cluster.nodes;
  const nodes = cluster.nodes ?? [{ node: cluster.node, seen_ms_ago: 0 }];
  return html`<div class="scroll"><table>
    <thead><tr><th>node</th><th>native API</th><th>admin API</th><th>Seata's clients</th><th>version</th>
      <th class="number">seen</th></tr></thead>
    <tbody>${nodes.map(({ node, seen_ms_ago: ago }) => html`<tr key=${node.id}>
      <td><b>${node.id}</b> ${node.id === cluster.leader?.id && html`<${Badge} word="leading" />`}</td>
      <td class="id">${node.grpc}</td><td class="id">${node.admin}</td><td class="id">${node.seata ?? "–"}</td>
      <td>${node.version}</td><td class="number">${alone ? "–" : `${duration(ago)} ago`}</td></tr>`)}
    </tbody></table></div>
    ${alone && html`<p class="muted">This store belongs to one node. A SQL database or etcd can be shared by
      several, of which one leads.</p>`}
    ${!alone && html`<p class="muted">Records are in the store alone, so that no node is behind another.</p>`}`;
}

function Transfer({ close }) {
  const act = async (reason) => {
    await post("/api/v1/cluster/transfer", { reason });
  };
  return html`<${Confirm} title="Hand over the lead?" verb="hand over" act=${act} close=${close}>
    <p>The node that leads gives up the lead once all that it has taken in is durable and answered. Another
      one takes it. Clients reconnect by themselves.</p><//>`;
}
