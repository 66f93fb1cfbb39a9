import { randomUUID } from "node:crypto";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { identityFiles, publicKeys } from "../../../src/agent/identity/identity.ts";
import { registerOffline } from "../../../src/agent/offline/offline.ts";
import type { Trust } from "../../../src/agent/identity/identity.ts";
import { DesiredDocuments } from "../../../src/agent/shadow/desired.ts";
import { openState } from "../../../src/agent/state.ts";
import type { Controller } from "../../../src/controller/controller.ts";
import { hostFiles } from "../../../src/host/files/files.ts";
import { keySetOf } from "../../../src/protocol/channel/keys-chain.ts";
import { peekClaims } from "../../../src/protocol/channel/jws.ts";
import { bundled } from "../bundled.ts";
import { deliver } from "../control-plane/counted-trigger.ts";
import { BUNDLE, FLAGS } from "../machine/programs.ts";
import { ISS, nodeDocument, signDocument, signingKey, UID } from "../control-plane/signing.ts";
import type { Launch } from "./strace.ts";
import { tempDir } from "../temp-dir.ts";

const PRELOADED_WAIT = join(import.meta.dirname, "preloaded-wait.ts");
const DRIVER = join(import.meta.dirname, "durable-driver.ts");

/** An operation that must leave the old state or the new one, wherever it is interrupted. */
export interface Operation<L extends Launch> {
  /** Creates a state directory, and returns the program that runs the operation on it. */
  prepare(): Promise<L>;
  /** Returns the same launch with everything below another directory. */
  moved(launch: L, dir: string): L;
  /** Starts again on the result and fails unless that is the old state or the new one. */
  check(launch: L): Promise<void>;
  /** Fails unless the result is the new state. */
  checkDone(launch: L): Promise<void>;
}

export interface Registering extends Launch {
  readonly license: string;
}

/** `holdfast register` without an agent. */
export function registering(controller: Controller): Operation<Registering> {
  let made = 0;
  const keysOf = async (stateDir: string) => {
    const stored = await identityFiles(hostFiles(), stateDir).keys.load();
    if (stored.is !== "good") throw new Error(`keys: ${stored.is}`);
    return publicKeys(stored.value);
  };
  const isTheNode = async ({ license, stateDir }: Registering): Promise<void> => {
    const { jti, name } = peekClaims("holdfast-license+jwt", license);
    const nodes = (await controller.nodes.all()).filter((node) => node.name === name);
    expect(nodes.map(({ uid }) => uid)).toEqual([jti]);
    expect(nodes[0]?.keys?.jwk).toEqual(await keysOf(stateDir));
    expect((await identityFiles(hostFiles(), stateDir).registration.load()).is).toBe("good");
    expectTidy(stateDir);
  };
  return {
    async prepare() {
      made += 1;
      const license = await controller.licenses.issue({ name: `n${made}`, type: "Node", user: "test" });
      const dir = tempDir();
      const file = join(dir, "license");
      writeFileSync(file, license);
      const stateDir = join(dir, "state");
      const args = ["register", file, "--state", stateDir, "--run", join(dir, "run")];
      const port = Number(new URL(controller.url).port);
      return { args: [...FLAGS, "--import", PRELOADED_WAIT, BUNDLE, ...args], stateDir, port, license };
    },
    moved: inState,
    async check(launch) {
      try {
        await registerOffline(launch.stateDir, launch.license, new AbortController().signal);
      } catch (error) {
        expect(error).toMatchObject({ code: "already-registered" });
      }
      await isTheNode(launch);
    },
    checkDone: isTheNode,
  };
}

export interface Saving extends Launch {
  readonly newest: string;
}

/** Replaces the applied document by a newer one. */
export async function savingDocument(): Promise<Operation<Saving>> {
  const driven = await driver();
  const key = await signingKey();
  const trust: Trust = { iss: ISS, uid: UID, keys: await keySetOf([key.publicKey]) };
  const node = (version: number) => signDocument(key, "node", version, nodeDocument({ tags: { v: String(version) } }));
  const template = tempDir();
  mkdirSync(join(template, "desired"));
  const before = await DesiredDocuments.load(hostFiles(), template);
  for (const version of [2, 3]) await before.accept("node", await node(version), trust, version);
  const [older, newest, newer] = await Promise.all([node(2), node(4), node(5)]);

  const load = async (stateDir: string): Promise<DesiredDocuments> => {
    const documents = await DesiredDocuments.load(hostFiles(), stateDir);
    expect(documents.damage).toEqual([]);
    return documents;
  };
  return {
    prepare() {
      const stateDir = join(tempDir(), "state");
      cpSync(template, stateDir, { recursive: true });
      return Promise.resolve({
        ...driven({ do: "save", stateDir, jws: newest, key: key.publicKey }),
        stateDir,
        newest,
      });
    },
    moved: inState,
    async check({ stateDir }) {
      const documents = await load(stateDir);
      const version = documents.version("node");
      expect([3, 4]).toContain(version);
      expect(documents.current.node?.body.tags).toEqual({ v: String(version) });
      await expect(documents.accept("node", older, trust, 9)).rejects.toMatchObject({ code: "below-floor" });
      await documents.accept("node", newest, trust, 9);
      await documents.accept("node", newer, trust, 10);
      expect((await load(stateDir)).version("node")).toBe(5);
      await (await openState(hostFiles(), stateDir)).close();
      expectTidy(stateDir);
    },
    async checkDone({ stateDir }) {
      const documents = await load(stateDir);
      expect(documents.version("node")).toBe(4);
      await expect(documents.accept("node", older, trust, 9)).rejects.toMatchObject({ code: "below-floor" });
    },
  };
}

/** Rolls the applied document back to the previous one. */
export async function rollingBack(): Promise<Operation<Launch>> {
  const driven = await driver();
  const key = await signingKey();
  const trust: Trust = { iss: ISS, uid: UID, keys: await keySetOf([key.publicKey]) };
  const node = (version: number) => signDocument(key, "node", version, nodeDocument({ tags: { v: String(version) } }));
  const template = tempDir();
  mkdirSync(join(template, "desired"));
  const before = await DesiredDocuments.load(hostFiles(), template);
  for (const version of [2, 3]) await before.accept("node", await node(version), trust, version);
  const [refused, newer] = await Promise.all([node(3), node(4)]);

  const isBack = async (documents: DesiredDocuments): Promise<void> => {
    expect(documents.current.node).toMatchObject({ version: 2, refused: { version: 3 }, body: { tags: { v: "2" } } });
    await expect(documents.accept("node", refused, trust, 9)).rejects.toMatchObject({ code: "rolled-back" });
  };
  return {
    prepare() {
      const stateDir = join(tempDir(), "state");
      cpSync(template, stateDir, { recursive: true });
      return Promise.resolve(driven({ do: "rollback", stateDir }));
    },
    moved: inState,
    async check({ stateDir }) {
      const documents = await DesiredDocuments.load(hostFiles(), stateDir);
      expect(documents.damage).toEqual([]);
      if (documents.version("node") === 3) {
        expect(documents.current.node?.refused).toBeUndefined();
        await documents.rollBack("node", 8);
      }
      await isBack(documents);
      await isBack(await DesiredDocuments.load(hostFiles(), stateDir));
      await documents.accept("node", newer, trust, 10);
      expect((await DesiredDocuments.load(hostFiles(), stateDir)).current.node).toMatchObject({ version: 4 });
      await (await openState(hostFiles(), stateDir)).close();
      expectTidy(stateDir);
    },
    checkDone: async ({ stateDir }) => isBack(await DesiredDocuments.load(hostFiles(), stateDir)),
  };
}

export interface Triggering extends Launch {
  readonly id: string;
  readonly effectFile: string;
}

/** Receives a trigger that changes something outside the state directory. */
export async function journallingTrigger(): Promise<Operation<Triggering>> {
  const driven = await driver();
  const template = tempDir();
  await deliver(template, randomUUID(), join(tempDir(), "effect"));
  const runs = (file: string): number => (existsSync(file) ? readFileSync(file, "utf8").split("\n").length - 1 : 0);
  return {
    prepare() {
      const dir = tempDir();
      const stateDir = join(dir, "state");
      cpSync(template, stateDir, { recursive: true });
      const work = { stateDir, id: randomUUID(), effectFile: join(dir, "effect") };
      return Promise.resolve({ ...driven({ do: "trigger", ...work }), ...work });
    },
    moved: (launch, dir) => ({ ...inState(launch, dir), effectFile: join(dir, "effect") }),
    async check({ id, effectFile, stateDir }) {
      const first = await deliver(stateDir, id, effectFile);
      if ("error" in first) expect(first.error.code).toBe("interrupted");
      else expect([first.body, runs(effectFile)]).toEqual([{ ran: true }, 1]);
      expect(await deliver(stateDir, id, effectFile)).toEqual(first);
      expect(runs(effectFile)).toBeLessThanOrEqual(1);
      expectTidy(stateDir);
    },
    async checkDone({ id, effectFile, stateDir }) {
      expect(await deliver(stateDir, id, effectFile)).toEqual({ body: { ran: true } });
      expect(runs(effectFile)).toBe(1);
    },
  };
}

/** Expects no set-aside file, and no file that nothing will remove. */
export function expectTidy(stateDir: string): void {
  const names = readdirSync(stateDir, { recursive: true, encoding: "utf8" });
  expect(names.filter((name) => /\.damaged|\.tmp$/.test(name))).toEqual([]);
}

function inState<L extends Launch>(launch: L, dir: string): L {
  return { ...launch, stateDir: join(dir, "state") };
}

/** Called in each test: hooks of this module would belong to the file that imports it first. */
async function driver(): Promise<(work: { readonly stateDir: string } & Record<string, unknown>) => Launch> {
  const program = bundled(DRIVER);
  return (work) => {
    const file = join(tempDir(), "work.json");
    writeFileSync(file, JSON.stringify(work));
    return { args: [...FLAGS, program, file], stateDir: work.stateDir };
  };
}
