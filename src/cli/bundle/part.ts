import type { Exec } from "../../host/process/exec.ts";
import type { Reader } from "../../host/reader.ts";
import type { LeftState } from "../../protocol/local/left-state.ts";
import type { Call } from "../frame/verb.ts";

/** What parts are made with. */
export interface PartTools {
  readonly call: Call;
  readonly exec: Exec;
  readonly reader: Reader;
  readonly left: LeftState;
  /** No part is read any further: more would not have room. */
  readonly mostBytes: number;
  readonly signal: AbortSignal;
}

/** A file of the bundle, before it is made. */
export interface PartSpec {
  readonly name: string;
  /** What it is and how it is made, for the README. */
  readonly about: string;
  /** Logs are cut first where there is too much, and keep their end. */
  readonly isLog?: true;
  make(tools: PartTools): Promise<string>;
}

/** One that was made. */
export interface Part {
  readonly name: string;
  readonly about: string;
  readonly isLog: boolean;
  readonly text: string;
  /** Bytes of its beginning that were left out. */
  readonly cutBytes: number;
}

/** Parts that could not be had for the same reason, so that it is told once. */
export function byReason(
  missing: readonly MissingPart[],
): readonly { readonly names: readonly string[]; readonly reason: string }[] {
  const reasons = [...new Set(missing.map(({ reason }) => reason))];
  return reasons.map((reason) => ({
    reason,
    names: missing.filter((one) => one.reason === reason).map(({ name }) => name),
  }));
}

/** One that could not be. */
export interface MissingPart {
  readonly name: string;
  readonly reason: string;
}
