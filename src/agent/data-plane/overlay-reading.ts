import type { OverlayCounters, OverlayStatus, OverlayView } from "../../host/overlay/client.ts";
import type { Config, NodeDocument } from "../../protocol/documents/documents.ts";
import type { ConnectorView, ItemReason, OverlayState } from "../../protocol/local/overlay.ts";
import type { Issue, Reason } from "../../protocol/documents/reconcile.ts";
import type { Connector } from "../../protocol/sections/connectors/connectors.ts";
import type { ConfigIssue } from "../../protocol/sections/common/issue.ts";
import type { DomainView } from "../../protocol/documents/domain-view.ts";
import type { ParsedSections } from "../applying/parsed-sections.ts";
import { defined } from "../../lib/defined.ts";

/** Desired and observed state of the overlay at one moment. */
export interface OverlayReading {
  /** The effective configuration and its node. */
  readonly config: Config;
  readonly node: NodeDocument | undefined;
  readonly domain: DomainView | undefined;
  readonly parsed: ParsedSections;
  readonly status: OverlayStatus;
  readonly view: OverlayView;
  /** Undefined if the overlay does not answer. */
  readonly counters: OverlayCounters | undefined;
  /** This machine's IPv4 addresses by link. */
  readonly addresses: ReadonlyMap<string, readonly string[]>;
  /** All reasons. */
  readonly why: readonly Reason[];
}

/** The overlay's state in the local API's form. */
export function overlayStateOf({ state, since, pid, reason }: OverlayStatus): OverlayState {
  return {
    state,
    since,
    ...defined({ pid }),
    ...(reason === undefined ? {} : { reason: reason.slice(0, 1024) }),
  };
}

/** Returns the overlay's state, and whether it answers. */
export function overlayState({ status, counters }: OverlayReading): OverlayState {
  const state = overlayStateOf(status);
  return state.state === "up" && counters === undefined ? { ...state, reason: "it does not answer" } : state;
}

/** Writes a connector's listen address in the local API's form. */
export function placeOf({ transport, port, listen }: Connector): Omit<NonNullable<ConnectorView["listen"]>, "bound"> {
  return {
    transport,
    port,
    ...(listen.at === "nic" ? { nic: listen.nic } : {}),
    ...(listen.at === "address" ? { address: listen.address } : {}),
  };
}

/** Returns why an item is off: by itself or with the node. */
export function switchedOff(
  { node }: OverlayReading,
  isEnabled: boolean,
): { readonly state: "off"; readonly reason?: ItemReason } | undefined {
  if (!isEnabled) return { state: "off" };
  if (node?.state !== "INACTIVE") return undefined;
  return { state: "off", reason: { code: "inactive", message: "the node is INACTIVE" } };
}

/** Returns why a valid item is not applied yet: the overlay, its section, or a pending pass. */
export function whyNotYet({ status, why }: OverlayReading, section: "connectors" | "services"): ItemReason {
  if (status.state === "down") {
    return { code: "overlay-down", message: (status.reason ?? "the overlay is not running").slice(0, 2048) };
  }
  const whole = why.find((reason) => reason.section === section && reason.item === undefined);
  if (whole !== undefined) return { code: whole.code, message: whole.message.slice(0, 2048) };
  return { code: "pending", message: "it is about to be applied" };
}

/** Reports whether a notice concerns a field that is not applied. */
export const isIgnored = ({ code }: ConfigIssue): boolean => code === "E_UNSUPPORTED_ON_AGENT";
/** Reports whether a service's target does not answer. */
export const isDown = ({ code }: ItemReason): boolean => code === "service-down";

/** Returns the first reason of each item by path; an issue has the item's path or that of a field. */
export function reasonsByItem(
  issues: readonly Issue[],
  items: readonly { readonly path: string }[],
): ReadonlyMap<string, ItemReason> {
  const paths = new Set(items.map(({ path }) => path));
  const reasons = new Map<string, ItemReason>();
  for (const issue of issues) {
    const path = paths.has(issue.path) ? issue.path : issue.path.slice(0, issue.path.lastIndexOf("."));
    if (!reasons.has(path)) reasons.set(path, { code: issue.code, message: textOf(issue, path) });
  }
  return reasons;
}

/** Returns the issues of each rejected item by id: the first code, and all texts. */
export function rejectedItems(rejected: readonly ConfigIssue[]): ReadonlyMap<string, ItemReason> {
  const reasons = new Map<string, ItemReason>();
  for (const issue of rejected.filter(({ id }) => id !== "")) {
    const before = reasons.get(issue.id);
    const text = textOf(issue, itemPathOf(issue));
    const message = before === undefined ? text : `${before.message}; ${text}`;
    reasons.set(issue.id, { code: before?.code ?? issue.code, message: message.slice(0, 2048) });
  }
  return reasons;
}

/** Returns the issue of the section as a whole. */
export function issuesOfSection(issues: readonly ConfigIssue[]): Issue[] {
  return issues
    .filter(({ id }) => id === "")
    .slice(0, 100)
    .map(({ path, code, message }) => ({ path, code, message }));
}

/** Returns the text of an issue without the path of its item, which stands beside it. */
function textOf({ path, message }: Issue, itemPath: string): string {
  const text = message.startsWith(`${path}: `) ? message.slice(path.length + 2) : message;
  return path.length > itemPath.length ? `${path.slice(itemPath.length + 1)}: ${text}` : text;
}

function itemPathOf({ path, id }: ConfigIssue): string {
  const [section = ""] = path.split(".");
  const inMap = `${section}.items.${id}`;
  if (path === inMap || path.startsWith(`${inMap}.`)) return inMap;
  return /^[^.]+\.[^.]+\.\d+/.exec(path)?.[0] ?? path;
}
