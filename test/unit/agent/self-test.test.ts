import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { testItself, type Loaders } from "../../../src/agent/self-test.ts";
import { openState } from "../../../src/agent/state.ts";
import { DesiredDocuments } from "../../../src/agent/shadow/desired.ts";
import { hostFiles } from "../../../src/host/files/files.ts";
import { ISS, nodeDocument, signDocument, signingKey, UID } from "../../support/control-plane/signing.ts";
import { tempDir } from "../../support/temp-dir.ts";

const NAMES = ["programs", "sqlite", "ffi", "crypto", "settings", "identity", "state"];

interface Rig {
  readonly stateDir: string;
  readonly work: string;
  readonly configFile: string;
  lines(loaders?: Loaders): Promise<readonly string[]>;
}

function rig(): Rig {
  const dir = tempDir();
  const [stateDir = "", work = "", configFile = ""] = ["state", "work", "agent.json"].map((name) => join(dir, name));
  mkdirSync(stateDir);
  return {
    stateDir,
    work,
    configFile,
    async lines(loaders = {}) {
      const lines: string[] = [];
      const print = (line: string): void => void lines.push(line);
      const isGood = await testItself({ stateDir, work, configFile, loaders }, print, AbortSignal.timeout(120_000));
      expect(isGood).toBe(!lines.some((line) => line.startsWith("FAIL")));
      expect(existsSync(work)).toBe(false);
      return lines;
    },
  };
}

const passed = (except: Readonly<Record<string, unknown>> = {}): readonly unknown[] =>
  NAMES.map((name) => except[name] ?? `PASS ${name}`);

async function withDocument(stateDir: string): Promise<void> {
  const files = hostFiles();
  await (await openState(files, stateDir)).close();
  const key = await signingKey();
  const documents = await DesiredDocuments.load(files, stateDir);
  const trust = { iss: ISS, uid: UID, keys: new Map([[key.kid, key.publicKey]]) };
  await documents.accept("node", await signDocument(key, "node", 1, nodeDocument()), trust, 1);
}

test("an empty machine passes", async () => {
  expect(await rig().lines()).toEqual(passed());
});

test("names a module that cannot be loaded", async () => {
  const loaders = { overlay: () => Promise.reject(new Error("Cannot find module 'x'")) };
  expect(await rig().lines(loaders)).toEqual(passed({ programs: "FAIL programs: overlay: Cannot find module 'x'" }));
});

test("names settings that this version does not understand", async () => {
  const own = rig();
  writeFileSync(own.configFile, `{"logLevel": "warp"}`);
  expect(await own.lines()).toEqual(passed({ settings: expect.stringMatching(/^FAIL settings: .*logLevel/) }));
  writeFileSync(own.configFile, `{"warp": true}`);
  expect(await own.lines()).toEqual(passed());
});

test("tests a copy of the state, and leaves the original unchanged", async () => {
  const own = rig();
  await withDocument(own.stateDir);
  const path = join(own.stateDir, "state.db");
  const before = readFileSync(path);
  const holder = await openState(hostFiles(), own.stateDir);
  expect(await own.lines()).toEqual(passed());
  await holder.close();
  expect(readFileSync(path).length).toBe(before.length);
});

test("accepts a state that is too new, since the version sets it aside when it starts", async () => {
  const own = rig();
  await withDocument(own.stateDir);
  const sql = new DatabaseSync(join(own.stateDir, "state.db"));
  sql.exec("PRAGMA user_version=9999");
  sql.close();
  expect(await own.lines()).toEqual(passed({}));
});

test("names an applied document that this version does not understand", async () => {
  const own = rig();
  await withDocument(own.stateDir);
  const path = join(own.stateDir, "desired", "node.json");
  const { body } = JSON.parse(readFileSync(path, "utf8")) as { body: { jws: string; receivedAt: number } };
  const [header, payload = "", signature] = body.jws.split(".");
  const claims = JSON.parse(Buffer.from(payload, "base64url").toString()) as { body: Record<string, unknown> };
  claims.body["state"] = "HIBERNATING";
  const changed = Buffer.from(JSON.stringify(claims)).toString("base64url");
  const text = JSON.stringify({ ...body, jws: `${header}.${changed}.${signature}` });
  const { createHash } = await import("node:crypto");
  const sha256 = createHash("sha256").update(text).digest("hex");
  for (const name of [path, `${path}.previous`]) {
    writeFileSync(name, `{"format":1,"sha256":"${sha256}","body":${text}}\n`);
  }
  expect(await own.lines()).toEqual(passed({ state: expect.stringMatching(/^FAIL state: .*document node/) }));
});

test("names an unreadable identity", async () => {
  const own = rig();
  mkdirSync(join(own.stateDir, "identity"));
  writeFileSync(join(own.stateDir, "identity", "registration.json"), "{}");
  expect(await own.lines()).toEqual(passed({ identity: expect.stringMatching(/^FAIL identity: /) }));
});
