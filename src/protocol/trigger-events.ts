/** The trigger events this build answers, for help and completion; the set of names on the wire stays open. */
export const triggerEvents = [
  "config-show",
  "container-exec",
  "container-image",
  "container-logs",
  "container-status",
  "datastore-manager",
  "flows",
  "gateway-perf",
  "gateway-ping",
  "gateway-routes",
  "network-keep",
  "network-revert",
  "nat-hits",
  "node-push-logs",
  "node-reboot",
  "node-restart-service",
  "node-upgrade",
  "plan",
  "rollback",
  "speed-test",
  "tg-arping",
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
