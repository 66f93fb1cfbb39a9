import type { ContainerSpec, ExecConfig } from "../../../protocol/sections/exec/config.ts";
import type { Seen } from "../../containers/supervision/seen.ts";
import type { AddressPlan } from "./addresses.ts";
import type { CapsSeen } from "./caps.ts";
import type { Placement } from "./compile.ts";
import type { ExposureSeen } from "./exposure.ts";

export interface ExecDesired {
  readonly config: ExecConfig;
  /** Definitions that cannot be read; what there is of them stays as it is. */
  readonly unreadable: ReadonlySet<string>;
  /** Definitions that cannot be read either, and say that nothing of them shall run. */
  readonly disabled: ReadonlySet<string>;
}

/** Volumes as far as they are known. */
export interface VolumesSeen {
  /** On record and in use, by name. */
  readonly kept: ReadonlySet<string>;
  /** Whether they were looked after since the agent began, and nothing is due. */
  readonly isSettled: boolean;
  /** What keeps one from being used. */
  readonly troubles: readonly { readonly name: string; readonly reason: string }[];
}

/** What is there, and everything else that decides what a definition becomes. */
export interface ExecActual {
  readonly seen: Seen;
  readonly isActive: boolean;
  /** Of the documents in force. */
  readonly version: string;
  /** Undefined while the engine has not said what the machine has. */
  readonly placement: Omit<Placement, "nonce" | "address"> | undefined;
  readonly addresses: AddressPlan;
  readonly volumes: VolumesSeen;
  /** Why a definition must not be started as the machine is now. */
  readonly check: (spec: ContainerSpec) => Promise<string | undefined>;
  /** By definition, why the machine as it is forbids it: it neither starts nor goes on. */
  readonly forbidden?: ReadonlyMap<string, string>;
  /** By definition, why local policy forbids what runs of it, by what that was given when it was made: it does not go on. */
  readonly outlawed?: ReadonlyMap<string, string>;
  /** The limits of all containers together; left out, nobody sees to them. */
  readonly caps?: CapsSeen | undefined;
  /** How containers are reached; left out, nobody sees to that. */
  readonly exposure?: ExposureSeen;
}
