/** Names of the trigger events that this build answers; newer nodes may answer others. */
export const triggerEvents = [
  "config-show",
  "container-exec",
  "container-image",
  "container-logs",
  "container-status",
  "datastore-manager",
  "dns-health",
  "errors",
  "flows",
  "gateway-latency",
  "gateway-mtr",
  "gateway-perf",
  "gateway-ping",
  "gateway-routes",
  "gateway-traceroute",
  "nat-hits",
  "network-keep",
  "network-revert",
  "network-status",
  "node-debug",
  "node-push-logs",
  "node-reboot",
  "node-restart-service",
  "node-upgrade",
  "outbound-connection-check",
  "plan",
  "repo-connectivity",
  "rollback",
  "speed-test",
  "status",
  "tg-arping",
  "tg-capture",
  "tg-mtr",
  "tg-nc",
  "tg-ping",
  "tg-tcpdump",
  "tg-traceroute",
  "why",
] as const;
export type TriggerEvent = (typeof triggerEvents)[number];

/**
 * Limits a watched stream, in milliseconds: ten minutes of work and a reserve. A ping of 600 packets takes up to 15 s more, since
 * the pauses between packets are never shorter than a second.
 */
export const STREAM_DEADLINE_MS = 660_000;
