// A dirty write: the three values of each row, what each answer does to it, and the answer.
import { useEffect, useState } from "../vendor/hooks.js";
import { get, mayAct, post, transactionPath } from "../lib/api.js";
import { count, moment, number, words } from "../lib/format.js";
import { useLive, useResourceNames } from "../lib/live.js";
import { Badge, Empty, Panel, ProblemNote, Screen, Xid, html } from "../lib/parts.js";

/** The answers: name, title, and what they do in words. */
const ANSWERS = [
  ["restore_clean", "Restore the clean rows",
    "Rows that are as the transaction left them are put back. Dirty rows stay, with the other write; correct them by hand if they need it. Nearly always right."],
  ["accept_current", "Accept what is there",
    "Every row stays as it is now, also those that this transaction wrote, although the transaction is rolled back elsewhere."],
  ["force_before", "Force the values of before",
    "Every row gets the value that the transaction found. What others wrote since is lost."],
];

/** What an answer does to a row, for people. */
const CHANGES = {
  left: "stays",
  written_back: "gets its values of before",
  removed: "is removed",
  inserted: "is inserted again",
};

export function DirtyWrite({ xid, branch: id }) {
  const { data, problem } = useLive(transactionPath(xid));
  const branch = data?.branches.find((it) => it.id === id);
  const [done, setDone] = useState(/** @type {any} */ (null));
  const beside = html`<${Xid} xid=${xid}>the transaction<//>`;
  return html`<${Screen} title="Dirty write" beside=${beside}>
    <${ProblemNote} problem=${problem} />
    ${data && html`<div class="summary"><${Badge} word=${data.status} note=${words(data.rollback_reason)} />
      <b>${data.application} / ${data.name}</b> <code class="id">${data.xid}</code></div>`}
    ${branch?.refusal && html`<${Rows} branch=${branch} refusal=${branch.refusal} />
      <${Answer} xid=${xid} branch=${branch} refusal=${branch.refusal} setDone=${setDone} />`}
    ${data && !branch?.refusal && html`<${Panel} title="Decided">
      <p>Branch ${id} needs no decision${branch ? `: it is ${words(branch.state)}` : ""}.</p><//>`}
    ${(done || (data && !branch?.refusal)) && html`<${AuditLines} xid=${xid} key=${done} />`}
  <//>`;
}

function Rows({ branch, refusal }) {
  const nameOf = useResourceNames();
  const counts = `${count(refusal.rows_total, "row")} written, ${refusal.rows_dirty} of them dirty`;
  return html`<${Panel} title=${nameOf(branch.resource)} beside=${html`<span class="muted">${counts}</span>`}>
    <p>${refusal.error}</p>
    ${refusal.rows.length === 0 && html`<${Empty}>This branch lists no rows.<//>`}
    ${refusal.rows.map((row) => html`<${Row} row=${row} key=${`${row.table} ${row.key}`} />`)}
    ${refusal.rows_total > refusal.rows.length && refusal.rows.length > 0 &&
      html`<p class="muted">${count(refusal.rows_total - refusal.rows.length, "row")} more, not listed.</p>`}
  <//>`;
}

/** A row's columns beside each other: before, after, current. */
function Row({ row }) {
  return html`<div class="scroll"><table class="images">
    <caption><b>${row.table} ${row.key}</b> <${Badge} word=${row.standing} /></caption>
    <thead><tr><th>column</th><th>before<small>what the transaction found</small></th>
      <th>after<small>what it wrote</small></th>
      <th>current<small>what was there at the refusal</small></th></tr></thead>
    <tbody>${row.columns.map((column) => html`<tr key=${column.name}
        class=${column.current === column.after ? "" : "dirty"}>
      <th scope="row">${column.name}</th>
      <td><${Value} value=${column.before} /></td>
      <td class=${column.after === column.before ? "" : "changed"}><${Value} value=${column.after} /></td>
      <td class=${column.current === column.after ? "" : "other"}><${Value} value=${column.current} /></td>
    </tr>`)}</tbody></table></div>`;
}

const Value = ({ value }) =>
  value === null ? html`<i class="muted">null</i>` : html`<span class="value">${value}</span>`;

function Answer({ xid, branch, refusal, setDone }) {
  // The coordinator knows no clean rows of other modes than AT.
  const answers = ANSWERS.filter(([name]) => name !== "restore_clean" || branch.mode === "at");
  const [chosen, setChosen] = useState(answers[0][0]);
  const [reason, setReason] = useState("");
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  if (!mayAct()) {
    return html`<${Panel} title="Answers">${answers.map(([name, title, effect]) => html`<div key=${name}>
      <h3>${title}</h3><p>${effect}</p><${Effects} name=${name} refusal=${refusal} /></div>`)}
      <p class="muted">A viewer sees; an operator answers.</p><//>`;
  }
  const submit = async (event) => {
    event.preventDefault();
    try {
      const path = `${transactionPath(xid)}/branches/${encodeURIComponent(branch.id)}/resolve`;
      await post(path, { resolution: chosen, reason });
      setDone(Date.now());
    } catch (caught) {
      setProblem(caught);
    }
  };
  return html`<${Panel} title="Answer"><form class="answer" onSubmit=${submit}>
    <div class="answers">${answers.map(([name, title, effect]) => html`<label key=${name}
        class=${chosen === name ? "chosen" : ""}>
      <input type="radio" name="resolution" value=${name} checked=${chosen === name}
        onChange=${() => setChosen(name)} />
      <h3>${title}</h3><p>${effect}</p><${Effects} name=${name} refusal=${refusal} />
    </label>`)}</div>
    <label class="reason">Reason, for the audit log
      <input name="reason" required maxlength="500" value=${reason}
        onInput=${(event) => setReason(event.target.value)} /></label>
    <${ProblemNote} problem=${problem} />
    <button type="submit" class=${`act ${chosen === "force_before" ? "danger" : ""}`}>
      ${answers.find(([name]) => name === chosen)?.[1]}</button>
  </form><//>`;
}

/** What an answer does to each listed row and to held events. */
function Effects({ name, refusal }) {
  const events = refusal.events;
  return html`<ul class="effects">
    ${refusal.rows.map((row) => html`<li key=${`${row.table} ${row.key}`}>
      <b>${row.table} ${row.key}</b> ${CHANGES[row[`on_${name}`]] ?? "as the process decides"}</li>`)}
    ${events?.held > 0 && html`<li>${count(events.held, "held event")}
      ${events[`on_${name}`] === "released" ? " sent" : " dropped"}</li>`}
  </ul>`;
}

/** The lines that the audit log has about a transaction. */
function AuditLines({ xid }) {
  const [state, setState] = useState(/** @type {any} */ ({ page: null, problem: null }));
  useEffect(() => {
    get(`/api/v1/audit?xid=${encodeURIComponent(number(xid))}`).then(
      (page) => setState({ page, problem: null }),
      (problem) => setState({ page: null, problem }),
    );
  }, [xid]);
  const { page, problem } = state;
  return html`<${Panel} title="Audit log">
    <${ProblemNote} problem=${problem} />
    ${page?.is_kept === false && html`<${Empty}>This coordinator keeps no file: the lines are in its log.<//>`}
    ${page?.items.map((line) => html`<p class="line" key=${line.id + line.stage}>
      <time>${moment(line.at)}</time> <b>${line.operator}</b> <span>${words(line.action)} ${line.stage}</span>
      <span>${line.detail}</span> <span>${line.outcome}</span></p>`)}
  <//>`;
}
