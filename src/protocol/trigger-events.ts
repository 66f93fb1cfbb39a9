/** The trigger events this build answers, for help and completion; the set of names on the wire stays open. */
export const triggerEvents = [
  "node-reboot",
  "node-restart-service",
  "plan",
  "speed-test",
  "tg-nc",
  "tg-ping",
  "tg-traceroute",
  "why",
] as const;
