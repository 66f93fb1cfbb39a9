import { pino } from "pino";
import { Applying, type ApplyingOptions } from "../../src/agent/applying/applying.ts";
import { agentSignals } from "../../src/agent/wiring/signals.ts";
import type { DesiredDocuments } from "../../src/agent/shadow/desired.ts";
import { hostFiles } from "../../src/host/files/files.ts";
import type { Clock } from "../../src/host/clock.ts";
import { testProof } from "./reconcile/commit.ts";
import { FakeClock } from "./fake-clock.ts";

/** Returns an engine without sections. */
export function idleApplying(
  documents: DesiredDocuments,
  directory: string,
  clock: Clock = new FakeClock(),
  signals: ApplyingOptions["signals"] = agentSignals(),
): Applying {
  return new Applying({
    clock,
    random: () => 0.5,
    log: pino({ level: "silent" }),
    files: hostFiles(directory),
    settings: { stateDir: "/s" },
    documents,
    commit: testProof,
    sections: [],
    events: { raise: () => undefined, clear: () => undefined, notice: () => undefined },
    signals,
    onFault: () => undefined,
    onDamage: () => undefined,
  });
}
