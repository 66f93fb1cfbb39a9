import { spawn, type ChildProcess, type StdioOptions } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { basename, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { buildSync } from "esbuild";

export const BUNDLE = "dist/holdfast.mjs";
/** The flags every program is started with. */
export const FLAGS = ["--disable-sigusr1", "--disable-warning=ExperimentalWarning"];

/** A process that ends with the bench at the latest. */
export interface Running {
  readonly pid: number;
  /** Sends a signal and waits for the end. */
  end(signal?: NodeJS.Signals): Promise<void>;
}

/** Starts a Node with its output in a file. */
export function start(args: readonly string[], log: string, options: StartOptions = {}): Running {
  const out = openSync(log, "a");
  return running(launch(args, ["ignore", out, out], options));
}

/** Starts any other program with its output in a file; with `netOf`, in the network namespace of that process. */
export function startTool(command: string, args: readonly string[], log: string, netOf?: number): Running {
  const out = openSync(log, "a");
  const [program, all] = inNet(netOf, command, args);
  return running(spawn(program, all, { stdio: ["ignore", out, out] }));
}

/** Options for starting a process, besides its arguments. */
export interface StartOptions {
  readonly flags?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** A process whose network namespace it is to have. */
  readonly netOf?: number;
  /** Put before the command line. */
  readonly within?: readonly string[];
  /** The settings file of an agent. */
  readonly config?: string;
}

function launch(args: readonly string[], stdio: StdioOptions, options: StartOptions): ChildProcess {
  const { flags = [], env = {}, netOf, within = [] } = options;
  const [file = process.execPath, ...rest] = [...within, process.execPath, ...FLAGS, ...flags, ...args];
  const [program, all] = inNet(netOf, file, rest);
  return spawn(program, all, { stdio, env: { ...process.env, ...env } });
}

/** nsenter(1) becomes the program it starts, so that its process id and signals stay right. */
function inNet(
  netOf: number | undefined,
  command: string,
  args: readonly string[],
): readonly [string, readonly string[]] {
  return netOf === undefined ? [command, args] : ["nsenter", ["--target", String(netOf), "--net", command, ...args]];
}

/** A helper of the bench in a process of its own: it takes a line for each question and answers with one. */
export interface Helper extends Running {
  ask(question: string): Promise<string>;
}

/**
 * Makes one file of a script of this folder, in that directory, as the programs are made one file: what a process needs in memory is what
 * starting another one takes it. Answers with its path.
 */
export function bundled(script: string, dir: string): string {
  const outfile = join(dir, `${basename(script, ".ts")}.mjs`);
  buildSync({
    entryPoints: [join(import.meta.dirname, script)],
    outfile,
    bundle: true,
    platform: "node",
    target: "node26",
    format: "esm",
    minify: true,
    banner: {
      js: "import { createRequire as benchRequire } from 'node:module'; const require = benchRequire(import.meta.url);",
    },
  });
  return outfile;
}

/** Starts a script of this folder, or of that path, as a helper. */
export function startHelper(script: string, args: readonly string[] = [], options: StartOptions = {}): Helper {
  const child = launch([resolve(import.meta.dirname, script), ...args], ["pipe", "pipe", "inherit"], options);
  const { stdin, stdout } = child;
  if (stdin === null || stdout === null) throw new Error("a helper without pipes");
  const lines = createInterface({ input: stdout });
  return {
    ...running(child),
    async ask(question) {
      const answered = new AbortController();
      const { signal } = answered;
      const answer = once(lines, "line", { signal });
      stdin.write(`${question}\n`);
      const gone = once(child, "exit", { signal }).then(([code]) => {
        throw new Error(`${script} ended with ${String(code)}`);
      });
      answer.catch(() => undefined);
      gone.catch(() => undefined);
      const [line] = (await Promise.race([answer, gone])) as [string];
      answered.abort();
      return line;
    },
  };
}

function running(child: ChildProcess): Running {
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  return {
    pid: child.pid ?? 0,
    end(signal = "SIGTERM") {
      child.kill(signal);
      return ended;
    },
  };
}

/** A controller of this checkout. */
export interface Controller extends Running {
  readonly url: string;
  call(path: string): Promise<string>;
}

/** Starts a controller on `dir/controller` and waits until it answers. */
export async function startController(dir: string, port: number, options: StartOptions = {}): Promise<Controller> {
  const data = join(dir, "controller");
  const url = `http://127.0.0.1:${port}`;
  const program = start(
    [BUNDLE, "controller", "--listen", `127.0.0.1:${port}`, "--data", data],
    join(dir, "controller.log"),
    options,
  );
  await until("the controller answers", async () => (await fetch(`${url}/healthz`)).ok);
  const call = async (path: string): Promise<string> => {
    const authorization = readFileSync(join(data, "admin.key"), "utf8").trim();
    const response = await fetch(`${url}${path}`, { headers: { authorization } });
    if (!response.ok) throw new Error(`${path}: HTTP ${response.status} ${await response.text()}`);
    return response.text();
  };
  return { ...program, url, call };
}

/** Starts the agent of `dir` and waits until it is ready. */
export async function startAgent(dir: string, options: StartOptions = {}): Promise<Running> {
  mkdirSync(dir, { recursive: true });
  const agent = start(
    [
      BUNDLE,
      "agent",
      "--state",
      join(dir, "state"),
      "--run",
      join(dir, "run"),
      ...(options.config === undefined ? [] : ["--config", options.config]),
    ],
    join(dir, "agent.log"),
    options,
  );
  const pidFile = join(dir, "run", "agent.pid");
  await until("the agent is ready", () => existsSync(pidFile) && Number(readFileSync(pidFile, "utf8")) === agent.pid);
  return agent;
}

/** Registers the agent of `dir` and waits until the controller sees it online. */
export async function registerAgent(controller: Controller, dir: string): Promise<void> {
  const license = join(dir, "license");
  writeFileSync(license, await controller.call("/node/license?name=bench&type=Node"), { mode: 0o600 });
  const program = start(
    [BUNDLE, "register", license, "--state", join(dir, "state"), "--run", join(dir, "run")],
    join(dir, "register.log"),
  );
  await until("the node is online", async () => /"online":true/.test(await controller.call("/node")));
  await program.end("SIGKILL");
}

/** Waits until `probe` says yes; asks every `everyMs`. */
export async function until(what: string, probe: () => boolean | Promise<boolean>, everyMs = 20): Promise<void> {
  const end = performance.now() + 60_000;
  let last: unknown;
  while (performance.now() < end) {
    try {
      if (await probe()) return;
    } catch (error) {
      last = error;
    }
    await delay(everyMs);
  }
  throw new Error(`waited in vain until ${what}`, { cause: last });
}

export function delay(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** A port of 127.0.0.1 that was free a moment ago. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  if (typeof address !== "object" || address === null) throw new Error("no port");
  return address.port;
}
