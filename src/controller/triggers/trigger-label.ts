import { dataStoreLabel, DATA_STORE_EVENT } from "./data-store-event.ts";
import { containerNamed, type ExecBody } from "../containers/exec-section.ts";

const LABELS: Readonly<Record<string, string>> = {
  "node-restart-service": "Node Restart",
  "node-reboot": "Node Reboot",
  "node-upgrade": "Node Upgrade",
  bgp: "BGP",
  "vpn-nats": "VPN NATs",
  "vpn-routes": "VPN Routes",
  "tg-nc": "Port Check",
};

/** Returns the audit label of a trigger event: `Ping` for `tg-ping`. */
export function triggerLabel(event: string): string {
  if (Object.hasOwn(LABELS, event)) return LABELS[event] ?? event;
  const words = event.replace(/^tg-/, "").split("-");
  return words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join(" ");
}

/** Returns the audit label of one call: a container's name, or the action on the data store. */
export function callLabel({ event, body }: { readonly event: string; readonly body: unknown }, exec: ExecBody): string {
  if (event === DATA_STORE_EVENT) return dataStoreLabel(body);
  return containerNamed(exec, event) === undefined ? triggerLabel(event) : event;
}

/** Events that only read the state of a node. */
const READS: ReadonlySet<string> = new Set([
  "cluster-health",
  "config-show",
  "container-status",
  "errors",
  "gateway-routes",
  "network-status",
  "plan",
  "status",
  "vpn-nats",
  "vpn-routes",
  "why",
]);
/** Actions that only read, of events that can also change things. The first entry is the default action. */
const READING_ACTIONS: Readonly<Partial<Record<string, readonly [string | undefined, ...string[]]>>> = {
  "container-image": [undefined, "list"],
  [DATA_STORE_EVENT]: ["LIST", "TASKS"],
  flows: ["read"],
  "tg-capture": ["status"],
  "nat-hits": [undefined, "GET"],
};

/** Reports whether a call only reads and is not audited. A container cannot have an event's name. */
export function isRead({ event, body }: { readonly event: string; readonly body: unknown }): boolean {
  const actions = Object.hasOwn(READING_ACTIONS, event) ? READING_ACTIONS[event] : undefined;
  if (actions === undefined) return READS.has(event);
  const action: unknown = typeof body === "object" && body !== null && "action" in body ? body.action : actions[0];
  return actions.some((read) => read !== undefined && read === action);
}
