import { spawn, type ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, openSync, closeSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { SEARCH_PATH } from "../../../src/host/process/exec.ts";
import { waitFor } from "../wait-for.ts";

export interface EngineOptions {
  /** Removed at the end with all its contents; a temporary directory by default. */
  readonly dir?: string;
  /** Registries without TLS, `host:port`; those on 127.0.0.0/8 always are. */
  readonly registryHosts?: readonly string[];
  /**
   * `own` (default): a network namespace with only loopback, in which the engine may create bridges and firewall rules. `shared`: the
   * namespace of the test, without them. Or that of a running process.
   */
  readonly network?: "own" | "shared" | { readonly ofPid: number };
  /** Whether containers survive the engine; otherwise it stops them when it stops. */
  readonly liveRestore?: boolean;
  /** More arguments of dockerd(8). */
  readonly args?: readonly string[];
}

/** A real Docker Engine of the test's own. */
export interface TestEngine {
  readonly socketPath: string;
  readonly dir: string;
  /** Directory of images and containers. */
  readonly dataRoot: string;
  /** A command prefix that enters the engine's network namespace. */
  readonly within: readonly string[];
  /** The engine's process id, 0 without one. */
  readonly pid: number;
  readonly log: () => string;
  /** Sends one request of the Engine API, without a version in the path. */
  call(method: string, path: string, body?: unknown, headers?: Readonly<Record<string, string>>): Promise<EngineAnswer>;
  /** Ends the engine by a signal and waits for its exit; `SIGKILL` is a crash. */
  end(signal: "SIGTERM" | "SIGKILL"): Promise<void>;
  /** Starts it again on the same data. */
  start(): Promise<void>;
  /** Stops and starts it in order. */
  restart(): Promise<void>;
  /** Stops the engine, whose socket accepts connections without an answer until `thaw`. */
  freeze(): void;
  thaw(): void;
  /** Stops it with everything it runs, and removes all that it left. */
  stop(): Promise<void>;
}

export interface EngineAnswer {
  readonly status: number;
  /** Parsed JSON, or else the text. */
  readonly body: unknown;
}

const SUPERVISOR = join(import.meta.dirname, "docker-engine-keeper.sh");

/**
 * Starts dockerd(8) with a containerd, data, sockets, mounts, control groups and (by default) a network of its own. The caller stops it; if
 * the caller dies, all of it ends. Needs root.
 */
export async function startEngine(options: EngineOptions = {}): Promise<TestEngine> {
  const { network = "own" } = options;
  const mark = randomBytes(4).toString("hex");
  const dir = options.dir ?? mkdtempSync(join(tmpdir(), "hf-engine-"));
  mkdirSync(dir, { recursive: true });
  writeFileSync(join(dir, "daemon.json"), "{}"); // instead of the machine's own
  const cgroup = `hf-engine-${mark}`;
  const supervisor = await startSupervisor(dir, cgroup, network);
  const namespaces = network === "shared" ? ["-m"] : ["-m", "-n"];
  const enter = ["nsenter", "-t", String(supervisor.pid), ...namespaces];
  const logPath = join(dir, "log");
  const socketPath = join(dir, "docker.sock");
  const args = commandLine(dir, socketPath, cgroup, options);
  let daemon: ChildProcess | undefined;
  let gone: Promise<unknown> = Promise.resolve();

  const call: TestEngine["call"] = (method, path, body, headers) => callEngine(socketPath, method, path, body, headers);
  const signal = (name: NodeJS.Signals): void => {
    if (daemon?.pid !== undefined) process.kill(daemon.pid, name);
  };
  const engine: TestEngine = {
    socketPath,
    dir,
    dataRoot: join(dir, "d"),
    within: withinNetwork(supervisor.pid, network),
    get pid() {
      return daemon?.pid ?? 0;
    },
    log: () => (existsSync(logPath) ? readFileSync(logPath, "utf8") : ""),
    call,
    async end(name) {
      signal(name);
      signal("SIGCONT");
      await gone;
      await containerdGone(dir);
    },
    async start() {
      const log = openSync(logPath, "a");
      const [command = "", ...rest] = [...enter, ...args];
      const child = spawn(command, rest, { stdio: ["ignore", log, log], detached: true });
      closeSync(log);
      daemon = child;
      gone = new Promise<void>((resolve) => {
        child.once("exit", () => {
          daemon = undefined;
          resolve();
        });
      });
      await waitFor("the engine answers", async () => {
        if (daemon !== child) return "ended";
        return existsSync(socketPath) && (await call("GET", "/_ping")).status === 200;
      });
      if (daemon !== child) throw new Error(`the engine ended:\n${engine.log().slice(-2000)}`);
    },
    async restart() {
      await engine.end("SIGTERM");
      await engine.start();
    },
    freeze: () => signal("SIGSTOP"),
    thaw: () => signal("SIGCONT"),
    async stop() {
      await supervisor.end();
      await gone;
    },
  };
  try {
    await engine.start();
  } catch (error) {
    await engine.stop();
    throw error;
  }
  return engine;
}

function commandLine(dir: string, socketPath: string, cgroup: string, options: EngineOptions): readonly string[] {
  const { registryHosts = [], network = "own", liveRestore = false, args = [] } = options;
  return [
    "dockerd",
    `--data-root=${join(dir, "d")}`,
    `--exec-root=${join(dir, "x")}`,
    `--pidfile=${join(dir, "x", "docker.pid")}`,
    `--host=unix://${socketPath}`,
    `--config-file=${join(dir, "daemon.json")}`,
    "--exec-opt=native.cgroupdriver=cgroupfs",
    `--cgroup-parent=/${cgroup}`,
    "--shutdown-timeout=3",
    "--log-level=warn",
    ...(network === "shared" ? ["--bridge=none", "--iptables=false", "--ip-forward=false"] : []),
    ...(liveRestore ? ["--live-restore"] : []),
    ...registryHosts.map((host) => `--insecure-registry=${host}`),
    ...args,
  ];
}

/** Waits until containerd has exited, shortly after the engine; an engine that finds its pid alive would use it. */
async function containerdGone(dir: string): Promise<void> {
  const pidFile = join(dir, "x", "containerd", "containerd.pid");
  if (!existsSync(pidFile)) return;
  const pid = Number(readFileSync(pidFile, "utf8"));
  await waitFor("containerd has exited", () => !isRunning(pid));
  rmSync(pidFile, { force: true });
}

function isRunning(pid: number): boolean {
  const stat = `/proc/${pid}/stat`;
  return existsSync(stat) && !/\) [ZX] /.test(readFileSync(stat, "utf8"));
}

function withinNetwork(keeperPid: number, network: EngineOptions["network"]): readonly string[] {
  if (network === "shared") return [];
  const pid = typeof network === "object" ? network.ofPid : keeperPid;
  return ["nsenter", "-t", String(pid), "-n"];
}

/** Creates the namespaces of an engine whose programs name files below `dir/x/`; closing ends them and removes `dir`. */
export async function startSupervisor(
  dir: string,
  cgroup: string,
  network: EngineOptions["network"],
): Promise<{ readonly pid: number; end(): Promise<void> }> {
  const place = typeof network === "object" ? ["nsenter", "-t", String(network.ofPid), "-n"] : [];
  // Later mounts outside are visible inside, but not the reverse.
  const [command, ...args] = [
    ...place,
    "unshare",
    "-m",
    "--propagation=slave",
    ...(network === "own" ? ["-n"] : []),
    "sh",
    SUPERVISOR,
  ];
  const env = { PATH: SEARCH_PATH, ENGINE_DIR: dir, ENGINE_CGROUP: cgroup };
  const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"], detached: true, env });
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  child.stdin.on("error", () => undefined);
  await new Promise<void>((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", () => reject(new Error("no namespace for an engine: this needs root")));
    child.stdout.once("data", () => resolve());
  });
  return {
    pid: child.pid ?? 0,
    end() {
      child.stdin.end();
      return ended;
    },
  };
}

/** Sends one request to an engine's socket; `body` is sent as JSON, or as a tar if it is a buffer. */
export function callEngine(
  socketPath: string,
  method: string,
  path: string,
  body?: unknown,
  headers: Readonly<Record<string, string>> = {},
): Promise<EngineAnswer> {
  const isTar = Buffer.isBuffer(body);
  const type = body === undefined ? {} : { "content-type": isTar ? "application/x-tar" : "application/json" };
  const options = { socketPath, method, path, headers: { ...type, ...headers }, agent: false };
  return new Promise((resolve, reject) => {
    const outgoing = request(options, (response) => {
      buffer(response).then((bytes) => {
        const text = bytes.toString("utf8");
        resolve({ status: response.statusCode ?? 0, body: parsed(text) });
      }, reject);
    });
    outgoing.once("error", reject);
    outgoing.end(body === undefined ? undefined : isTar ? body : JSON.stringify(body));
  });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
