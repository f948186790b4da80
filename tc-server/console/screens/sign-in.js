// Sign-in: the token goes to the coordinator once, and the browser keeps a cookie in its place.
import { useState } from "../vendor/hooks.js";
import { signIn } from "../lib/api.js";
import { ProblemNote, html } from "../lib/parts.js";

export function SignIn() {
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const submit = async (event) => {
    event.preventDefault();
    try {
      await signIn(token.trim());
    } catch (caught) {
      setProblem(caught);
    }
  };
  return html`<main class="sign-in"><form class="panel" onSubmit=${submit}>
    <h1>Handfast</h1>
    <p class="muted">Sign in with the token of a viewer or an operator.</p>
    <label>Token
      <input type="password" name="token" autocomplete="current-password" required autofocus
        value=${token} onInput=${(event) => setToken(event.target.value)} /></label>
    <${ProblemNote} problem=${problem} />
    <button type="submit" class="act">Sign in</button>
    <p class="muted">A token is drawn with <code>handfast token new --name alice --role operator</code>.
      The browser is signed in for twelve hours, and does not keep the token.</p>
  </form></main>`;
}
