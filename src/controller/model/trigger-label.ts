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
