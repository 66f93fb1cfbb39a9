import type { Restorable } from "../checkpoint/checkpoint.ts";
import type { Clock } from "../host/clock.ts";
import { hostExec } from "../host/exec.ts";
import { hostFiles } from "../host/files.ts";
import { networkDriver } from "../host/network/driver.ts";
import { loadTarget, NetworkUndo, restoreNetwork } from "../host/network/restore.ts";
import { hostReader } from "../host/reader.ts";

export interface RestorableOptions {
  readonly clock: Clock;
  readonly stateDir: string;
  readonly runDir: string;
  /** Whether systemd runs the agent. */
  readonly isManaged: boolean;
}

/** Whoever can take back a step of a section without the agent, by the section's name. */
export function listRestorables({ clock, ...places }: RestorableOptions): readonly Restorable[] {
  return [
    {
      name: "network",
      async applyStored(step, signal) {
        const base = { exec: hostExec(clock), files: hostFiles(), reader: hostReader(), clock };
        await restoreNetwork(networkDriver({ ...base, ...places }), loadTarget(NetworkUndo.parse(step).target), signal);
      },
    },
  ];
}
