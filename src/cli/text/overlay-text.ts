import { formatSpan } from "../../lib/text/durations.ts";
import type { ConnectorView, ItemReason, OverlayState } from "../../protocol/local/overlay.ts";
import type { Issue } from "../../protocol/documents/reconcile.ts";
import { wrap, type View, type Style, type Paint } from "../frame/terminal.ts";

/** Reports whether the overlay program serves, since when, and if not, why; `now` in Unix milliseconds. */
export function overlayText({ state, since, pid, reason }: OverlayState, now: number, paint: Paint): string {
  const span = formatSpan(now - since);
  switch (state) {
    case "off":
      return "off: no service, connector or gateway asks for it";
    case "up": {
      const process = pid === undefined ? "" : `, process ${pid}`;
      return `${paint("green", "up")} ${span}${process}${reason === undefined ? "" : `: ${paint("yellow", reason)}`}`;
    }
    case "down":
      return `${paint("red", "down")} ${span}: ${reason ?? "it is not running"}`;
  }
}

const STYLES: Readonly<Record<string, Style>> = {
  listening: "green",
  offered: "green",
  up: "green",
  connected: "green",
  connecting: "yellow",
  pending: "yellow",
  waiting: "yellow",
  unknown: "dim",
  off: "dim",
  failed: "red",
  rejected: "red",
  unreachable: "red",
  down: "red",
};

/** Colours a state. */
export function stateText(state: string, paint: Paint): string {
  const style = STYLES[state];
  return style === undefined ? state : paint(style, state);
}

/** Formats a connector's address, as far as it is known: `eth0:8080`. */
export function placeText({ nic, address, port }: Omit<NonNullable<ConnectorView["listen"]>, "bound">): string {
  return `${nic ?? address ?? "any"}:${port}`;
}

/** Reason of an item's state if it is not the configured one. */
export function reasonText({ code, message }: ItemReason, paint: Paint): string {
  return `${paint("yellow", code)} ${message}`;
}

/** Reports whether nothing of a list needs attention. */
export function isWell(
  { overlay, issues }: { readonly overlay: OverlayState; readonly issues: readonly Issue[] },
  items: readonly Standing[],
): boolean {
  if (overlay.state === "down" || overlay.reason !== undefined || issues.length > 0) return false;
  return items.every(({ state, reason, ignored }) => state === "off" || (reason ?? ignored) === undefined);
}

interface Standing {
  readonly state: string;
  readonly reason?: ItemReason | undefined;
  readonly ignored?: readonly ItemReason[] | undefined;
}

/** Text of an item of a list: a line with its name and state, and details below. */
export interface ItemText {
  readonly head: string;
  readonly details: readonly string[];
}

interface ListText {
  readonly overlay: OverlayState;
  readonly issues: readonly Issue[];
  readonly items: readonly ItemText[];
  /** Text without any item. */
  readonly none: string;
}

/** Formats the state of the overlay, the issues of the section, and its items. Wraps lines between words to `columns`. */
export function listText({ overlay, issues, items, none }: ListText, { now, columns, paint }: View): string {
  const wrong = issues.map(({ path, code, message }) => {
    const text = message.startsWith(`${path}: `) ? message.slice(path.length + 2) : message;
    return { head: `${path} ${reasonText({ code, message: text }, paint)}`, details: [] };
  });
  const shown = [{ head: `overlay ${overlayText(overlay, now, paint)}`, details: [] }, ...wrong, ...items];
  if (items.length === 0) shown.push({ head: none, details: [] });
  return shown
    .flatMap((item) => linesOf(item, columns))
    .map((line) => `${line.trimEnd()}\n`)
    .join("");
}

const INDENT = "  ";

/** Details are indented by one level, continued lines of a heading by two. */
function linesOf({ head, details }: ItemText, columns: number): readonly string[] {
  const [first = "", ...rest] = wrap(head, columns - 2 * INDENT.length);
  const below = details.flatMap((detail) => wrap(detail, columns - INDENT.length));
  return [first, ...rest.map((line) => INDENT + INDENT + line), ...below.map((line) => INDENT + line)];
}
