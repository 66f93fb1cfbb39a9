import type { ContainerSpec, ExecConfig } from "../../../protocol/sections/exec/config.ts";
import type { Seen } from "../../containers/supervision/seen.ts";
import type { AddressPlan } from "./addresses.ts";
import type { CapsSeen } from "./caps.ts";
import type { Placement } from "./compile.ts";
import type { ExposureSeen } from "./exposure.ts";

export interface ExecDesired {
  readonly config: ExecConfig;
  /** Ids of unreadable definitions; their containers stay unchanged. */
  readonly unreadable: ReadonlySet<string>;
  /** Ids of unreadable definitions that are disabled; their containers must not run. */
  readonly disabled: ReadonlySet<string>;
}

/** Known state of the volumes. */
export interface VolumesSeen {
  /** Names of volumes that are recorded or in use. */
  readonly kept: ReadonlySet<string>;
  /** True if volumes were checked since the agent started and nothing is due. */
  readonly isSettled: boolean;
  /** Volumes that cannot be used, with the reason. */
  readonly troubles: readonly { readonly name: string; readonly reason: string }[];
}

/** Observed containers, and all other inputs that decide how a definition is run. */
export interface ExecActual {
  readonly seen: Seen;
  readonly isActive: boolean;
  /** Version of the applied documents. */
  readonly version: string;
  /** Undefined until the engine has reported the machine's resources. */
  readonly placement: Omit<Placement, "nonce" | "address"> | undefined;
  readonly addresses: AddressPlan;
  readonly volumes: VolumesSeen;
  /** Returns why a definition must not be started on this machine, if so. */
  readonly check: (spec: ContainerSpec) => Promise<string | undefined>;
  /** Reasons by definition why the machine's state forbids it: it neither starts nor continues. */
  readonly forbidden?: ReadonlyMap<string, string>;
  /** Reasons by definition why local policy forbids the running container with the settings it was created with: it is stopped. */
  readonly outlawed?: ReadonlyMap<string, string>;
  /** Limits of all containers together; absent if they are not managed. */
  readonly caps?: CapsSeen | undefined;
  /** Observed exposure of the containers; absent if it is not managed. */
  readonly exposure?: ExposureSeen;
}
