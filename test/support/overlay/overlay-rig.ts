import { spawn, type ChildProcess } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { connectControl, type ControlClient } from "../../../src/host/overlay/control.ts";
import { DataPlane, type DataPlaneOptions } from "../../../src/overlay/data-plane.ts";
import { flowLog } from "../../../src/overlay/flow/flow-log.ts";
import { systemClock } from "../../../src/host/clock.ts";
import type {
  ListenerCounters,
  ListenerState,
  OverlayFlow,
  OverlayListener,
  OverlayService,
  OverlayTable,
  ServiceHealth,
} from "../../../src/protocol/overlay/overlay.ts";
import { bundled } from "../bundled.ts";
import { BUNDLE, FLAGS } from "../machine/programs.ts";
import { startAsUnit } from "../machine/real-units.ts";
import { waitFor } from "../wait-for.ts";

const PROGRAM = join(import.meta.dirname, "overlay-program.ts");

/** A listener on 127.0.0.1 that leads to a port there, by default. */
export function aListener(
  port: number,
  target: number | OverlayListener["target"],
  more: Partial<OverlayListener> = {},
): OverlayListener {
  return {
    key: `tcp:${port}`,
    connector: `c${port}`,
    protocol: "tcp",
    addresses: ["127.0.0.1"],
    port,
    target: typeof target === "number" ? { host: "127.0.0.1", port: target } : target,
    maxFlows: 10_000,
    idleTimeoutMs: 900_000,
    ...more,
  };
}

export function aService(name: string, port: number, more: Partial<OverlayService> = {}): OverlayService {
  return {
    name,
    protocol: "tcp",
    host: "127.0.0.1",
    port,
    connectTimeoutMs: 5000,
    idleTimeoutMs: 900_000,
    ...more,
  };
}

let version = 0;

/** A table newer than all before. */
export function aTable(listeners: OverlayListener[], services: OverlayService[] = []): OverlayTable {
  version += 1;
  return { format: 1, version, services, listeners };
}

export interface PlaneRig {
  readonly plane: DataPlane;
  readonly ended: OverlayFlow[];
  readonly listeners: ListenerState[];
  readonly services: ServiceHealth[];
  /** Applies a table. */
  apply(listeners: OverlayListener[], services?: OverlayService[]): Promise<void>;
  /** The counters of the only listener, or of the one with this key. */
  counters(key?: string): ListenerCounters;
  /** Returns the next finished or refused flow, in order. */
  nextFlow(): Promise<OverlayFlow>;
}

/** A data plane in this process, closed with the test. */
export function planeRig(options: Partial<DataPlaneOptions> = {}): PlaneRig {
  const clock = options.clock ?? systemClock();
  const flows = flowLog(clock);
  const ended: OverlayFlow[] = [];
  const listeners: ListenerState[] = [];
  const services: ServiceHealth[] = [];
  flows.deliverTo((batch) => void ended.push(...batch));
  const plane = new DataPlane({
    clock,
    askName: () => Promise.reject(new Error("no names here")),
    localAddresses: () => [],
    descriptorLimit: 100_000,
    flows,
    onFirstFlow: () => undefined,
    onListeners: (changed) => void listeners.push(...changed),
    onServices: (changed) => void services.push(...changed),
    ...options,
  });
  onTestFinished(() => plane.close());
  let taken = 0;
  return {
    plane,
    ended,
    listeners,
    services,
    apply: (wanted, known = []) => plane.apply(aTable(wanted, known)),
    counters(key) {
      const all = plane.counters();
      const found = key === undefined ? all[0] : all.find((one) => one.key === key);
      if (found === undefined) throw new Error(`no counters of ${key ?? "anything"}`);
      return found;
    },
    async nextFlow() {
      flows.flush();
      taken += 1;
      return waitFor("a flow has ended", () => {
        flows.flush();
        return ended[taken - 1];
      });
    },
  };
}

/** A server of the test on 127.0.0.1 that keeps half-closes; returns its port. It and its connections end with the test. */
export async function aServer(
  onConnection: (socket: Socket) => void,
  host = "127.0.0.1",
  onFinished: (end: () => void) => void = onTestFinished,
): Promise<number> {
  const sockets = new Set<Socket>();
  const server: Server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket.on("error", () => undefined));
    onConnection(socket);
  });
  await new Promise<void>((resolve) => server.listen({ host, port: 0, backlog: 8192 }, resolve));
  onFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return (server.address() as AddressInfo).port;
}

/** Makes further connects to host and port hang, by a process that never accepts and has a full queue. */
export async function makeSilent(host: string, port: number): Promise<void> {
  const script = `const s = require("node:net").createServer();
    s.listen({ host: "${host}", port: ${port}, backlog: 1 }, () => {
      process.stdout.write("listening", () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0));
    });`;
  const child = spawn(process.execPath, ["-e", script], { stdio: ["ignore", "pipe", "inherit"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  await once(child.stdout, "data");
  for (let i = 0; i < 8; i += 1) {
    const socket = connect({ host, port }).on("error", () => undefined);
    onTestFinished(() => void socket.destroy());
  }
  await waitFor("connects hang", async () => {
    const socket = connect({ host, port }).on("error", () => undefined);
    const isConnected = await Promise.race([
      once(socket, "connect").then(() => true),
      new Promise<false>((resolve) => setTimeout(() => resolve(false), 200)),
    ]);
    socket.destroy();
    return !isConnected;
  });
}

/** Echoes what it receives, and its end. */
export function echo(socket: Socket): void {
  socket.pipe(socket);
}

/** A client's connection that keeps half-closes and stores what it receives. */
export interface Client {
  readonly socket: Socket;
  readonly received: Buffer[];
  text(): string;
  /** The code of an error, `end` after the other side's half-close, or undefined. */
  fate(): string | undefined;
}

export function aClient(port: number, host = "127.0.0.1", localAddress?: string): Client {
  const socket = connect({
    host,
    port,
    allowHalfOpen: true,
    ...(localAddress === undefined ? {} : { localAddress }),
  });
  onTestFinished(() => void socket.destroy());
  const received: Buffer[] = [];
  let fate: string | undefined;
  socket.on("data", (chunk: Buffer) => received.push(chunk));
  socket.on("end", () => (fate ??= "end"));
  socket.on("error", (error: NodeJS.ErrnoException) => (fate = error.code));
  return { socket, received, text: () => Buffer.concat(received).toString(), fate: () => fate };
}

export interface OverlayProcess {
  readonly child: ChildProcess;
  readonly pid: number;
  readonly stateDir: string;
  readonly runDir: string;
  readonly ended: Promise<number | null>;
  output(): string;
}

/** The real program in a process of its own, by default bundled from the sources; killed with the test. */
export function startOverlayProcess(
  dir: string,
  more: readonly string[] = [],
  within: readonly string[] = [],
  program: readonly string[] = [bundled(PROGRAM)],
): OverlayProcess {
  const stateDir = join(dir, "state");
  const runDir = join(dir, "run");
  const args = [...program, "overlay", "--state", stateDir, "--run", runDir, ...more];
  const [command = process.execPath, ...rest] = [...within, process.execPath, ...args];
  const log = join(dir, "overlay.log");
  const asUnit = startAsUnit({ command: [process.execPath, ...args], within, log });
  const child = asUnit ?? spawn(command, rest, { stdio: ["ignore", "pipe", "pipe"] });
  let printed = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding("utf8").on("data", (text: string) => (printed += text));
  }
  const output = (): string => (asUnit !== undefined && existsSync(log) ? readFileSync(log, "utf8") : printed);
  const ended = new Promise<number | null>((resolve) => child.once("exit", resolve));
  onTestFinished(() => void child.kill("SIGKILL"));
  return { child, pid: child.pid ?? 0, stateDir, runDir, ended, output };
}

/** Sets the kernel as an agent does, as root: waiting connects move to a successor. */
export function asBesideAnAgent(): void {
  if (process.getuid?.() === 0) writeFileSync("/proc/sys/net/ipv4/tcp_migrate_req", "1");
}

/** The built program, otherwise the same. */
export function startBuiltOverlay(
  dir: string,
  more: readonly string[] = [],
  within: readonly string[] = [],
): OverlayProcess {
  return startOverlayProcess(dir, more, within, [...FLAGS, BUNDLE]);
}

/** Connects to an overlay's control socket as the agent does, as soon as it exists. */
export function asAgent(
  overlay: OverlayProcess,
  notices: Parameters<typeof connectControl>[1] = {},
): Promise<ControlClient> {
  const path = join(overlay.runDir, "overlay.sock");
  return waitFor(`an overlay answers: ${path}`, async () => {
    const client = await connectControl(path, notices);
    onTestFinished(() => client.close());
    return client;
  });
}
