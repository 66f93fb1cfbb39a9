import type { OverlayCounters, OverlayStatus, OverlayView } from "../../host/overlay/client.ts";
import type { Config, NodeDocument } from "../../protocol/documents/documents.ts";
import type { ConnectorView, ItemReason, OverlayState } from "../../protocol/local/overlay.ts";
import type { Issue, Reason } from "../../protocol/documents/reconcile.ts";
import type { Connector } from "../../protocol/sections/connectors/connectors.ts";
import type { ConfigIssue } from "../../protocol/sections/common/issue.ts";
import type { DomainView } from "../../protocol/documents/domain-view.ts";
import type { ParsedSections } from "../applying/parsed-sections.ts";
import { defined } from "../../lib/defined.ts";

/** What is asked for and what is there, at one moment. */
export interface OverlayReading {
  /** The effective configuration, and the node it is for. */
  readonly config: Config;
  readonly node: NodeDocument | undefined;
  readonly domain: DomainView | undefined;
  readonly parsed: ParsedSections;
  readonly status: OverlayStatus;
  readonly view: OverlayView;
  /** Undefined while no overlay answers. */
  readonly counters: OverlayCounters | undefined;
  /** This machine's IPv4 addresses by link. */
  readonly addresses: ReadonlyMap<string, readonly string[]>;
  /** All that is not as it should be. */
  readonly why: readonly Reason[];
}

/** The overlay's state in the words of the local API. */
export function overlayStateOf({ state, since, pid, reason }: OverlayStatus): OverlayState {
  return {
    state,
    since,
    ...defined({ pid }),
    ...(reason === undefined ? {} : { reason: reason.slice(0, 1024) }),
  };
}

/** The overlay's state, and whether it answers. */
export function overlayState({ status, counters }: OverlayReading): OverlayState {
  const state = overlayStateOf(status);
  return state.state === "up" && counters === undefined ? { ...state, reason: "it does not answer" } : state;
}

/** Where a connector is to listen, in the words of the local API. */
export function placeOf({ transport, port, listen }: Connector): Omit<NonNullable<ConnectorView["listen"]>, "bound"> {
  return {
    transport,
    port,
    ...(listen.at === "nic" ? { nic: listen.nic } : {}),
    ...(listen.at === "address" ? { address: listen.address } : {}),
  };
}

/** Whether an item is off, by itself or with the node. */
export function switchedOff(
  { node }: OverlayReading,
  isEnabled: boolean,
): { readonly state: "off"; readonly reason?: ItemReason } | undefined {
  if (!isEnabled) return { state: "off" };
  if (node?.state !== "INACTIVE") return undefined;
  return { state: "off", reason: { code: "inactive", message: "the node is INACTIVE" } };
}

/** Why something that is in order is not there: the overlay, its section, or that the pass has not come to it. */
export function whyNotYet({ status, why }: OverlayReading, section: "connectors" | "services"): ItemReason {
  if (status.state === "down") {
    return { code: "overlay-down", message: (status.reason ?? "the overlay is not running").slice(0, 2048) };
  }
  const whole = why.find((reason) => reason.section === section && reason.item === undefined);
  if (whole !== undefined) return { code: whole.code, message: whole.message.slice(0, 2048) };
  return { code: "pending", message: "it is about to be put into force" };
}

/** Whether a notice says that a field of the item is not in force. */
export const isIgnored = ({ code }: ConfigIssue): boolean => code === "E_UNSUPPORTED_ON_AGENT";
/** Whether the target of a service does not answer. */
export const isDown = ({ code }: ItemReason): boolean => code === "service-down";

/** The first reason of each item, by the item's path; an issue has the path of the item or of one of its fields. */
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

/** What is wrong with each item that was refused, by its id: the code of the first, and the text of all. */
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

/** What is wrong with the section as a whole. */
export function issuesOfSection(issues: readonly ConfigIssue[]): Issue[] {
  return issues
    .filter(({ id }) => id === "")
    .slice(0, 100)
    .map(({ path, code, message }) => ({ path, code, message }));
}

/** What an issue says, without the path of its item: beside the item that is noise. */
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
