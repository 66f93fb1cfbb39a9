import type { Random } from "../../lib/async/backoff.ts";
import type { Logger } from "pino";
import type { Clock } from "../../host/clock.ts";
import type { Files } from "../../host/files/files.ts";
import type { LogMemory } from "../../host/log.ts";
import type { Reader } from "../../host/reader.ts";
import type { Compute } from "../containers/model/compute.ts";
import type { Pulse } from "../pulse.ts";
import type { AgentSettings } from "../settings.ts";

export interface AgentOptions {
  readonly settings: AgentSettings;
  readonly clock: Clock;
  readonly files: Files;
  readonly reader: Reader;
  readonly log: Logger;
  readonly memory: LogMemory;
  readonly random: Random;
  /** Problems that were found before the start. */
  readonly found?: readonly { readonly code: string; readonly message: string }[];
  /** Called when a reset is ordered; the reset follows once the agent is closed. Without it a reset is refused. */
  readonly onReset?: () => void;
  /** Replaces the containers of this node. */
  readonly compute?: Compute;
}

/** The running agent. */
export interface Agent {
  readonly pulse: Pulse;
  /** Connects to the control plane at once. */
  wake(): void;
  /** Stops every part in order, and marks the stop as clean. */
  close(): Promise<void>;
}
