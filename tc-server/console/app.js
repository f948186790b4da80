// The frame of the console: menu, sign-in, the screen of the address, and keys.
import { render } from "./vendor/preact.js";
import { useEffect, useState } from "./vendor/hooks.js";
import { begin, me, signOut } from "./lib/api.js";
import { KEYS, keysShown, listen } from "./lib/keys.js";
import { reachable, usePolled } from "./lib/live.js";
import { html } from "./lib/parts.js";
import { go, link, route } from "./lib/route.js";
import { Audit } from "./screens/audit.js";
import { Cluster } from "./screens/cluster.js";
import { DirtyWrite } from "./screens/dirty-write.js";
import { Events } from "./screens/events.js";
import { FirstStart } from "./screens/first-start.js";
import { Locks } from "./screens/locks.js";
import { NamedLocks } from "./screens/named-locks.js";
import { NeedsYou } from "./screens/needs-you.js";
import { Processes } from "./screens/processes.js";
import { Saga } from "./screens/saga.js";
import { Sagas } from "./screens/sagas.js";
import { SignIn } from "./screens/sign-in.js";
import { Transaction, TransactionFile } from "./screens/transaction.js";
import { Transactions } from "./screens/transactions.js";

/** The menu, in the order of use at night. */
const MENU = [
  { name: "", title: "Needs you", screen: NeedsYou },
  { name: "transactions", title: "Transactions", screen: Transactions },
  { name: "locks", title: "Locks", screen: Locks },
  { name: "sagas", title: "Sagas", screen: Sagas },
  { name: "events", title: "Events", screen: Events },
  { name: "named-locks", title: "Named locks", screen: NamedLocks },
  { name: "processes", title: "Processes", screen: Processes },
  { name: "cluster", title: "Cluster", screen: Cluster },
  { name: "audit", title: "Audit", screen: Audit },
  { name: "first-start", title: "First start", screen: FirstStart },
];

/** The screens behind others, by the parts of their address. */
function inner(parts) {
  const [first, second, third, fourth] = parts;
  if (first === "transactions" && third === "branches") {
    return html`<${DirtyWrite} xid=${second} branch=${fourth} />`;
  }
  if (first === "transactions" && second) return html`<${Transaction} xid=${second} key=${second} />`;
  if (first === "file") return html`<${TransactionFile} />`;
  if (first === "sagas" && second) return html`<${Saga} xid=${second} key=${second} />`;
  return null;
}

function App() {
  if (me.value === undefined) return html`<p class="starting">Handfast</p>`;
  if (me.value === null) return html`<${SignIn} />`;
  const { parts } = route.value;
  const item = MENU.find(({ name }) => name === (parts[0] ?? "")) ?? MENU[0];
  const page = inner(parts) ?? html`<${item.screen} query=${route.value.query} />`;
  return html`
    <${Menu} at=${item.name} />
    <main>
      ${!reachable.value && html`<p class="lost" role="status">
        The coordinator does not answer. What is shown is what it said last; this page keeps trying.
      </p>`}
      ${page}
    </main>
    ${keysShown.value && html`<${Keys} />`}`;
}

function Menu({ at }) {
  const { data: status } = usePolled("/api/v1/status", 5000);
  return html`<nav aria-label="screens">
    <a class="brand" href="#/">Handfast</a>
    <ul>
      ${MENU.map(({ name, title }) => html`<li key=${name}>
        <a href=${link(name ? [name] : [])} aria-current=${at === name ? "page" : null}>
          ${title}
          ${name === "" && status?.needs_operator > 0 &&
            html` <span class="alarm">${status.needs_operator}</span>`}
          ${name === "events" && status?.parked_events > 0 &&
            html` <span class="alarm">${status.parked_events}</span>`}
        </a></li>`)}
    </ul>
    <div class="foot">
      <${Caller} />
      <${Theme} />
      ${status && html`<small class="muted">version ${status.version}, ${status.store} store</small>`}
    </div>
  </nav>`;
}

function Caller() {
  if (!me.value?.has_tokens) return html`<small class="muted">open to this machine</small>`;
  return html`<div class="caller"><span>${me.value.name} <small>${me.value.role}</small></span>
    <button type="button" onClick=${() => signOut()}>Sign out</button></div>`;
}

/** Light, dark, or as the system is. Kept by the browser. */
function Theme() {
  const [theme, setTheme] = useState(localStorage.getItem("theme") ?? "system");
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("theme", theme);
  }, [theme]);
  return html`<label class="theme">Theme
    <select value=${theme} onChange=${(event) => setTheme(event.target.value)}>
      <option value="system">as the system</option>
      <option value="light">light</option>
      <option value="dark">dark</option>
    </select></label>`;
}

function Keys() {
  const close = () => (keysShown.value = false);
  return html`<div class="keys" role="dialog" aria-label="keys" onClick=${close}>
    <div><h2>Keys</h2><dl>
      ${KEYS.map(([key, what]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}
    </dl></div></div>`;
}

listen((at) => {
  const item = MENU[at];
  if (item) go(item.name ? [item.name] : []);
  return Boolean(item);
});
document.documentElement.dataset.theme = localStorage.getItem("theme") ?? "system";
render(html`<${App} />`, document.body);
begin();
