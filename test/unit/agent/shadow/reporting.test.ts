import { pino } from "pino";
import { expect, test } from "vitest";
import type { Acknowledged } from "../../../../src/agent/shadow/reporter.ts";
import { ShadowReporting } from "../../../../src/agent/shadow/reporting.ts";
import type { Connection } from "../../../../src/agent/session/attempt.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { waitFor } from "../../../support/wait-for.ts";

test("stores what was acknowledged the first time and at the end of the session, once, and not at each report", async () => {
  const clock = new FakeClock();
  const kept: Acknowledged[] = [];
  const facts = { memory: 1 };
  const reporting = new ShadowReporting({
    clock,
    log: pino({ level: "silent" }),
    acknowledged: undefined,
    facts: () => ({ ...facts }),
    keep: (acknowledged) => void kept.push(acknowledged),
  });
  const rpc = {
    request: (_method: string, { version }: { readonly version: number }) => Promise.resolve({ version }),
  };
  const connection = { rpc, reportedVersion: 0, signal: new AbortController().signal, isCongested: () => false };
  reporting.online(connection as unknown as Connection);
  await waitFor("the first report", () => reporting.version === 1);
  await waitFor("it is kept", () => kept.length === 1);
  expect(kept).toEqual([{ version: 1, facts: { memory: 1 } }]);
  facts.memory = 500;
  reporting.evaluate();
  await clock.advance(120_000);
  await waitFor("the second report", () => reporting.version === 2);
  expect(kept).toHaveLength(1);
  reporting.offline();
  reporting.offline();
  expect(kept.slice(1)).toEqual([{ version: 2, facts: { memory: 500 } }]);
});
