import type { DocumentName, NodeIdentity } from "../documents/claims.ts";
import type { JsonObject } from "../values/values.ts";

/** Result of reading a state file. `unreadable` depends on the caller's permissions. */
export type FileStanding = "absent" | "good" | "recovered" | "lost" | "unreadable";

/** Local settings relevant to an outside check, or the reason why they are invalid. */
export type SettingsStanding =
  | {
      readonly isGood: true;
      /** The unit that supervises the agent. */
      readonly unit: string | undefined;
      readonly overlay: { readonly stateDir: string; readonly runDir: string };
      readonly engineSocket: string | undefined;
      readonly hasProxy: boolean;
      /** Addresses that are set by hand, by the name that they are for. */
      readonly hosts?: Readonly<Record<string, readonly string[]>> | undefined;
      /** The problem of the file: members that were ignored, or a copy that is used in its place. */
      readonly problem?: { readonly code: string; readonly message: string };
    }
  | { readonly isGood: false; readonly code: string; readonly message: string };

/** State that an agent left on disk, read without an agent and without changes. */
export interface LeftState {
  readonly settings: SettingsStanding;
  readonly files: readonly { readonly file: string; readonly is: FileStanding }[];
  readonly node: NodeIdentity | undefined;
  readonly documents: readonly LeftDocument[];
  /** Whether a network change is pending; undefined if that cannot be read. */
  readonly hasPendingChange: boolean | undefined;
}

/** An applied document; its body may contain secrets. */
export interface LeftDocument {
  readonly name: DocumentName;
  readonly version: number;
  /** Unix milliseconds. */
  readonly receivedAt: number;
  readonly refused: number | undefined;
  readonly body: JsonObject;
}
