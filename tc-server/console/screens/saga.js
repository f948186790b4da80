// One saga: its steps as a graph, their inputs and outputs, and what may be done.
import { useState } from "../vendor/hooks.js";
import { mayAct, post, transactionPath } from "../lib/api.js";
import { duration, moment, when, words } from "../lib/format.js";
import { useLive } from "../lib/live.js";
import { Age, Badge, Confirm, Facts, Panel, ProblemNote, Screen, html } from "../lib/parts.js";

const sagaPath = (xid) => `/api/v1/sagas/${encodeURIComponent(xid)}`;

export function Saga({ xid }) {
  const { data: saga, problem } = useLive(sagaPath(xid));
  const [opened, setOpened] = useState("");
  const [action, setAction] = useState(/** @type {any} */ (null));
  if (!saga) return html`<${Screen} title="Saga"><${ProblemNote} problem=${problem} /><//>`;
  const step = saga.steps.find(({ name }) => name === opened);
  const isOpen = ["running", "compensating", "needs_operator"].includes(saga.status);
  const beside = mayAct() && html`
    ${saga.awaits.map((path) => html`<button type="button" key=${path} class="act"
      onClick=${() => setAction({ name: "signal", path })}>Signal ${path}</button>`)}
    ${saga.status === "running" && html`<button type="button" class="danger"
      onClick=${() => setAction({ name: "cancel" })}>Cancel</button>`}
    ${isOpen && ["retry", saga.paused ? "resume" : "pause"].map((name) => html`<button type="button" key=${name}
      onClick=${() => setAction({ name })}>${name}</button>`)}`;
  return html`<${Screen} title=${saga.name} beside=${beside}>
    <${ProblemNote} problem=${problem} />
    <div class="summary"><${Badge} word=${saga.status} /> ${saga.paused && html`<${Badge} word="paused" />`}
      <b>${saga.key}</b> <code class="id">${saga.xid}</code></div>
    ${saga.cause && html`<p class="call">${saga.cause}</p>`}
    <${Facts} facts=${[
      ["application", saga.application],
      ["begun", moment(saga.begun_at)],
      ["age", html`<${Age} ageMs=${saga.age_ms} since=${saga.begun_at} />`],
      ["compensated, if its pivot has not begun, at", saga.deadline && when(saga.deadline)],
      ["ended", saga.ended_at && moment(saga.ended_at)],
    ]} />
    <${Panel} title="Steps"><${Graph} steps=${saga.steps} opened=${opened} open=${setOpened} /><//>
    ${step && html`<${Step} step=${step} />`}
    <${Panel} title="What happened"><ol class="timeline">${saga.timeline.map((entry, at) => html`
      <li key=${at}><time title=${entry.at}>${when(entry.at)}</time> <span>${entry.what}</span></li>`)}</ol><//>
    ${action && html`<${Act} action=${action} xid=${saga.xid} close=${() => setAction(null)} />`}
  <//>`;
}

/** Groups one after the other, the steps of a group below each other, children in a box of theirs. */
function Graph({ steps, opened, open, within = undefined }) {
  const own = steps.filter((step) => (step.within ?? undefined) === within);
  const groups = [...new Set(own.map(({ group }) => group))].sort((one, other) => one - other);
  return html`<div class="scroll"><div class="saga">${groups.map((group) => html`<div class="group" key=${group}>
    ${own.filter((step) => step.group === group).map((step) => html`<div key=${step.name}
        class=${`step ${step.state} ${step.name === opened ? "at" : ""}`}>
      <button type="button" onClick=${() => open(step.name)}>
        <b>${step.name.slice(step.name.lastIndexOf("/") + 1)}</b>
        <small>${words(step.kind)}</small> <${Badge} word=${step.state} />
        ${step.next_attempt && html`<small>${attempt(step.next_attempt)}</small>`}</button>
      ${step.kind === "child" && html`<${Graph} steps=${steps} within=${step.name} opened=${opened} open=${open} />`}
    </div>`)}</div>`)}</div></div>`;
}

function attempt({ state, at }) {
  const texts = {
    asked: "a process has the call",
    due: at ? `next attempt at ${when(at)}` : "next attempt at once",
    paused: "paused",
    waits_for_process: "no process serves its resource",
  };
  return texts[state] ?? words(state);
}

function Step({ step }) {
  return html`<${Panel} title=${step.name}><${Facts} facts=${[
    ["resource", step.resource], ["action", step.action], ["branch", step.branch],
    ["started", step.started_at && moment(step.started_at)],
    ["ended", step.ended_at && moment(step.ended_at)],
    ["failed attempts", step.attempts || ""],
    ["last failure", step.last_failure && `${when(step.last_failure.at)}: ${step.last_failure.error}`],
    ["timeout", step.timeout_ms && duration(step.timeout_ms)],
    ["takes the output of", step.takes?.join(", ")],
  ]} />
  <div class="halves"><${Payload} title="Input" payload=${step.input} />
    <${Payload} title="Output" payload=${step.output} /></div><//>`;
}

const Payload = ({ title, payload }) => payload && html`<div><h3>${title}</h3>
  <pre class="json">${payload.json === undefined ? payload.text : JSON.stringify(payload.json, null, 2)}</pre>
  ${payload.cut && html`<p class="muted">Cut: it has ${payload.bytes} bytes.</p>`}</div>`;

const EFFECTS = {
  signal: "The step that waits for this signal is done, with this value, and the saga goes on.",
  cancel: "The saga is compensated, if its pivot has not begun: every step that was done is undone.",
  retry: "Calls that failed are made again at once.",
  pause: "No call is made until the saga is resumed.",
  resume: "Calls are made again.",
};

function Act({ action: { name, path }, xid, close }) {
  const [payload, setPayload] = useState("null");
  const act = async (reason) => {
    if (name === "signal") {
      await post(`${sagaPath(xid)}/signal`, { signal: path, payload: JSON.parse(payload), reason });
    } else if (name === "cancel") {
      await post(`${sagaPath(xid)}/cancel`, { reason });
    } else {
      await post(`${transactionPath(xid)}/${name}`, { reason });
    }
  };
  return html`<${Confirm} title=${name === "signal" ? `Signal ${path}?` : `${words(name)} this saga?`}
    verb=${name} kind=${name === "cancel" ? "danger" : ""} act=${act} close=${close}>
    <p>${EFFECTS[name]}</p>
    ${name === "signal" && html`<label>Value, JSON
      <textarea name="payload" rows="4" onInput=${(event) => setPayload(event.target.value)}>${payload}</textarea>
    </label>`}<//>`;
}
