import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { randomUUID } from "node:crypto";
import { pino } from "pino";
import { containerNetwork } from "../../../src/agent/containers/model/container-network.ts";
import { Supervisor, type SupervisorOptions } from "../../../src/agent/containers/supervision/supervisor.ts";
import { computeColumnsMigration, computeMigration, Ledger } from "../../../src/agent/containers/model/ledger.ts";
import { openPolicy } from "../../../src/agent/wiring/containers/policy.ts";
import { reconciler, type View } from "../../../src/agent/reconcile/section.ts";
import type { ContainerPolicy } from "../../../src/agent/sections/exec/policy.ts";
import { execSection } from "../../../src/agent/sections/exec/section.ts";
import type { Clock } from "../../../src/host/clock.ts";
import { openDatabase } from "../../../src/host/files/database.ts";
import type { EngineCache } from "../../../src/host/engine/cache.ts";
import type { Engine } from "../../../src/host/engine/engine.ts";

export const OWNER = "7d1c2f0e-5a1b-4c3d-9e8f-0123456789ab";
export const SUBNET = "172.31.0.0/24";

const STRICT: ContainerPolicy = { allowPrivileged: false, allowBinds: [], allowCapabilities: [] };

/** Replacements of the engine and its surroundings. */
export interface ExecStageOptions {
  readonly open: () => { readonly engine: Engine; readonly cache: EngineCache };
  readonly clock: Clock;
  /** Shared by successive agents; a temporary directory by default. */
  readonly dir?: string;
  readonly supervisor?: Partial<SupervisorOptions>;
  readonly network?: boolean;
  /** Returns why a definition must not start on this machine. */
  readonly check?: () => Promise<string | undefined>;
  /** Definitions that local policy forbids, with the reason. */
  readonly forbidden?: ReadonlyMap<string, string>;
  /** The container policy, read on each poll; only ordinary privileges by default. */
  readonly policy?: () => ContainerPolicy;
}

/** The section `exec` with its supervisor and ledger as in an agent, without the agent. */
export function execStage({
  open,
  clock,
  dir,
  supervisor: more = {},
  network: hasNetwork = true,
  check,
  forbidden,
  policy = () => STRICT,
}: ExecStageOptions) {
  const own = dir ?? mkdtempSync(join(tmpdir(), "hf-exec-"));
  const database = openDatabase(join(own, "state.db"), {
    migrations: [computeMigration, computeColumnsMigration],
    exclusive: true,
  });
  const ledger = new Ledger(database.sql);
  let version = 1;
  let polls = 0;
  const network = containerNetwork({
    owner: () => OWNER,
    subnet: () => SUBNET,
    gateway: () => "172.31.0.1",
    reserved: () => ({ resolver: "172.31.0.2" }),
    addresses: () => new Map(),
    empty: () => Promise.resolve(),
  });
  const overlay = { stateDir: own, runDir: own };
  const settings = {
    stateDir: own,
    runDir: own,
    overlay,
    get containers() {
      return policy();
    },
  };
  const allowed = openPolicy({ settings, socketPath: () => join(own, "engine.sock") });
  const supervisor: Supervisor = new Supervisor({
    ledger,
    clock,
    log: pino({ level: process.env["HF_LOG"] ?? "silent" }),
    owner: () => OWNER,
    nonce: randomUUID,
    afterStart: () => Promise.resolve(),
    credential: () => Promise.resolve(undefined),
    open,
    space: () => undefined,
    ensureNetwork: (engine, signal) => (hasNetwork ? network.ensure(engine, signal) : Promise.resolve()),
    hasNetwork: (engine, signal) => (hasNetwork ? network.stands(engine, signal) : Promise.resolve(true)),
    requestPass: () => {
      polls += 1;
    },
    forbids: (privileges) => allowed.forbids(privileges, supervisor.info),
    onRefused: (error) => {
      throw error;
    },
    ...more,
  });
  let isActive = true;
  const section = execSection({
    supervisor,
    unsupported: () => undefined,
    settleVolumes: () => Promise.resolve(),
    surroundings: async (seen) => ({
      isActive,
      version: String(version),
      addresses: { subnet: SUBNET, reserved: new Set(["172.31.0.1", "172.31.0.2"]) },
      volumes: { kept: new Set<string>(), isSettled: true, troubles: [] },
      ...(forbidden === undefined ? {} : { forbidden }),
      outlawed: await allowed.outlawed(seen, seen.info),
      check: check ?? (() => Promise.resolve(undefined)),
      placement:
        seen.info === undefined
          ? undefined
          : {
              owner: OWNER,
              host: { cpus: seen.info.cpus, memoryBytes: seen.info.memoryBytes },
              network: { name: network.name() },
              volumes: () => ({ missing: "there is none" }),
              policy: policy(),
              hashKey: Buffer.from("key"),
              product: seen.info.product,
            },
    }),
  });
  const wrapped = reconciler(section);
  return {
    dir: own,
    section: wrapped,
    ledger,
    supervisor,
    get polls() {
      return polls;
    },
    setActive(value: boolean) {
      isActive = value;
    },
    /** Acts as if other documents had arrived. */
    nextVersion() {
      version += 1;
    },
    look: (raw: unknown, signal = AbortSignal.timeout(60_000)): Promise<View> => wrapped.prepare(raw).observe(signal),
    /** Runs one pass; returns the steps taken and those left. */
    async pass(
      raw: unknown,
      signal = AbortSignal.timeout(60_000),
    ): Promise<{ readonly took: string[]; readonly after: View }> {
      const took: string[] = [];
      for (const isFirst of [true, false]) {
        const { steps, applyAll } = await wrapped.prepare(raw).observe(signal);
        const chosen = isFirst ? steps.filter(({ step }) => step.removes === true) : steps;
        took.push(...chosen.map(({ step }) => `${step.kind} ${step.subject}`));
        if (chosen.length > 0) await applyAll?.(chosen, signal);
      }
      return { took, after: await wrapped.prepare(raw).observe(signal) };
    },
    /** Stops everything as `kill -9` does, in its current state. */
    async crash() {
      database.sql.close();
      await supervisor.close();
    },
    async close() {
      await supervisor.close();
      database.sql.close();
      if (dir === undefined) rmSync(own, { recursive: true, force: true });
    },
  };
}
