import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { beforeAll, expect, test } from "vitest";
import { AcceptedDocuments } from "../../../../src/agent/applying/accepted-documents.ts";
import { DesiredDocuments } from "../../../../src/agent/shadow/desired.ts";
import { createEventLog } from "../../../../src/agent/telemetry/events.ts";
import { agentSignals } from "../../../../src/agent/wiring/signals.ts";
import { InputError } from "../../../../src/errors.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { idleApplying } from "../../../support/idle-applying.ts";
import {
  ISS,
  nodeDocument,
  signDocument,
  signingKey,
  UID,
  type SigningKey,
} from "../../../support/control-plane/signing.ts";
import { tempDir } from "../../../support/temp-dir.ts";

let key: SigningKey;

beforeAll(async () => {
  key = await signingKey();
});

async function setUp() {
  const directory = tempDir();
  mkdirSync(join(directory, "s/desired"), { recursive: true });
  const clock = new FakeClock();
  const signals = agentSignals();
  const documents = await DesiredDocuments.load(hostFiles(directory), "/s");
  const applying = idleApplying(documents, directory, clock, signals);
  const events: string[] = [];
  const eventLog = createEventLog({ clock, sink: ({ eventType }) => void events.push(eventType), open: [] });
  const log = pino({ level: "silent" });
  const accepted = new AcceptedDocuments({ clock, log, documents, applying, events: eventLog, signals });
  const reports: string[] = [];
  signals.reports.changed((names) => void reports.push(...names));
  const trust = { iss: ISS, uid: UID, keys: new Map([[key.kid, key.publicKey]]) };
  const take = async (version: number): Promise<void> => {
    await documents.accept("node", await signDocument(key, "node", version, nodeDocument()), trust, 1);
    accepted.accepted("node", version);
  };
  return { accepted, documents, clock, events, reports, take };
}

test("reports an accepted document once, and again when another version is accepted", async () => {
  const { accepted, reports, take } = await setUp();
  await take(3);
  expect(reports).toEqual(["node"]);
  expect(accepted.reportOf("node")).toMatchObject({ version: 3, outcome: "converged" });
  accepted.apply();
  expect(reports).toEqual(["node"]);
  await take(4);
  expect(reports).toEqual(["node", "node"]);
  expect(accepted.applied.get("node")).toMatchObject({ version: 4 });
});

test("reports a refused version as a fault; the applied version stays until a newer one is accepted", async () => {
  const { accepted, events, reports, take } = await setUp();
  await take(3);
  accepted.refused("node", 4, new InputError("invalid-document", "no name"));
  expect(reports).toEqual(["node", "node"]);
  expect(events).toEqual(["Invalid Configuration"]);
  expect(accepted.reportOf("node")).toMatchObject({ version: 4, outcome: "refused" });
  expect(accepted.applied.get("node")).toMatchObject({ version: 3, outcome: "converged" });
  expect(accepted.faults.map(({ code }) => code)).toEqual(["document-refused"]);
  expect(accepted.faults[0]?.message).toContain("no name");
  await take(5);
  expect(accepted.faults).toEqual([]);
  expect(accepted.reportOf("node")).toMatchObject({ version: 5, outcome: "converged" });
});

test("reports the keys document without applying it", async () => {
  const { accepted, reports } = await setUp();
  accepted.accepted("keys", 2);
  expect(reports).toEqual(["keys"]);
  expect(accepted.reportOf("keys")).toMatchObject({ version: 2, outcome: "converged" });
});

test("a deleted node is INACTIVE until the control plane knows it again", async () => {
  const { accepted, documents, take } = await setUp();
  await take(3);
  accepted.setDeleted(true);
  expect(documents.current.node?.body.state).toBe("INACTIVE");
  accepted.setDeleted(false);
  expect(documents.current.node?.body.state).toBe("ACTIVE");
});
