import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { expect, onTestFinished } from "vitest";
import { SessionCounter, generateKeys, identityFiles } from "../../../../src/agent/identity/identity.ts";
import { KnownAddresses } from "../../../../src/agent/identity/known-addresses.ts";
import { nodeParty } from "../../../../src/agent/session/party.ts";
import type { Connection } from "../../../../src/agent/session/attempt.ts";
import { Session } from "../../../../src/agent/session/session.ts";
import { webSocketTransport } from "../../../../src/agent/session/transport.ts";
import { AggregatedLog } from "../../../../src/host/aggregated-log.ts";
import { hostDialler } from "../../../../src/host/net/dial.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { HostileControlPlane, type Arrival } from "../../../support/control-plane/hostile-control-plane.ts";
import { ISS, keysClaims, nodeIdentity, signingKey } from "../../../support/control-plane/signing.ts";
import { tempDir } from "../../../support/temp-dir.ts";
import { waitFor } from "../../../support/wait-for.ts";

/** The root of the node's control plane, its signing key, and an unknown key. */
export const [root, key, stranger] = await Promise.all([signingKey(), signingKey(), signingKey()]);

/** A session with real keys and sockets, on a fake clock; every random number is one half. */
export async function node(script: (arrival: Arrival) => unknown, url?: string, known: string[] = []) {
  const unhandled: unknown[] = [];
  const forgeries: string[] = [];
  const mistakes: object[] = [];
  const logClock = new FakeClock();
  const plane = await HostileControlPlane.start((arrival) => {
    Promise.resolve(script(arrival)).catch((error: unknown) => unhandled.push(error));
  });
  const directory = tempDir();
  mkdirSync(join(directory, "s/identity"), { recursive: true });
  const clock = new FakeClock();
  const registration = {
    node: { ...nodeIdentity, session: url ?? plane.url },
    controlPlane: { iss: ISS, keys: keysClaims(root, [key]) },
  };
  const identity = identityFiles(hostFiles(directory), "/s");
  if (known.length > 0) await identity.addresses.save({ addresses: known });
  const party = await nodeParty({
    clock,
    addresses: await KnownAddresses.open(identity.addresses, () => undefined),
    counter: await SessionCounter.open(
      identity.counter,
      () => clock.now(),
      () => undefined,
    ),
    keys: generateKeys(),
    registration: () => registration,
    bootId: "5e0a6b1a-9f5e-4a52-8a2d-0a3f7c6b1d22",
    version: "0",
    have: () => ({ keys: 1, node: 0, cluster: 0, domain: 0 }),
    reportedVersion: () => 0,
    refreshKeys: () => Promise.resolve(false),
    onForgery: (what, error) => void forgeries.push(`${what}: ${error.code}`),
  });
  const online: Connection[] = [];
  let offline = 0;
  let deletions = 0;
  const noted = (fields: object, message: string): void => void mistakes.push({ ...fields, message });
  const session = new Session({
    clock,
    log: pino({ level: "silent" }),
    mistakes: new AggregatedLog({ warn: noted, error: noted }, logClock),
    open: webSocketTransport(hostDialler(clock, { noProxy: [] }), clock, () => clock.now()),
    party,
    handlers: () => ({ "trigger.run": () => ({ ran: true }) }),
    random: () => 0.5,
    onOnline: (connection) => void online.push(connection),
    onOffline: () => void (offline += 1),
    onDeleted: () => void (deletions += 1),
  });
  onTestFinished(() => session.close());
  session.start();
  const waiting = async () => {
    await waitFor(
      "the session to wait",
      () => session.status().state === "waiting" && session.status().reason !== undefined,
    );
    await waitFor("the sockets to close", () => plane.openSockets === 0);
    expect(clock.pendingTimers).toBeLessThanOrEqual(1);
    const { reason, retryAt = 0 } = session.status();
    return { code: reason?.code, message: reason?.message, delay: retryAt - clock.now() };
  };
  const up = () => waitFor("the session", () => session.connection);
  return {
    plane,
    clock,
    session,
    online,
    waiting,
    up,
    identity,
    unhandled,
    forgeries,
    mistakes,
    offline: () => offline,
    deletions: () => deletions,
  };
}

/** The delay in ms before the next attempt after a failed one. */
export const FAILED = 2000;
