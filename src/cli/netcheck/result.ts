import { z } from "zod";
import { Text64, Text128, Text512, Text4096 } from "../../protocol/values/values.ts";
import { defined } from "../../lib/defined.ts";

/** Names of the checks, in the order of the report. */
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

/** Result of a check. `fix` is the remedy; the message of a skipped check is the reason. */
export const NetworkCheck = z.object({
  target: z.enum(["node", "control-plane", "gateway"]),
  /** The origin of the control plane, or the gateway's FQDN. */
  name: Text512,
  /** Path of a gateway; empty for the built-in one. */
  path: Text128.optional(),
  check: CheckName,
  status: z.enum(["pass", "fail", "skip"]),
  message: Text4096,
  /** Reason of a failed check, for programs: `altered`, `refused`, `no-answer`, … */
  code: Text64.optional(),
  fix: Text4096.optional(),
});
export type NetworkCheck = z.infer<typeof NetworkCheck>;

/** All checks, and their verdict: `pass` if none failed. */
export const NetworkReport = z.object({
  schema: z.literal(1),
  verdict: z.enum(["pass", "fail"]),
  checks: z.array(NetworkCheck).max(10_000),
});
export type NetworkReport = z.infer<typeof NetworkReport>;

/** A check without its target. */
export type Finding = Pick<NetworkCheck, "check" | "status" | "message" | "code" | "fix">;

export function passed(check: CheckName, message: string): Finding {
  return { check, status: "pass", message };
}

export function failed(check: CheckName, message: string, fix: string, code?: string): Finding {
  return { check, status: "fail", message, ...defined({ code }), fix };
}

export function skipped(check: CheckName, message: string): Finding {
  return { check, status: "skip", message };
}
