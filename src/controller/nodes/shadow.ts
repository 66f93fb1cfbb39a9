import { InputError } from "../../errors.ts";
import { SHADOW_MAX_BYTES, type ShadowMap } from "../../protocol/values/shadow.ts";

/** Reported part of a shadow and its version from the node; version 0 means that nothing was reported yet. */
export interface ReportedShadow {
  readonly version: number;
  readonly reported: ShadowMap;
}

export interface ShadowReport {
  readonly version: number;
  readonly base: number;
  readonly set: ShadowMap;
  readonly unset: readonly string[];
}

/**
 * Applies a report. A `base` of 0 replaces the stored shadow. Pure.
 * @throws {InputError} `out-of-sync` if the base is not the stored version; `invalid-body` if the version does not rise or the shadow
 *   exceeds its limit
 */
export function applyReport(stored: ReportedShadow, report: ShadowReport): ReportedShadow {
  if (report.base !== 0 && report.base !== stored.version) {
    throw new InputError("out-of-sync", `base ${report.base} is not the stored version`, {
      details: { version: stored.version },
    });
  }
  if (report.version <= report.base) {
    throw new InputError("invalid-body", `version: ${report.version} does not rise above base ${report.base}`);
  }
  const merged = new Map(Object.entries(report.base === 0 ? {} : stored.reported));
  for (const key of report.unset) merged.delete(key);
  for (const [key, value] of Object.entries(report.set)) merged.set(key, value);
  const reported: ShadowMap = Object.fromEntries(merged);
  const size = Buffer.byteLength(JSON.stringify(reported));
  if (size > SHADOW_MAX_BYTES) {
    throw new InputError("invalid-body", `set: the reported shadow would be ${size} bytes, over ${SHADOW_MAX_BYTES}`);
  }
  return { version: report.version, reported };
}
