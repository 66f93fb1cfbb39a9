import { z } from "zod";

/** What is looked at, in the order in which it is shown. */
export const CheckName = z.enum([
  "agent",
  "dns",
  "proxy",
  "tcp",
  "tls",
  "http",
  "clock",
  "captive-portal",
  "udp",
  "mtu",
  "tunnel",
]);
export type CheckName = z.infer<typeof CheckName>;

/** What a check came to; `fix` says what a person can do. A skipped one says why it was not done. */
export const NetworkCheck = z.object({
  target: z.enum(["node", "control-plane", "gateway"]),
  /** The origin of the control plane, or the gateway's FQDN. */
  name: z.string().max(512),
  /** Of a gateway: the path; empty for the built-in one. */
  path: z.string().max(128).optional(),
  check: CheckName,
  status: z.enum(["pass", "fail", "skip"]),
  message: z.string().max(4096),
  fix: z.string().max(4096).optional(),
});
export type NetworkCheck = z.infer<typeof NetworkCheck>;

/** All checks, and whether none of them failed. */
export const NetworkReport = z.object({
  schema: z.literal(1),
  verdict: z.enum(["pass", "fail"]),
  checks: z.array(NetworkCheck).max(10_000),
});
export type NetworkReport = z.infer<typeof NetworkReport>;

/** A check without what it is about. */
export type Finding = Pick<NetworkCheck, "check" | "status" | "message" | "fix">;

export function passed(check: CheckName, message: string): Finding {
  return { check, status: "pass", message };
}

export function failed(check: CheckName, message: string, fix: string): Finding {
  return { check, status: "fail", message, fix };
}

export function skipped(check: CheckName, message: string): Finding {
  return { check, status: "skip", message };
}
