import { copyFileSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { isDeepStrictEqual } from "node:util";
import { expect, onTestFinished } from "vitest";
import { DocumentApplied } from "../../../src/protocol/channel/methods.ts";
import { WhyReport, type Reason } from "../../../src/protocol/documents/reconcile.ts";
import { readLocal } from "../control-plane/exchange.ts";
import {
  freePort,
  registerNode,
  startAgent,
  startController,
  type AgentProgram,
  type ControllerProgram,
  type ProgramOptions,
} from "../machine/programs.ts";
import { aClient, type Client } from "./overlay-rig.ts";
import { waitFor } from "../wait-for.ts";

/** A controller and a node whose agent starts the overlay, all real processes that end with the test. */
export interface L4Stage {
  readonly controller: ControllerProgram;
  readonly uid: string;
  readonly nodeDir: string;
  /** The newest agent of the node. */
  readonly agent: AgentProgram;
  /** Calls the API below `/node/UID`, or `/v2/node/UID` with `v2`; fails on a status of 400 and above. */
  call(method: string, path: string, body?: unknown): Promise<unknown>;
  /** Creates a V2 item and returns its id. */
  create(section: "connectors" | "services", item: Readonly<Record<string, unknown>>): Promise<string>;
  /** Starts another agent; the former must have exited. */
  startAgain(options?: ProgramOptions): Promise<AgentProgram>;
  /** Returns the process id of the serving overlay. */
  overlayPid(): number;
  why(): Promise<readonly Reason[]>;
  /** Returns the last report on the node's document at the controller. */
  applied(): DocumentApplied | undefined;
  /** Waits until `why` and the last report of the document name exactly these items, each with its code; except the node itself. */
  untilNamed(codes: Readonly<Record<string, string>>, limitMs?: number): Promise<void>;
  /** Waits for the same in the shadow, which follows some seconds later. */
  untilShadowNames(codes: Readonly<Record<string, string>>): Promise<void>;
}

export interface L4StageOptions {
  readonly agent?: ProgramOptions;
  /** Called before the agent starts, with the controller's port. */
  readonly before?: (port: number) => Promise<ProgramOptions>;
  /** Registers what ends the programs: when the test has finished, by default. */
  readonly onFinished?: (end: () => void) => void;
}

export async function startL4Stage(
  dir: string,
  { agent: starting = {}, before, onFinished = onTestFinished }: L4StageOptions = {},
): Promise<L4Stage> {
  const port = await freePort();
  const controller = await startController(dir, port, [], { onFinished });
  const nodeDir = join(dir, "node");
  let options: ProgramOptions = { onFinished, ...starting, ...(await before?.(port)) };
  let agent = await startAgent(nodeDir, options);
  const overlayPid = (): number => Number(readFileSync(join(agent.runDir, "overlay.pid"), "utf8"));
  onFinished(() => {
    // It would start another one.
    agent.process.kill("SIGKILL");
    if (existsSync(join(agent.runDir, "overlay.pid"))) endProcess(overlayPid());
  });
  const uid = await registerNode(controller, agent, "node");
  const why = async (): Promise<readonly Reason[]> => WhyReport.parse(await readLocal(agent.runDir, "/v1/why")).reasons;
  const applied = (): DocumentApplied | undefined => readApplied(controller, uid);
  const call: L4Stage["call"] = async (method, path, body) => {
    const at = path.startsWith("v2/")
      ? `/v2/node/${uid}/${path.slice(3)}`
      : `/node/${uid}${path === "" ? "" : `/${path}`}`;
    const answer = await controller.call(method, at, body);
    if (answer.status >= 400) throw new Error(`${method} ${at}: ${answer.status} ${JSON.stringify(answer.body)}`);
    return answer.body;
  };
  return {
    controller,
    uid,
    nodeDir,
    get agent() {
      return agent;
    },
    call,
    async create(section, item) {
      const { id } = (await call("POST", `v2/config/${section}`, item)) as { readonly id: string };
      return id;
    },
    async startAgain(changed) {
      options = changed === undefined ? options : { onFinished, ...changed };
      agent = await startAgent(nodeDir, options);
      return agent;
    },
    overlayPid,
    why,
    applied,
    async untilShadowNames(codes) {
      await waitFor(`the shadow names ${JSON.stringify(codes)}`, async () =>
        isDeepStrictEqual(namedBy(await call("GET", "")), codes),
      );
    },
    async untilNamed(codes, limitMs) {
      const named = async (): Promise<Record<string, string>> =>
        Object.fromEntries(
          (await why())
            .filter(({ notice, section }) => notice !== true && section !== "health")
            .map(({ section, item = section, code }) => [item, code]),
        );
      const version = (): number | undefined => readVersion(controller, uid);
      let seen: unknown;
      await waitFor(
        `why names ${JSON.stringify(codes)}`,
        async () => {
          const report = applied();
          seen = { why: await named(), report, version: version() };
          if (!isDeepStrictEqual(await named(), codes)) return false;
          const sections = Object.entries(report?.sections ?? {});
          const issues = sections.flatMap(([name, { issues }]) =>
            issues.filter((text) => !text.startsWith("notice: ")).map((text) => `${name}: ${text}`),
          );
          return (
            report?.version === version() &&
            Object.keys(codes).every((item) => issues.some((text) => text.includes(item))) &&
            issues.length === Object.keys(codes).length
          );
        },
        limitMs,
      ).catch((error: unknown) => {
        expect.soft(seen).toEqual(codes);
        throw error;
      });
    },
  };
}

/** Sends a text through an open connection and waits for its echo. */
export async function talk(client: Client, text: string): Promise<void> {
  const before = client.text();
  client.socket.write(text);
  await waitFor(`the echo of ${text}`, () => client.text() === before + text || client.fate() !== undefined);
  expect(client.text()).toBe(before + text);
}

/** Reports whether a new connection is served. */
export async function isServed(port: number): Promise<boolean> {
  const client = aClient(port);
  client.socket.end("?");
  await waitFor("an end", () => client.fate() !== undefined);
  return client.text() === "?";
}

/** Waits until connections are refused. */
export async function untilRefused(port: number): Promise<void> {
  await waitFor(`nobody listens on ${port}`, async () => {
    const client = aClient(port);
    await waitFor("a fate", () => client.fate() !== undefined || client.socket.readyState === "open");
    client.socket.destroy();
    return client.fate() === "ECONNREFUSED";
  });
}

/** Kills a process of the test, if it still runs. */
export function endProcess(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It has exited by itself.
  }
}

/** Returns the items in the shadow of a node, with the code of each. */
function namedBy(node: unknown): Record<string, string> {
  const { shadow } = node as { readonly shadow: { readonly reported: Readonly<Record<string, unknown>> } };
  const named = Object.entries(shadow.reported).flatMap(([key, value]) => {
    const [, section = "", item] = /^config\.(services|connectors)\.(?:item\.(.+)|reason)$/.exec(key) ?? [];
    return section === "" ? [] : [[section, item, String(value).split(":")[0] ?? ""] as const];
  });
  const items = named.flatMap(([section, item, code]) =>
    item === undefined ? [] : [[`${section}.${item}`, code] as const],
  );
  // The reason of a section repeats its first item, unless it is the section's own.
  const own = named.flatMap(([section, item, code]) =>
    item !== undefined || items.some(([name]) => name.startsWith(`${section}.`)) ? [] : [[section, code] as const],
  );
  return Object.fromEntries([...items, ...own]);
}

/** Reads a copy of the database, which the controller locks; a copy made during a write is repeated. */
function queryController<T>(
  { dir }: ControllerProgram,
  sql: string,
  uid: string,
  read: (value: string) => T,
): T | undefined {
  for (let attempt = 1; ; attempt += 1) {
    const copy = tempCopy(dir);
    const database = new DatabaseSync(join(copy, "controller.db"));
    try {
      const row = database.prepare(sql).get(uid);
      return row === undefined ? undefined : read(String(row["value"]));
    } catch (error) {
      if (attempt === 5) throw error;
    } finally {
      database.close();
      rmSync(copy, { recursive: true });
    }
  }
}

function tempCopy(dir: string): string {
  const copy = mkdtempSync(join(tmpdir(), "hf-copy-"));
  for (const name of readdirSync(dir).filter((name) => /^controller\.db(-wal)?$/.test(name))) {
    copyFileSync(join(dir, name), join(copy, name));
  }
  return copy;
}

function readApplied(controller: ControllerProgram, uid: string): DocumentApplied | undefined {
  const sql = "SELECT report AS value FROM applied WHERE node = ? AND name = 'node'";
  return queryController(controller, sql, uid, (text) => DocumentApplied.parse(JSON.parse(text)));
}

function readVersion(controller: ControllerProgram, uid: string): number | undefined {
  const sql = "SELECT version AS value FROM documents WHERE node = ? AND name = 'node' ORDER BY version DESC LIMIT 1";
  return queryController(controller, sql, uid, Number);
}
