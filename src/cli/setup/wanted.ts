import { isDeepStrictEqual } from "node:util";
import type { License } from "../../protocol/documents/claims.ts";
import type { JsonObject } from "../../protocol/values/values.ts";

/** What is to be in force at the end. */
export interface Wanted {
  /** Members of the local settings; null takes one away. */
  readonly changes: JsonObject;
  /** The network among them; null takes it away, undefined leaves it. */
  readonly network: JsonObject | null | undefined;
  readonly license: { readonly text: string; readonly claims: License } | undefined;
}

/** Of the members that change, those that a running agent does not have yet. Pure. */
export function outwardOf(names: readonly string[]): readonly string[] {
  return names.filter((name) => name !== "network");
}

/** Reports whether two JSON values are the same, whatever the order of their members. Pure. */
export function isSame(one: unknown, other: unknown): boolean {
  return isDeepStrictEqual(JSON.parse(JSON.stringify(one)), JSON.parse(JSON.stringify(other)));
}
