import { generateKeyPairSync, randomUUID } from "node:crypto";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { parseArgs } from "node:util";
import { importJWK } from "jose";
import { AgentError, HostError, InternalError, toError } from "../errors.ts";
import { systemClock } from "../host/clock.ts";
import { copySettled } from "../host/files/copy-settled.ts";
import { hostDirectories } from "../host/files/directories.ts";
import { hostFiles, type Files } from "../host/files/files.ts";
import { loadLibc } from "../host/process/libc.ts";
import { valueOf } from "../host/files/state-file.ts";
import { plainLine } from "../lib/text/terminal-text.ts";
import { DocumentName } from "../protocol/documents/claims.ts";
import { signJws, verifyJws } from "../protocol/channel/jws.ts";
import { Ed25519PublicKey, thumbprint } from "../protocol/values/keys.ts";
import { identityFiles } from "./identity/identity.ts";
import { DEFAULT_STATE_DIR, readSettings } from "./settings.ts";
import { DesiredDocuments } from "./shadow/desired.ts";
import { Stored } from "./shadow/held-document.ts";
import { openState } from "./state.ts";
import { stateFile } from "../host/files/state-file.ts";

/** Modules that are loaded on demand. */
export type Loaders = Readonly<Record<string, () => Promise<unknown>>>;

export interface SelfTestOptions {
  readonly stateDir: string;
  /** The default file when undefined. */
  readonly configFile: string | undefined;
  /** A directory that is created for the copy of the state, and removed. */
  readonly work: string;
  readonly loaders: Loaders;
}

/** Reason why a check was skipped, which is not a fault of this version; undefined if it passed. */
type Skipped = string | undefined;
type Check = (signal: AbortSignal) => Promise<Skipped>;

const DEADLINE_MS = 60_000;
const OPTIONS = { state: { type: "string" }, config: { type: "string" }, work: { type: "string" } } as const;

/** The program `holdfast self-test`, which checks that this version works on this machine before an upgrade switches to it. */
export function selfTest(loaders: Loaders): { run(argv: readonly string[]): Promise<number> } {
  return {
    async run(argv) {
      process.umask(0o077);
      const print = (line: string): void => void process.stdout.write(`${line}\n`);
      const stopping = new AbortController();
      process.once("SIGTERM", () => stopping.abort(new HostError("cancelled", "stopped by SIGTERM")));
      const stop = systemClock().after(DEADLINE_MS, () => {
        print(`FAIL time: it took longer than ${DEADLINE_MS / 1000} s`);
        process.exit(1);
      });
      try {
        const { values } = parseArgs({ args: [...argv], options: OPTIONS, strict: true, allowPositionals: false });
        const { state: stateDir = DEFAULT_STATE_DIR, config: configFile, work } = values;
        const own = { stateDir, configFile, loaders, work: work ?? `/tmp/holdfast-self-test-${randomUUID()}` };
        return (await testItself(own, print, stopping.signal)) ? 0 : 1;
      } catch (error) {
        process.stderr.write(`holdfast self-test: ${toError(error).message}\n`);
        return 2;
      } finally {
        stop();
      }
    },
  };
}

/** Runs every check, and prints a line for each. */
export async function testItself(
  options: SelfTestOptions,
  print: (line: string) => void,
  signal: AbortSignal,
): Promise<boolean> {
  let isGood = true;
  for (const [name, check] of Object.entries(checksOf(options))) {
    signal.throwIfAborted();
    try {
      const skipped = await check(signal);
      print(skipped === undefined ? `PASS ${name}` : `SKIP ${name}: ${plainLine(skipped)}`);
    } catch (error) {
      signal.throwIfAborted();
      // A full disk is no fault of this version.
      if (isOfTheMachine(error)) {
        print(`SKIP ${name}: ${plainLine(toError(error).message)}`);
        continue;
      }
      print(`FAIL ${name}: ${plainLine(toError(error).message)}`);
      isGood = false;
    }
  }
  return isGood;
}

const isOfTheMachine = (error: unknown): boolean =>
  (error instanceof AgentError && ["disk-full", "read-only", "access-denied"].includes(error.code)) ||
  /\b(?:ENOSPC|EDQUOT|EROFS|EACCES)\b/.test(toError(error).message);

function checksOf({ stateDir, configFile, work, loaders }: SelfTestOptions): Readonly<Record<string, Check>> {
  const files = hostFiles();
  return {
    async programs() {
      for (const [name, load] of Object.entries(loaders)) {
        await load().catch((error: unknown) => {
          throw new InternalError("not-loaded", `${name}: ${toError(error).message}`, { cause: error });
        });
      }
      return undefined;
    },
    async sqlite() {
      const sql = new DatabaseSync(":memory:");
      try {
        sql.exec("CREATE TABLE t (a INTEGER) STRICT; INSERT INTO t VALUES (42)");
        expect(sql.prepare("SELECT a FROM t").get()?.["a"] === 42, "what was written is not what is read");
      } finally {
        sql.close();
      }
      return undefined;
    },
    async ffi() {
      using libc = loadLibc();
      expect(libc !== undefined, "this runtime cannot call the C library");
      return undefined;
    },
    crypto: checkCrypto,
    async settings() {
      const isThere = configFile !== undefined && (await files.read(configFile)) !== undefined;
      const { problems = [] } = await readSettings(isThere ? ["--config", configFile] : [], files);
      const wrong = problems.find(({ code }) => code === "bad-settings");
      expect(wrong === undefined, wrong?.message ?? "");
      return undefined;
    },
    identity: async () => {
      const found = await identityFiles(files, stateDir).registration.inspect();
      expect(found.is !== "lost", "this version cannot read what the node registered with");
      return undefined;
    },
    state: (signal) => checkState(stateDir, work, files, signal),
  };
}

async function checkCrypto(): Promise<Skipped> {
  const jwk = generateKeyPairSync("ed25519").privateKey.export({ format: "jwk" });
  const publicKey = Ed25519PublicKey.parse(jwk);
  const privateKey = await importJWK(jwk, "Ed25519");
  expect(!(privateKey instanceof Uint8Array), "an Ed25519 key is not one");
  const kid = await thumbprint(publicKey);
  const claims = { name: "keys" as const, version: 1, iat: 1, root: publicKey, signing: [publicKey], spki: [] };
  const jws = await signJws("holdfast-keys+jwt", claims, { kid, privateKey });
  const keys = new Map([[kid, publicKey]]);
  expect((await verifyJws("holdfast-keys+jwt", jws, keys)).version === 1, "what was signed does not verify");
  const [header, , signature] = jws.split(".");
  const other = Buffer.from(JSON.stringify({ ...claims, version: 2 })).toString("base64url");
  const isAccepted = await verifyJws("holdfast-keys+jwt", `${header}.${other}.${signature}`, keys).then(
    () => true,
    () => false,
  );
  expect(!isAccepted, "what was not signed verifies");
  return undefined;
}

/** Opens a copy of the node's state with this version: migrates its schema, and parses its documents. */
async function checkState(stateDir: string, work: string, files: Files, signal: AbortSignal): Promise<Skipped> {
  const names = ["state.db", "state.db-wal", "desired", "reported"];
  const directories = hostDirectories();
  try {
    if (!(await copySettled(stateDir, work, names, { clock: systemClock(), signal }))) {
      return "the state changes faster than it can be copied";
    }
    const state = await openState(files, work);
    try {
      const { damagedCopy, isLogDamaged, isPersistent } = state.database;
      if (damagedCopy !== undefined || isLogDamaged || !isPersistent) return "the copy of the state is not whole";
    } finally {
      await state.close();
    }
    // Read first, since loading sets aside what it cannot use.
    const there = await Promise.all(DocumentName.options.map((name) => isStored(files, work, name)));
    const { current } = await DesiredDocuments.load(files, work);
    const lost = DocumentName.options.filter((name, index) => there[index] === true && current[name] === undefined);
    expect(lost.length === 0, `this version does not understand the document ${lost.join(" and ")} in force`);
    return undefined;
  } finally {
    while (!(await directories.removeTree(work, 10_000, AbortSignal.timeout(DEADLINE_MS))));
  }
}

/** Reports whether a document exists and is not damaged. */
async function isStored(files: Files, stateDir: string, name: DocumentName): Promise<boolean> {
  const path = join(stateDir, "desired", `${name}.json`);
  return valueOf(await stateFile(files, { path, schema: Stored, keepsPrevious: true }).inspect()) !== undefined;
}

function expect(holds: boolean, otherwise: string): asserts holds {
  if (!holds) throw new InternalError("self-test-failed", otherwise);
}
