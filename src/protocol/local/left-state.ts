import type { DocumentName, NodeIdentity } from "../documents/claims.ts";
import type { JsonObject } from "../values/values.ts";

/** What reading a file of the state came to; `unreadable` is for whoever asks, and the others for everybody. */
export type FileStanding = "absent" | "good" | "recovered" | "lost" | "unreadable";

/** What the local settings say that matters to who looks from outside, or why they cannot be used. */
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

/** What an agent left on disk, read without it and without changing anything. */
export interface LeftState {
  readonly settings: SettingsStanding;
  readonly files: readonly { readonly file: string; readonly is: FileStanding }[];
  readonly node: NodeIdentity | undefined;
  readonly documents: readonly LeftDocument[];
  /** Whether a change of the network is neither proven nor taken back; undefined where that cannot be seen. */
  readonly hasPendingChange: boolean | undefined;
}

/** A document in force; its body may hold secrets. */
export interface LeftDocument {
  readonly name: DocumentName;
  readonly version: number;
  /** Unix milliseconds. */
  readonly receivedAt: number;
  readonly refused: number | undefined;
  readonly body: JsonObject;
}
