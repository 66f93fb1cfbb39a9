import type { CreateBody, UpdateBody } from "../../../host/engine/engine.ts";
import type { ContainerSpec } from "../../../protocol/sections/exec/config.ts";
import type { Goal } from "./standing.ts";
import type { Upheld } from "./upheld.ts";

/** A definition in the supervisor's form. */
export interface Wanted {
  readonly spec: ContainerSpec;
  readonly goal: Goal;
  /** Undefined if the definition cannot be carried out. */
  readonly blueprint: Blueprint | undefined;
  /** Versions of the documents that contain it. */
  readonly version: string;
}

/** Blueprint of a definition's container. */
export interface Blueprint {
  readonly hash: string;
  readonly limitsHash: string;
  readonly image: {
    readonly reference: string;
    readonly repository: string;
    readonly isFromRegistry: boolean;
    readonly isPinned: boolean;
  };
  /** Returns the body of the create request, with this nonce as a label. */
  readonly bodyOf: (nonce: string) => CreateBody;
  readonly update: UpdateBody;
  readonly memoryHighBytes: number;
  /** Undefined if the engine does not report settings in a form that can be compared. */
  readonly upheld: Upheld | undefined;
  /** Deviations from the definition. */
  readonly warnings: readonly string[];
  /** Requested privileges, as `privilegesText` writes them. */
  readonly privileges: string;
  /** Address on the container network, reserved for the definition. */
  readonly address: string | undefined;
  /** Reason why it must not start on the machine in its current state. */
  readonly check: () => Promise<string | undefined>;
}
