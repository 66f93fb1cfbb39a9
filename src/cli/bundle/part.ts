import type { Exec } from "../../host/process/exec.ts";
import type { Reader } from "../../host/reader.ts";
import type { LeftState } from "../../protocol/local/left-state.ts";
import type { Call } from "../frame/verb.ts";

/** Context for making parts. */
export interface PartTools {
  readonly call: Call;
  readonly exec: Exec;
  readonly reader: Reader;
  readonly left: LeftState;
  /** Maximum bytes read for one part. */
  readonly mostBytes: number;
  readonly signal: AbortSignal;
}

/** Declares a file of the bundle. */
export interface PartSpec {
  readonly name: string;
  /** Content and origin, for the README. */
  readonly about: string;
  /** Logs are cut first if the bundle is too large, and keep their end. */
  readonly isLog?: true;
  make(tools: PartTools): Promise<string>;
}

/** A part with its content. */
export interface Part {
  readonly name: string;
  readonly about: string;
  readonly isLog: boolean;
  readonly text: string;
  /** Bytes cut from its start. */
  readonly cutBytes: number;
}

/** Groups missing parts by reason. */
export function byReason(
  missing: readonly MissingPart[],
): readonly { readonly names: readonly string[]; readonly reason: string }[] {
  const reasons = [...new Set(missing.map(({ reason }) => reason))];
  return reasons.map((reason) => ({
    reason,
    names: missing.filter((one) => one.reason === reason).map(({ name }) => name),
  }));
}

/** A part that could not be made. */
export interface MissingPart {
  readonly name: string;
  readonly reason: string;
}
