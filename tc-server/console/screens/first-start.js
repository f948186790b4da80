// First start: lines to copy that connect a service, and whether one is connected.
import { me } from "../lib/api.js";
import { count } from "../lib/format.js";
import { usePolled } from "../lib/live.js";
import { Copyable, Panel, Screen, html } from "../lib/parts.js";

export function FirstStart() {
  const { data: cluster } = usePolled("/api/v1/cluster", 5000);
  const { data: processes } = usePolled("/api/v1/processes", 2000);
  const grpc = cluster?.node.grpc ?? "127.0.0.1:7091";
  const admin = location.origin;
  // TLS encrypts both ports or none.
  const scheme = location.protocol === "https:" ? "https" : "http";
  const bearer = me.value?.has_tokens ? '-H "authorization: Bearer $HANDFAST_TOKEN" ' : "";
  return html`<${Screen} title="First start">
    <${Panel} title="Add the library, from a clone of the repository">
      <${Copyable} text=${`[dependencies]
handfast = { path = "../handfast/rm-client", default-features = false, features = ["sqlite"] }`} /><//>
    <${Panel} title="Connect, and take part with a database">
      <${Copyable} text=${`let handfast = Handfast::connect("${scheme}://${grpc}").application("shop").await?;
handfast.migrate(&pool).await?;
let stock = handfast.at(pool).await?;`} />
      <p>${processes?.count > 0 ? html`<b class="good">
        ${`${count(processes.count, "process", "processes")} connected. `}</b>` : "Waiting for the first process to connect. "}
        <a href="#/processes">Processes</a></p><//>
    <${Panel} title="Begin your first transaction">
      <${Copyable} text=${`handfast.transaction("place-order").run(async |_tx| {
    let take = "UPDATE stock SET units = units - 1 WHERE product = 7";
    sqlx::query(take).execute(&stock).await.map(drop)
}).await?;`} /><//>
    <${Panel} title="Look at it from a terminal">
      <${Copyable} text=${`handfast tx ls --server ${admin}`} />
      <${Copyable} text=${`curl ${bearer}${admin}/api/v1/transactions`} /><//>
  <//>`;
}
