import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { generateKeys, identityFiles } from "../../../../src/agent/identity/identity.ts";
import { checkLocalApi } from "../../../../src/agent/local-api/server.ts";
import { dataStoreSettings } from "../../../../src/agent/settings.ts";
import { startAgent } from "../../../../src/agent/wiring/agent.ts";
import { fetchReport } from "../../../../src/cli/frame/client.ts";
import { systemClock, type Clock } from "../../../../src/host/clock.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import { rootLogger } from "../../../../src/host/log.ts";
import { hostReader } from "../../../../src/host/reader.ts";
import { Status } from "../../../../src/protocol/local/answers.ts";
import { containerState, FakeCompute } from "../../../support/containers/fake-compute.ts";
import { challenge, HostileControlPlane, prove } from "../../../support/control-plane/hostile-control-plane.ts";
import { ISS, keysClaims, nodeIdentity, signingKey } from "../../../support/control-plane/signing.ts";
import { tempDir } from "../../../support/temp-dir.ts";
import { waitFor } from "../../../support/wait-for.ts";

const Request = z.object({ id: z.int(), method: z.string(), params: z.record(z.string(), z.unknown()) });
const Push = z.object({ stream: z.string(), first: z.int(), records: z.array(z.unknown()) });
const Get = z.object({ name: z.string(), have: z.int() });

interface Changes {
  readonly hasKeys?: boolean;
  readonly clock?: Clock;
}

/** A registered agent in this process, and a control plane that records its requests and accepts everything. */
async function anAgent({ hasKeys = true, clock = systemClock() }: Changes = {}) {
  const [root, key] = await Promise.all([signingKey(), signingKey()]);
  const requests: string[] = [];
  const plane = await HostileControlPlane.start(
    ({ accept }) =>
      void (async () => {
        const socket = await accept();
        const hello = await challenge(socket);
        socket.on("message", (data: Buffer) => {
          const parsed = Request.safeParse(JSON.parse(data.toString("utf8")));
          if (!parsed.success) return;
          const { id, method, params } = parsed.data;
          const push = Push.safeParse(params);
          const get = Get.safeParse(params);
          requests.push(push.success ? `${method} ${push.data.stream}` : method);
          const result = push.success
            ? { last: push.data.first + push.data.records.length - 1 }
            : get.success
              ? { version: get.data.have, unchanged: true }
              : {};
          socket.send(JSON.stringify({ jsonrpc: "2.0", id, result }));
        });
        await prove(socket, hello, key, { versions: { keys: 1, node: 1, cluster: 0, domain: 0 } });
      })().catch(() => undefined),
  );
  const dir = tempDir();
  const stateDir = join(dir, "state");
  const runDir = join(dir, "run");
  const files = hostFiles();
  mkdirSync(join(stateDir, "identity"), { recursive: true });
  const identity = identityFiles(files, stateDir);
  if (hasKeys) await identity.keys.save(generateKeys());
  const node = { ...nodeIdentity, session: plane.url };
  await identity.registration.save({ node, controlPlane: { iss: ISS, keys: keysClaims(root, [key]) } });
  const compute = new FakeCompute();
  const { memory } = rootLogger({ level: "error", destination: { write: () => undefined } });
  const started = await startAgent({
    settings: {
      stateDir,
      runDir,
      logLevel: "error",
      proxies: { noProxy: [] },
      unit: undefined,
      profile: "agent",
      overlay: { stateDir: join(stateDir, "overlay"), runDir },
      speedTestUrl: undefined,
      repositoryUrl: undefined,
      engineSocket: undefined,
      containers: { allowPrivileged: false, allowBinds: [], allowCapabilities: [] },
      dataStore: dataStoreSettings(),
      upgrade: { manifest: undefined, versionsDir: "/nowhere", packageDir: "/nowhere" },
      supervision: { notifySocket: undefined, watchdogMs: undefined },
    },
    clock,
    files,
    reader: hostReader(),
    log: pino({ level: "silent" }),
    memory,
    random: Math.random,
    compute,
  });
  let closing: Promise<void> | undefined;
  const close = (): Promise<void> => (closing ??= started.close());
  onTestFinished(close);
  return { compute, requests, runDir, stateDir, close };
}

async function anOnlineAgent() {
  const agent = await anAgent();
  await waitFor("the first telemetry", () => agent.requests.some((one) => one.startsWith("telemetry.push")));
  return agent;
}

test("delivers what an agent reports while it stops, and keeps others from its place meanwhile", async () => {
  const { compute, requests, runDir, close } = await anOnlineAgent();
  let taking: Promise<unknown> | undefined;
  compute.printed = async function* (_id, _since, signal) {
    yield { stream: "stdout", data: Buffer.from("2026-01-01T00:00:00.000000000Z bye\n") };
    await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
    taking = checkLocalApi(runDir).then(
      () => "free",
      () => "in use",
    );
    await taking;
  };
  compute.set([containerState({ savesOutput: true })]);
  await waitFor("the output to be followed", () => compute.requested.length > 0);
  const before = requests.length;
  await close();
  expect(await taking).toBe("in use");
  await waitFor("the last output", () => requests.slice(before).includes("telemetry.push output"));
});

test("a session requests documents before it sends long telemetry", async () => {
  const { requests } = await anOnlineAgent();
  const telemetry = requests.findIndex((one) => one.startsWith("telemetry.push"));
  const documents = requests.indexOf("document.get");
  expect(documents).toBeGreaterThanOrEqual(0);
  expect(documents).toBeLessThan(telemetry);
});

test("sets the age of a session without keys again when the clock is set", async () => {
  let ahead = 0;
  const clock: Clock = { ...systemClock(), now: () => Date.now() + ahead };
  const { runDir, stateDir } = await anAgent({ hasKeys: false, clock });
  const settings = { runDir, stateDir, isJson: false, timeoutMs: 30_000, given: {} };
  const call = { settings, clock: systemClock(), signal: new AbortController().signal };
  const status = () => fetchReport(call, "/v1/status", Status);
  const before = await status();
  expect(before.session.reason?.code).toBe("identity-lost");
  ahead = 3_600_000;
  expect((await status()).session.since).toBeGreaterThan(before.session.since + 3_590_000);
});
