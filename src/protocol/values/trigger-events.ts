/** The trigger events this build answers, for help and completion; the set of names on the wire stays open. */
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

/**
 * How long a watched stream may run, in milliseconds: ten minutes of a tool's work and what it loses on the way. A ping of 600
 * packets takes up to 15 s more, since the pauses between them are never shorter than a second.
 */
export const STREAM_DEADLINE_MS = 660_000;
