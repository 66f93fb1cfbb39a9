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
