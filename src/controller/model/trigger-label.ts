import { dataStoreLabel, DATA_STORE_EVENT } from "./data-store.ts";
import { containerNamed, type ExecBody } from "./exec-section.ts";

const LABELS: Readonly<Record<string, string>> = {
  "node-restart-service": "Node Restart",
  "node-reboot": "Node Reboot",
  "node-upgrade": "Node Upgrade",
  bgp: "BGP",
  "vpn-nats": "VPN NATs",
  "vpn-routes": "VPN Routes",
  "tg-nc": "Port Check",
};

/** A trigger event as people read it in the audit trail: `tg-ping` is `Ping`. */
export function triggerLabel(event: string): string {
  if (Object.hasOwn(LABELS, event)) return LABELS[event] ?? event;
  const words = event.replace(/^tg-/, "").split("-");
  return words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join(" ");
}

/** The same of one call: a container is called by its name, and the data store says what is done with it. */
export function callLabel({ event, body }: { readonly event: string; readonly body: unknown }, exec: ExecBody): string {
  if (event === DATA_STORE_EVENT) return dataStoreLabel(body);
  return containerNamed(exec, event) === undefined ? triggerLabel(event) : event;
}

/** Events that only show what the node knows already: opening a page may call them at any time. */
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
/** The same of events that also change things, by the value of their `action`; the first is what they do without one. */
const READING_ACTIONS: Readonly<Partial<Record<string, readonly [string | undefined, ...string[]]>>> = {
  "container-image": [undefined, "list"],
  [DATA_STORE_EVENT]: ["LIST", "TASKS"],
  flows: ["read"],
  "tg-capture": ["status"],
  "nat-hits": [undefined, "GET"],
};

/** Reports whether a call only reads, and so leaves no trace in the audit trail. A container of an event's name cannot be. */
export function isRead({ event, body }: { readonly event: string; readonly body: unknown }): boolean {
  const actions = Object.hasOwn(READING_ACTIONS, event) ? READING_ACTIONS[event] : undefined;
  if (actions === undefined) return READS.has(event);
  const said: unknown = typeof body === "object" && body !== null && "action" in body ? body.action : actions[0];
  return actions.some((action) => action !== undefined && action === said);
}
