import { pino } from "pino";
import { Applying } from "../../src/agent/applying/applying.ts";
import type { DesiredDocuments } from "../../src/agent/shadow/desired.ts";
import { hostFiles } from "../../src/host/files/files.ts";
import type { Clock } from "../../src/host/clock.ts";
import { testProof } from "./commit.ts";
import { FakeClock } from "./fake-clock.ts";

/** What applies documents, with no section to apply them by. */
export function idleApplying(documents: DesiredDocuments, directory: string, clock: Clock = new FakeClock()): Applying {
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
    onFault: () => undefined,
    onDamage: () => undefined,
  });
}
