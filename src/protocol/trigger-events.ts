/** The trigger events this build answers, for help and completion; the set of names on the wire stays open. */
export const triggerEvents = [
  "config-show",
  "node-reboot",
  "node-restart-service",
  "plan",
  "rollback",
  "speed-test",
  "tg-nc",
  "tg-ping",
  "tg-traceroute",
  "why",
] as const;
