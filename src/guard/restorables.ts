import type { Restorable } from "../checkpoint/checkpoint.ts";
import type { Clock } from "../host/clock.ts";
import { hostExec } from "../host/process/exec.ts";
import { hostFiles } from "../host/files/files.ts";
import { networkDriver } from "../host/network/driver.ts";
import { networkRecord } from "../host/network/state/record.ts";
import { NetworkUndo, revertNetwork } from "../host/network/restore.ts";
import { hostReader } from "../host/reader.ts";

export interface RestorableOptions {
  readonly clock: Clock;
  readonly stateDir: string;
  readonly runDir: string;
  /** True if a package installed this program under systemd. */
  readonly isManaged: boolean;
}

/** Sections that can undo a step without the agent, by name. */
export function listRestorables({ clock, stateDir, runDir, isManaged }: RestorableOptions): readonly Restorable[] {
  const [exec, files, reader] = [hostExec(clock), hostFiles(), hostReader()];
  const driver = networkDriver({ exec, files, reader, clock, stateDir, runDir, isManaged });
  return [
    {
      name: "network",
      async applyStored(step, signal) {
        const record = networkRecord(files, stateDir);
        await revertNetwork(driver, record, NetworkUndo.parse(step), signal);
      },
    },
  ];
}
