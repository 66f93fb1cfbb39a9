import { appendFileSync } from "node:fs";
import { pino } from "pino";
import { z } from "zod";
import { openState } from "../../../src/agent/state.ts";
import { Dispatcher } from "../../../src/agent/triggers/execution/dispatch.ts";
import { Journal } from "../../../src/agent/triggers/execution/journal.ts";
import type { TriggerReply } from "../../../src/agent/triggers/execution/trigger.ts";
import { systemClock } from "../../../src/host/clock.ts";
import { hostFiles } from "../../../src/host/files/files.ts";

const NOW = Date.UTC(2026, 0, 1);
const BOOT_ID = "3f0c5c1e-0000-4000-8000-000000000001";

/** Starts on a state directory as an agent does, receives one trigger that adds a line to a file, and stops. */
export async function deliver(stateDir: string, id: string, effectFile: string): Promise<TriggerReply> {
  const state = await openState(hostFiles(), stateDir);
  try {
    const journal = new Journal(state.database.sql, { bootId: BOOT_ID, isPersistent: state.database.isPersistent });
    journal.reopen();
    journal.settle(BOOT_ID, NOW);
    const dispatcher = new Dispatcher({
      journal,
      clock: systemClock(),
      log: pino({ level: "silent" }),
      node: () => ({ type: "Node", state: "ACTIVE" }),
    });
    dispatcher.serve([
      {
        event: "count",
        kind: "one-shot",
        request: z.object({}),
        deadlineMs: 10_000,
        needsDataPlane: false,
        readOnly: false,
        agents: true,
        handle: () => {
          appendFileSync(effectFile, "ran\n");
          return Promise.resolve({ ran: true });
        },
      },
    ]);
    const claims = { iss: "https://cp.example.net", aud: "node", sid: "session", jti: id, event: "count", body: {} };
    const times = { iat: NOW / 1000, exp: NOW / 1000 + 300, deadlineMs: 10_000 };
    const channel = {
      signal: new AbortController().signal,
      progress() {},
      ready: async () => {},
      result: async () => {},
    };
    const reply = await dispatcher.run({ ...claims, ...times, wait: true, user: "test" }, channel, NOW);
    await dispatcher.close();
    return reply;
  } finally {
    await state.close();
  }
}
