// Keys: `/` searches, `j` and `k` move in the list, Enter opens, `?` shows the keys.
import { signal } from "../vendor/signals.js";

/**
 * The list that `j`, `k`, Enter and `x` move in: the last one that was drawn.
 * @type {{ move(by: number): any, open(): any, select(): any } | null}
 */
let list = null;

/** Whether the keys are shown. */
export const keysShown = signal(false);

/** Makes a list the one that keys move in, until the returned function is called. */
export function asList(moves) {
  list = moves;
  return () => {
    if (list === moves) list = null;
  };
}

/** What keys do, for the page that shows them. */
export const KEYS = [
  ["/", "search"],
  ["j, k", "next, previous row"],
  ["Enter", "open the row"],
  ["x", "select the row"],
  ["1 … 9", "go to a screen"],
  ["?", "show the keys"],
  ["Esc", "close, or leave a field"],
];

/** Starts listening. `goTo(number)` opens a screen by its place in the menu. */
export function listen(goTo) {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const field = /** @type {HTMLElement} */ (event.target);
    if (event.key === "Escape") {
      keysShown.value = false;
      field.blur();
      return;
    }
    if (field.closest("input:not([type=checkbox]), textarea, select, dialog")) return;
    if (press(event.key, field, goTo)) event.preventDefault();
  });
}

function press(key, field, goTo) {
  if (key === "/") return focus("[data-search]");
  if (key === "?") return (keysShown.value = true);
  if (key >= "1" && key <= "9") return goTo(Number(key) - 1);
  if (key === "j" || key === "ArrowDown") return list?.move(1);
  if (key === "k" || key === "ArrowUp") return list?.move(-1);
  if (key === "x") return list?.select();
  // A focused button or link keeps its own Enter.
  if (key === "Enter" && !field.closest("a, button, summary")) return list?.open();
  return false;
}

function focus(selector) {
  const field = /** @type {HTMLInputElement | null} */ (document.querySelector(selector));
  field?.focus();
  field?.select();
  return Boolean(field);
}
