import { isDeepStrictEqual } from "node:util";
import type { License } from "../../protocol/documents/claims.ts";
import type { JsonObject } from "../../protocol/values/values.ts";

/** Desired result of setup. */
export interface Wanted {
  /** Members of the local settings; null removes one. */
  readonly changes: JsonObject;
  /** The network of these settings; null removes it, undefined keeps it. */
  readonly network: JsonObject | null | undefined;
  readonly license: { readonly text: string; readonly claims: License } | undefined;
}

/** Returns changed fields that a running agent has not loaded. Pure. */
export function outwardOf(names: readonly string[]): readonly string[] {
  return names.filter((name) => name !== "network");
}

/** Reports whether two JSON values are equal, regardless of the order of their members. Pure. */
export function isSame(one: unknown, other: unknown): boolean {
  return isDeepStrictEqual(JSON.parse(JSON.stringify(one)), JSON.parse(JSON.stringify(other)));
}
