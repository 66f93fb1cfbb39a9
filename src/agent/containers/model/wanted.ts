import type { CreateBody, UpdateBody } from "../../../host/engine/engine.ts";
import type { ContainerSpec } from "../../../protocol/sections/exec/config.ts";
import type { Goal } from "./standing.ts";
import type { Upheld } from "./upheld.ts";

/** A definition as the keeper carries it out. */
export interface Wanted {
  readonly spec: ContainerSpec;
  readonly goal: Goal;
  /** Undefined where the definition cannot be carried out. */
  readonly blueprint: Blueprint | undefined;
  /** Of the documents it is in, so that the next ones can be told from them. */
  readonly version: string;
}

/** How a container of a definition is made. */
export interface Blueprint {
  readonly hash: string;
  readonly limitsHash: string;
  readonly image: {
    readonly reference: string;
    readonly repository: string;
    readonly isFromRegistry: boolean;
    readonly isPinned: boolean;
  };
  /** The body of the request, with this nonce among the labels. */
  readonly bodyOf: (nonce: string) => CreateBody;
  readonly update: UpdateBody;
  readonly memoryHighBytes: number;
  /** Undefined if the engine does not report settings in a form that can be compared. */
  readonly upheld: Upheld | undefined;
  /** What of the definition is served otherwise than it is written. */
  readonly warnings: readonly string[];
  /** What of the machine it asks for, as `privilegesText` writes it. */
  readonly privileges: string;
  /** On the container network; kept for the definition. */
  readonly address: string | undefined;
  /** Why it must not be started as the machine is now. */
  readonly check: () => Promise<string | undefined>;
}
