import { mkdirSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { join } from "node:path";
import { pino } from "pino";
import { onTestFinished } from "vitest";
import { systemClock } from "../../../src/host/clock.ts";
import { hostFiles } from "../../../src/host/files/files.ts";
import { Overlay, type OverlayOptions } from "../../../src/host/overlay/client.ts";
import type { StartOverlay } from "../../../src/host/overlay/process.ts";
import { linesOf } from "../../../src/lib/text/lines.ts";
import { startOverlay, type Overlay as RunningOverlay } from "../../../src/overlay/overlay.ts";
import type { OverlayFlow } from "../../../src/protocol/overlay/overlay.ts";
import { tempDir } from "../temp-dir.ts";
import { waitFor } from "../wait-for.ts";

/** Options of the owner; `isManaged` means that others start the overlay. */
export type OwnerOptions = Partial<OverlayOptions> & { readonly isManaged?: boolean };

/** An owner of the overlay's table, and the directories it shares with the overlay. */
export interface OwnerRig {
  readonly owner: Overlay;
  readonly stateDir: string;
  readonly runDir: string;
  /** Reported changes, in order. */
  readonly changes: string[];
  readonly faults: string[];
  /** Reported states of services, in order. */
  readonly health: string[];
  readonly flows: OverlayFlow[];
  /** Overlays started in this process, newest last. */
  readonly running: RunningOverlay[];
  /** Makes another overlay take over, in this process. */
  succeed(): Promise<void>;
  /** Creates another owner of the same overlay. */
  another(options?: OwnerOptions): Overlay;
}

/** An owner that starts real overlays in this process; everything ends with the test. */
export function ownerRig(given: OwnerOptions = {}): OwnerRig {
  const dir = tempDir();
  const [stateDir, runDir] = [join(dir, "overlay"), join(dir, "run")];
  const running: RunningOverlay[] = [];
  const changes: string[] = [];
  const faults: string[] = [];
  const health: string[] = [];
  const flows: OverlayFlow[] = [];
  const another = ({ isManaged = false, ...options }: OwnerOptions = {}): Overlay => {
    const owner = new Overlay({
      clock: systemClock(),
      log: pino({ level: "silent" }),
      files: hostFiles(),
      stateDir,
      runDir,
      ...(isManaged ? {} : { start: inThisProcess(stateDir, runDir, running) }),
      onChanged: (what) => void changes.push(what),
      onHealth: (services) => void health.push(...services.map(({ name, state }) => `${name} ${state}`)),
      onFlows: (ended) => void flows.push(...ended),
      onFault: ({ message }) => void faults.push(message),
      onMended: (file) => void faults.push(`${file} is mended`),
      ...options,
    });
    onTestFinished(() => owner.close());
    return owner;
  };
  const succeed = async (): Promise<void> => {
    inThisProcess(stateDir, runDir, running, true)();
    const before = running.length;
    await waitFor("the successor serves", () => running.length > before);
  };
  return { owner: another(given), stateDir, runDir, changes, faults, health, flows, running, succeed, another };
}

function inThisProcess(stateDir: string, runDir: string, running: RunningOverlay[], isSuccessor = false): StartOverlay {
  return () => {
    const starting = startOverlay({
      stateDir,
      runDir,
      isSuccessor,
      endsWithState: true,
      clock: systemClock(),
      files: hostFiles(),
      log: pino({ level: "silent" }),
      askName: () => Promise.reject(new Error("no names here")),
      localAddresses: () => [],
      descriptorLimit: 100_000,
      onMesh: () => undefined,
      onFirstFlow: () => undefined,
      makeRoom: () => undefined,
    });
    onTestFinished(async () => (await starting.catch(() => undefined))?.close());
    const ended = starting.then(
      async (overlay) => {
        running.push(overlay);
        await overlay.ended;
        return "exit status 0";
      },
      (error: unknown) => String(error),
    );
    return { pid: process.pid, ended };
  };
}

/** Reaction of a scripted overlay to a call: answers with `result` or `error`, sends `raw`, closes the connection, or nothing. */
export type Scripted =
  | { readonly result: unknown }
  | { readonly error: { readonly code: number; readonly message: string; readonly data?: unknown } }
  | { readonly raw: string }
  | "close"
  | "hang";

export interface ScriptedOverlay {
  /** Every call so far. */
  readonly calls: { readonly method: string; readonly params: Readonly<Record<string, unknown>> }[];
  connections(): number;
  /** Returns the number of open connections. */
  open(): number;
  notify(method: string, params: unknown): void;
  /** Removes the socket and closes every connection. */
  end(): Promise<void>;
  answer: (method: string, params: Readonly<Record<string, unknown>>) => Scripted;
}

export const COUNTERS = {
  pid: 4242,
  startedAt: 1,
  version: 0,
  draining: false,
  flowsDropped: 0,
  listeners: [],
  counters: [],
  services: [],
};
export const NO_TABLE = { version: 0, hash: "", listeners: [], services: [] };

/** Answers of an overlay without a table that accepts everything. */
export function friendly(method: string): Scripted {
  switch (method) {
    case "counters.get":
      return { result: COUNTERS };
    case "table.get":
      return { result: NO_TABLE };
    default:
      return { result: { version: 1, hash: "00", listeners: [] } };
  }
}

/** Serves the control socket of a run directory with the test's reactions. */
export async function scriptedOverlay(runDir: string): Promise<ScriptedOverlay> {
  mkdirSync(runDir, { recursive: true, mode: 0o750 });
  const calls: ScriptedOverlay["calls"] = [];
  const sockets = new Set<Socket>();
  let newest: Socket | undefined;
  let connections = 0;
  const script: ScriptedOverlay = {
    calls,
    connections: () => connections,
    open: () => [...sockets].filter((socket) => !socket.destroyed).length,
    notify: (method, params) => void newest?.write(`${JSON.stringify({ jsonrpc: "2.0", method, params })}\n`),
    end: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
    answer: friendly,
  };
  const serve = async (socket: Socket): Promise<void> => {
    for await (const line of linesOf(socket, 1_000_000)) {
      if (newest !== socket) connections += 1;
      newest = socket;
      const call = JSON.parse(line.toString()) as { id: number } & ScriptedOverlay["calls"][number];
      calls.push(call);
      const answer = script.answer(call.method, call.params);
      if (answer === "hang") continue;
      if (answer === "close") return void socket.destroy();
      const { id } = call;
      socket.write("raw" in answer ? answer.raw : `${JSON.stringify({ jsonrpc: "2.0", id, ...answer })}\n`);
    }
  };
  const server = createServer((socket) => {
    sockets.add(socket.on("error", () => undefined));
    serve(socket).catch(() => socket.destroy());
  });
  await new Promise<void>((resolve) => server.listen(join(runDir, "overlay.sock"), resolve));
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return script;
}
