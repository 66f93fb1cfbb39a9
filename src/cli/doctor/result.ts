import { z } from "zod";
import { Text64, Text4096 } from "../../protocol/values/values.ts";

/** Result of a check: `code` is for programs, and `ok` if it passed. The message of a skipped check names what could not be read, and why. */
export const DoctorCheck = z.object({
  family: z.string().max(32),
  name: z.string().max(300),
  status: z.enum(["pass", "warn", "fail", "skip"]),
  code: Text64,
  message: z.string().max(8192),
  fix: Text4096.optional(),
});
export type DoctorCheck = z.infer<typeof DoctorCheck>;

export const DoctorReport = z.object({
  schema: z.literal(1),
  verdict: z.enum(["ok", "degraded", "failed"]),
  checks: z.array(DoctorCheck).max(20_000),
});
export type DoctorReport = z.infer<typeof DoctorReport>;

/** A check without its family. */
export type Check = Omit<DoctorCheck, "family">;

export function pass(name: string, message: string): Check {
  return { name, status: "pass", code: "ok", message };
}

export function warn(name: string, code: string, message: string, fix: string): Check {
  return { name, status: "warn", code, message, fix };
}

export function fail(name: string, code: string, message: string, fix: string): Check {
  return { name, status: "fail", code, message, fix };
}

export function skip(name: string, code: string, message: string): Check {
  return { name, status: "skip", code, message };
}

/** Returns `failed` if a check failed, `degraded` if one warns. */
export function verdictOf(checks: readonly Pick<DoctorCheck, "status">[]): DoctorReport["verdict"] {
  if (checks.some(({ status }) => status === "fail")) return "failed";
  return checks.some(({ status }) => status === "warn") ? "degraded" : "ok";
}
