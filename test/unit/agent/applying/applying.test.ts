import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { pino, type Logger } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { Applying } from "../../../../src/agent/applying/applying.ts";
import type { Prover } from "../../../../src/agent/reconcile/prover.ts";
import { reconciler, type Issue, type Reconciler } from "../../../../src/agent/reconcile/section.ts";
import { agentSignals } from "../../../../src/agent/wiring/signals.ts";
import type { Desired, DesiredDocuments } from "../../../../src/agent/shadow/desired.ts";
import { InputError } from "../../../../src/errors.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import { rootLogger } from "../../../../src/host/log.ts";
import type { Config } from "../../../../src/protocol/documents/documents.ts";
import { advanceUntil } from "../../../support/advance-until.ts";
import { ScriptedProver, testProof } from "../../../support/reconcile/commit.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { MemoryMachine, modelSection } from "../../../support/reconcile/model-section.ts";
import { tempDir } from "../../../support/temp-dir.ts";
import { waitFor } from "../../../support/wait-for.ts";

const UID = "0197f1a2-0000-7000-8000-000000000001";

function desiredOf(version: number, config: Config, clusterConfig?: Config): Desired {
  const held = { version, sub: UID, receivedAt: 0, passedOver: [] };
  const node = {
    uid: UID,
    name: "n",
    fqdn: "n.example.net",
    domain: "example.net",
    org: UID,
    type: "Node",
    state: "ACTIVE",
    tags: {},
    settings: {},
    config,
  } as const;
  if (clusterConfig === undefined) return { node: { ...held, body: node } };
  const fqdn = "c.example.net";
  return {
    node: { ...held, body: { ...node, cluster: fqdn } },
    cluster: { ...held, sub: fqdn, body: { fqdn, members: [UID], tags: {}, config: clusterConfig } },
  };
}

type Writable<T> = { -readonly [Key in keyof T]: T[Key] };

function rig(
  notices: readonly Issue[] = [],
  others: readonly Reconciler[] = [],
  log: Logger = pino({ level: "silent" }),
  sectionsOf?: (documents: Desired) => readonly Reconciler[],
  prover: Prover = testProof.prover,
) {
  const clock = new FakeClock();
  const stateDir = tempDir();
  mkdirSync(join(stateDir, "desired"));
  const machine = new MemoryMachine();
  const section = modelSection(machine, { name: "core" });
  const events: string[] = [];
  const refuse = (): Promise<never> => Promise.reject(new InputError("not-found", "nothing before"));
  const documents: Writable<
    Pick<DesiredDocuments, "current" | "deletedAt" | "rolledBack" | "rollBack" | "isUnproven">
  > = {
    current: {},
    deletedAt: undefined,
    rolledBack: refuse,
    rollBack: refuse,
    isUnproven: () => false,
  };
  const signals = agentSignals();
  const applying = new Applying({
    clock,
    random: () => 1,
    log,
    files: hostFiles(),
    settings: { stateDir },
    documents,
    commit: { ...testProof, prover },
    ...(sectionsOf === undefined ? {} : { sectionsOf }),
    sections: [reconciler({ ...section, parse: (raw) => ({ ...section.parse(raw), notices }) }), ...others],
    events: {
      raise: ({ eventType }) => void events.push(`raise ${eventType}`),
      clear: () => undefined,
      notice: ({ eventType }) => void events.push(`notice ${eventType}`),
    },
    signals,
    onFault: () => undefined,
    onDamage: () => undefined,
  });
  onTestFinished(() => applying.close());
  return { applying, machine, documents, events, clock, settled: signals.settled };
}

test("a document gets its verdict and its callbacks once the engine has processed it", async () => {
  const { applying, machine, documents, settled } = rig();
  let calls = 0;
  settled.changed(() => {
    calls += 1;
  });
  documents.current = desiredOf(1, { core: { a: "1", b: 7 }, vpn: { networks: ["n"] } });
  applying.apply();
  expect(applying.verdicts()).toBeUndefined();
  await applying.engine.idle();
  expect(calls).toBe(1);
  expect(Object.fromEntries(machine.values)).toEqual({ a: "1" });
  expect(applying.verdicts()?.node).toEqual({
    outcome: "partial",
    sections: {
      core: { state: "converged", issues: ["core.b: must be text"], steps: 1 },
      vpn: { state: "unsupported", issues: ["vpn: this version of the node does not apply the section"], steps: 0 },
    },
  });
  documents.current = desiredOf(2, { core: { a: "2" } });
  expect(applying.verdicts()).toBeUndefined();
  applying.apply();
  await applying.engine.idle();
  expect(applying.verdicts()?.node).toMatchObject({ outcome: "converged", sections: { core: { steps: 1 } } });
});

test("reports a notice everywhere, without changing the state of the configuration", async () => {
  const notice = { path: "core.a", code: "E_CIDR_HOSTBITS", message: "core.a: host bits are masked away" };
  const { applying, documents, events } = rig([notice]);
  documents.current = desiredOf(1, { core: { a: "1" } });
  applying.apply();
  await applying.engine.idle();
  expect(applying.verdicts()?.node).toEqual({
    outcome: "converged",
    sections: {
      core: { state: "converged", issues: ["notice: core.a: host bits are masked away"], steps: 1 },
    },
  });
  expect(applying.why().reasons).toMatchObject([{ item: "core.a", code: "E_CIDR_HOSTBITS", notice: true }]);
  expect(applying.facts()).toMatchObject({
    "config.core.notices": 1,
    "config.core.item.a": "E_CIDR_HOSTBITS: core.a: host bits are masked away",
  });
  expect(applying.facts()).not.toHaveProperty(["config.core.reason"]);
  expect(applying.facts()).not.toHaveProperty(["config.core.issues"]);
  expect(events).toEqual([]);
  const plan = await applying.plan(undefined, new AbortController().signal);
  expect(plan.sections).toMatchObject([{ issues: [notice] }]);
  documents.current = desiredOf(2, { core: { a: "1", b: 7 } });
  applying.apply();
  await applying.engine.idle();
  expect(applying.verdicts()?.node).toMatchObject({ outcome: "partial" });
  expect(applying.facts()).toMatchObject({ "config.core.issues": 1, "config.core.notices": 1 });
});

test("a node that is switched off reports since when, and what is off with it", async () => {
  const plane = reconciler(modelSection(new MemoryMachine(), { name: "services", needsDataPlane: true }));
  const { applying, documents, clock } = rig([], [plane]);
  const inState = (version: number, state: "ACTIVE" | "INACTIVE"): Desired => {
    const { node } = desiredOf(version, { core: { a: "1" }, services: { b: "1" } });
    return node === undefined ? {} : { node: { ...node, receivedAt: 17, body: { ...node.body, state } } };
  };
  const put = async (version: number, state: "ACTIVE" | "INACTIVE"): Promise<void> => {
    documents.current = inState(version, state);
    applying.apply();
    await applying.engine.idle();
  };
  await put(1, "ACTIVE");
  expect(applying.why().reasons).toEqual([]);
  await clock.advance(5000);
  const since = clock.now();
  await put(2, "INACTIVE");
  await clock.advance(5000);
  await put(3, "INACTIVE");
  const message = "the node is INACTIVE, and with it are off: services";
  const reason = { section: "node", code: "inactive", message, since, lastAttempt: since, notice: true };
  expect(applying.why().reasons).toEqual([reason]);
  await put(4, "ACTIVE");
  expect(applying.why().reasons).toEqual([]);
  const next = rig();
  next.documents.current = inState(5, "INACTIVE");
  next.applying.apply();
  expect(next.applying.why().reasons).toMatchObject([
    { message: "the node is INACTIVE", since: 17 },
    { section: "services", code: "unsupported" },
  ]);
});

test("a node that is held for its source address reports why; this is not a notice", async () => {
  const { applying, documents } = rig();
  const { node } = desiredOf(1, {});
  const restricted = { code: "unauthorized-ip", address: "192.0.2.7" };
  documents.current =
    node === undefined ? {} : { node: { ...node, body: { ...node.body, state: "INACTIVE", restricted } } };
  applying.apply();
  await applying.engine.idle();
  const [reason] = applying.why().reasons;
  expect(reason).toMatchObject({ section: "node", code: "unauthorized-ip" });
  expect(reason?.message).toContain("connects from 192.0.2.7");
  expect(reason).not.toHaveProperty("notice");
});

test("the log lines of a pass name its section once", async () => {
  const written: string[] = [];
  const { log } = rootLogger({ level: "debug", destination: { write: (line) => void written.push(line) } });
  const { applying, documents } = rig([], [], log);
  documents.current = desiredOf(1, { core: { a: "1" } });
  applying.apply();
  await applying.engine.idle();
  expect(written.length).toBeGreaterThan(0);
  for (const line of written) expect(line.match(/"component"/g)?.length).toBe(1);
});

test("a change under verification is a notice, and an issue while a target is unreachable", async () => {
  const network = reconciler(modelSection(new MemoryMachine(), { name: "network", isGuarded: () => true }));
  const prover = new ScriptedProver();
  prover.isSilent = true;
  const { applying, documents, clock } = rig([], [network], undefined, undefined, prover);
  documents.current = desiredOf(1, { network: { a: "1" } });
  applying.apply();
  const reason = await waitFor("it is being proven", () =>
    applying.why().reasons.find(({ code }) => code === "unconfirmed"),
  );
  expect(reason).toMatchObject({ section: "network", notice: true });
  prover.unreached = [{ target: "control plane 192.0.2.1:443", message: "connection timed out" }];
  prover.isSilent = false;
  const graver = await advanceUntil("that is reported", clock, () =>
    applying.why().reasons.find(({ message }) => message.includes("connection timed out")),
  );
  expect(graver).toMatchObject({ code: "unconfirmed" });
  expect(graver).not.toHaveProperty("notice");
});

test("a network confirmed on trial yields when the control plane changes the section, and another trial may begin", async () => {
  const machine = new MemoryMachine();
  const network = reconciler(modelSection(machine, { name: "network", isGuarded: () => true }));
  const { applying, documents } = rig([], [network]);
  const { signal } = new AbortController();
  const put = async (version: number, config: Config): Promise<void> => {
    documents.current = desiredOf(version, config);
    applying.apply();
    await applying.engine.idle();
  };
  await put(1, { network: { a: "1" } });
  await applying.tryNetwork({ network: { a: "tried" }, minutes: 10 }, signal);
  expect(applying.network().pending).toMatchObject({ isLocal: true });
  await applying.keepNetwork();
  await put(2, { network: { a: "1" }, core: { b: "1" } });
  expect(Object.fromEntries(machine.values)).toEqual({ a: "tried" });
  expect(applying.network()).toHaveProperty("kept");
  await put(3, { network: { a: "2" } });
  expect(Object.fromEntries(machine.values)).toEqual({ a: "2" });
  expect(applying.config()).toEqual({ network: { a: "2" } });
  expect(applying.network()).not.toHaveProperty("kept");
  // The confirmed trial has ended permanently.
  await put(4, { network: { a: "1" } });
  expect(Object.fromEntries(machine.values)).toEqual({ a: "1" });
  await applying.tryNetwork({ network: { a: "again" }, minutes: 10 }, signal);
  expect(Object.fromEntries(machine.values)).toEqual({ a: "again" });
});

test.each([
  ["the same as was kept", { a: "tried" }],
  ["what takes no step from there", { a: "tried", b: 7 }],
])("a network confirmed on trial does not return once the control plane has set %s", async (_what, same) => {
  const machine = new MemoryMachine();
  const network = reconciler(modelSection(machine, { name: "network", isGuarded: () => true }));
  const { applying, documents } = rig([], [network]);
  const put = async (version: number, config: Config): Promise<void> => {
    documents.current = desiredOf(version, config);
    applying.apply();
    await applying.engine.idle();
  };
  await put(1, { network: { a: "1" } });
  await applying.tryNetwork({ network: { a: "tried" }, minutes: 10 }, new AbortController().signal);
  await applying.keepNetwork();
  await put(2, { network: same });
  expect(Object.fromEntries(machine.values)).toEqual({ a: "tried" });
  await put(3, { network: { a: "1" } });
  expect(Object.fromEntries(machine.values)).toEqual({ a: "1" });
  expect(applying.network()).not.toHaveProperty("kept");
});

test("merges the configuration of a cluster, and removes it when the node leaves the cluster", async () => {
  const { applying, machine, documents } = rig();
  documents.current = desiredOf(1, { core: { a: "own", b: "own" } }, { core: { a: "theirs" }, snmp: {} });
  applying.apply();
  await applying.engine.idle();
  expect(Object.fromEntries(machine.values)).toEqual({ a: "theirs", b: "own" });
  expect(applying.config()).toEqual({ core: { a: "theirs", b: "own" } });
  const { cluster } = documents.current;
  documents.current = {
    ...desiredOf(2, { core: { a: "own", b: "own" } }),
    ...(cluster === undefined ? {} : { cluster }),
  };
  applying.apply();
  await applying.engine.idle();
  expect(machine.values.get("a")).toBe("own");
});

test("a plan lists the steps and what is not applied, and changes nothing", async () => {
  const { applying, machine, documents } = rig();
  documents.current = desiredOf(1, { core: { a: "1" } });
  const report = await applying.plan({ core: { a: "1", b: "2" }, exec: {} }, new AbortController().signal);
  expect(report.sections).toMatchObject([
    { section: "core", total: 2, steps: [{ kind: "set", subject: "a", guarded: false }, { subject: "b" }] },
    { section: "exec", total: 0, unsupported: expect.any(String) as string },
  ]);
  expect(machine.values.size).toBe(0);
});

test("plans a rollback by sections over the documents that it would apply", async () => {
  const versions: (number | undefined)[] = [];
  const { applying, documents, machine } = rig([], [], undefined, (desired) => {
    versions.push(desired.node?.version);
    const shown = modelSection(new MemoryMachine(), { name: "core" });
    return [reconciler({ ...shown, describe: () => `over ${desired.node?.version}` })];
  });
  const { signal } = new AbortController();
  documents.current = desiredOf(2, { core: { a: "2" } });
  documents.rolledBack = () => Promise.resolve({ desired: desiredOf(1, { core: { a: "1" } }), from: 2, to: 1 });
  applying.apply();
  await applying.engine.idle();
  expect((await applying.plan(undefined, signal)).sections).toMatchObject([{ total: 0 }]);
  expect(versions).toEqual([]);
  const { plan } = await applying.rollback({ document: "node", plan: true }, signal);
  expect(plan?.sections).toMatchObject([{ section: "core", steps: [{ detail: "over 1" }] }]);
  expect([versions, Object.fromEntries(machine.values)]).toEqual([[1], { a: "2" }]);
});

describe("a rollback", () => {
  const signal = new AbortController().signal;
  const back = (version: number, refused: number, config: Config): Desired => {
    const { node } = desiredOf(version, config);
    return node === undefined ? {} : { node: { ...node, refused: { version: refused, at: 5 } } };
  };

  test("applies the previous version, and the verdict, `why` and the callback report it", async () => {
    const { applying, machine, documents, settled } = rig();
    documents.current = desiredOf(2, { core: { a: "bad" } });
    applying.apply();
    await applying.engine.idle();
    documents.rollBack = () => {
      documents.current = back(1, 2, { core: { a: "good" } });
      return Promise.resolve({ desired: documents.current, from: 2, to: 1 });
    };
    const outcomes: unknown[] = [];
    settled.changed(() => outcomes.push(applying.verdicts()?.node));
    expect(await applying.rollback({ document: "node", plan: false }, signal)).toEqual({
      schema: 1,
      document: "node",
      from: 2,
      to: 1,
    });
    await applying.engine.idle();
    expect(machine.values.get("a")).toBe("good");
    expect(outcomes.at(-1)).toMatchObject({
      outcome: "rolled-back",
      inForce: 1,
      sections: { core: { state: "converged", steps: 1 } },
    });
    expect(applying.why().reasons).toMatchObject([
      {
        section: "documents",
        item: "node",
        code: "rolled-back",
        message: expect.stringContaining("version 2") as string,
      },
    ]);
  });

  test("that is only planned lists the steps and changes nothing", async () => {
    const { applying, machine, documents } = rig();
    documents.current = desiredOf(2, { core: { a: "bad" } });
    applying.apply();
    await applying.engine.idle();
    documents.rolledBack = () =>
      Promise.resolve({ desired: back(1, 2, { core: { a: "good", b: "x" } }), from: 2, to: 1 });
    const { plan } = await applying.rollback({ document: "node", plan: true }, signal);
    expect(plan?.sections).toMatchObject([{ section: "core", total: 2 }]);
    expect(machine.values.get("a")).toBe("bad");
    expect(applying.why().reasons).toEqual([]);
  });

  test("without a previous version changes nothing and says why", async () => {
    const { applying } = rig();
    for (const plan of [false, true]) {
      const refusal = plan ? {} : { code: "not-found" };
      await expect(applying.rollback({ document: "node", plan }, signal)).rejects.toMatchObject(refusal);
    }
  });
});

test("reports a stored section that is not applied, unless it is empty or meaningless for the node", async () => {
  const { applying, documents } = rig();
  const config = { core: { a: "1" }, alert: { rules: [1] }, snmp: { users: [] }, exec: {} };
  documents.current = desiredOf(1, config, { apigw: { enabled: false } });
  applying.apply();
  await applying.engine.idle();
  const message = "this version of the node does not apply the section";
  const unsupported = { code: "unsupported", message, since: 0, lastAttempt: 0 };
  expect(applying.why().reasons).toEqual([
    { section: "alert", ...unsupported },
    { section: "apigw", ...unsupported },
  ]);
  expect(Object.keys(applying.verdicts()?.node?.sections ?? {}).sort()).toEqual(["alert", "core"]);
  expect(applying.facts()).toMatchObject({ "config.alert.state": "unsupported", "config.apigw.state": "unsupported" });
  expect(Object.keys(applying.facts())).not.toContain("config.exec.state");
  const agent = rig();
  const { node } = desiredOf(1, { ...config, apigw: { enabled: true } });
  agent.documents.current = node === undefined ? {} : { node: { ...node, body: { ...node.body, type: "Agent" } } };
  agent.applying.apply();
  await agent.applying.engine.idle();
  expect(agent.applying.why().reasons).toEqual([]);
});

test("the shadow holds the result and the reverted drift", async () => {
  const { applying, machine, documents, events } = rig();
  documents.current = desiredOf(3, { core: { a: "1", b: 7 }, vpn: { networks: ["n"] } });
  applying.apply();
  await applying.engine.idle();
  expect(applying.facts()).toMatchObject({
    "document.node.version": 3,
    "config.core.state": "converged",
    "config.core.version": 3,
    "config.core.issues": 1,
    "config.core.item.b": "invalid: core.b: must be text",
    "config.core.reported.a": "1",
    "config.vpn.state": "unsupported",
  });
  expect(events).toEqual(["raise Invalid Configuration"]);
  machine.values.set("a", "changed");
  applying.engine.reevaluate("test");
  await applying.engine.idle();
  expect(applying.facts()).toMatchObject({ "config.core.drift.count": 1, "config.core.drift.what": "set a" });
  expect(events).toContain("notice Configuration Drift");
});
